"""`python -m experiments COMMAND [options]`: every command of the project from one place.

Each command is a module of `experiments.commands` with `add_arguments` and `main`; it is imported only when it is
called, so that tables need no training code.
"""

import argparse
import difflib
import importlib
import os
import sys
from pathlib import Path

from trace.escaping import printable

from .engine.errors import UserError
from .engine.registry import summaries

COMMANDS = Path(__file__).parent / "commands"


def main(arguments: list[str]) -> None:
    commands = summaries(COMMANDS)
    lines = [f"  {name:12}{text}" for name, text in commands.items()]
    usage = "\n".join(["usage: python -m experiments COMMAND [--help]", "", *lines])
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return
    name, *options = arguments
    if name not in commands:
        nearest = difflib.get_close_matches(name, commands, n=1)
        hint = f", did you mean {nearest[0]}?" if nearest else ""
        raise SystemExit(f"unknown command {name!r}{hint}\n{usage}")
    module = importlib.import_module(f"experiments.commands.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    try:
        module.main(parser.parse_intermixed_args(options))  # options may stand between keys
        sys.stdout.flush()
    except UserError as error:
        raise SystemExit(printable(str(error))) from error
    except BrokenPipeError:  # a reader that has seen enough, such as head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main(sys.argv[1:])
