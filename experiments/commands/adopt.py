"""Make the results of `reproduce` the committed ones: its records, and tables, figures, ledger and README from them.

python -m experiments adopt      # from build/reproduce, about two minutes; `git diff` then shows what changed
"""

import argparse
import subprocess
import sys
from pathlib import Path

from ..engine.errors import MissingFileError
from ..engine.records import ROOT
from .reproduce import REPRODUCED

REMAKE = ("tables", "figures", "claims")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from", type=Path, default=REPRODUCED, dest="folder", help="where they are (default: build/reproduce)"
    )


def main(arguments: argparse.Namespace) -> None:
    runs = arguments.folder.resolve() / "runs"
    if not any(runs.glob("*/*/record.json")):
        raise MissingFileError(f"{runs} holds no finished run: `python -m experiments reproduce` computes them")
    for command in (["collect", "--runs", str(runs)], *([name] for name in REMAKE)):
        print(f"python -m experiments {' '.join(command)}", file=sys.stderr)
        done = subprocess.run([sys.executable, "-m", "experiments", *command], cwd=ROOT, check=False)
        if done.returncode:
            raise SystemExit(done.returncode)
