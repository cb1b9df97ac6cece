"""`python -m experiments COMMAND [options]`: every command of the project from one place.

Each command is a module of this package with `add_arguments` and `main`; it is imported only when it is called, so that
tables need no training code.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys

from .errors import UserError

MODULES = {"run": "launch", "list": "catalogue"}
"""Commands that are not named like their module."""

COMMANDS = {
    "reproduce": "everything at CPU scale, then a comparison with the committed records (24 minutes)",
    "list": "the experiments and their configs",
    "data": "fetch or check a data set: emoji, domainnet",
    "run": "compute what is missing of an experiment's grid",
    "status": "runs done, running, failed, missing",
    "compare": "finished runs beside the committed records, number by number (seconds)",
    "collect": "finished runs into results/records (seconds)",
    "sync": "upload W&B runs that were written offline",
    "publish": "tables and figures as a W&B artifact",
    "benchmark": "speed and memory against peers, as ratios in one run (17 minutes)",
    "tables": "all tables from results/records alone (a minute)",
    "figures": "all figures from results/records alone (half a minute)",
    "claims": "the ledger: every claim of the paper with its verdict (seconds)",
}


def main(arguments: list[str]) -> None:
    usage = "\n".join(
        [
            "usage: python -m experiments COMMAND [--help]",
            "",
            *(f"  {name:12}{text}" for name, text in COMMANDS.items()),
        ]
    )
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        return
    name, *options = arguments
    if name not in COMMANDS:
        nearest = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f", did you mean {nearest[0]}?" if nearest else ""
        raise SystemExit(f"unknown command {name!r}{hint}\n{usage}")
    module = importlib.import_module(f"experiments.{MODULES.get(name, name)}")
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    try:
        module.main(parser.parse_intermixed_args(options))  # options may stand between keys
    except UserError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main(sys.argv[1:])
