"""One entry for all commands, and one place where failures become a sentence and exit code 3."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..escaping import one_line
from ..io.errors import first_line

COMMANDS = ("diagnose", "gate", "calibrate", "label")
"""Each is a module beside this one: ``SUMMARY``, ``add_arguments(parser)``, ``main(arguments) -> exit code``."""

FAILED = 3
"""Exit code of every error; 0, 1 and 2 are the answers of `gate` and `label`."""


class Parser(argparse.ArgumentParser):
    """Usage errors leave with the code of all errors."""

    def error(self, message: str) -> NoReturn:
        self.exit(FAILED, f"{self.prog}: {message}\n`{self.prog} --help` shows all options.\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = list(sys.argv[1:] if argv is None else argv)
    name = next((option for option in options if not option.startswith("-")), None)
    parser = Parser(
        prog=_program(), description="How much can a model update change the risk on its old domain, and why?"
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        if command == name or name not in COMMANDS:
            _add(subparsers, command)
    arguments, unknown = parser.parse_known_args(options)
    if unknown:
        subparsers.choices[arguments.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        return int(arguments.main(arguments))
    except SystemExit as leaving:  # its code must not pass for an answer of the gate
        said = f"a model's code called sys.exit({leaving.code!r})"
    except KeyboardInterrupt:
        said = "interrupted"
    except Exception as error:
        if arguments.debug:
            raise
        said = _sentence(error)
    print(f"{parser.prog} {arguments.command}: {one_line(said)}", file=sys.stderr)
    return FAILED


def _add(subparsers: Any, command: str) -> None:
    module = importlib.import_module(f"{__package__}.{command}")
    parser = subparsers.add_parser(
        command,
        help=module.SUMMARY,
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    module.add_arguments(parser)
    parser.set_defaults(main=module.main)


def _program() -> str:
    name = os.path.basename(sys.argv[0])
    return name if name.startswith("trace-shift") else f"python -m {__package__.split('.')[0]}"


def _sentence(error: Exception) -> str:
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    return f"{first_line(error)} (unexpected; --debug shows where)"
