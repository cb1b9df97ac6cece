"""`python -m experiments COMMAND`: every command of the project from one place."""

from __future__ import annotations

import argparse

from . import benchmark, tables


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (benchmark, tables):
        name = module.__name__.split(".")[-1]
        summary = (module.__doc__ or "").strip().splitlines()[0]
        command = commands.add_parser(
            name, help=summary, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
