"""Delete the folders of failed runs, or with --all of all runs that are named.

python -m experiments forget EXPERIMENT [config=VARIANT] [key=value ...]        # failed runs of that grid
python -m experiments forget EXPERIMENT [config=VARIANT] [key=value ...] --all  # finished ones too
"""

import argparse
import shutil
from pathlib import Path

from ..engine.config import expand
from ..engine.store import RUNS, RunDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", metavar="EXPERIMENT", help="as for run")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="as for run")
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--failed", action="store_true", help="failed runs alone (default)")
    which.add_argument("--all", action="store_true", dest="everything", help="every run that nobody computes now")


def main(arguments: argparse.Namespace) -> None:
    grid = [RunDirectory.of(run, arguments.runs) for run in expand(arguments.experiment, arguments.settings)]
    there = [directory for directory in grid if directory.path.exists()]
    forgotten = [directory for directory in there if forget(directory, everything=arguments.everything)]
    print(f"{len(forgotten)} runs forgotten, {len(there) - len(forgotten)} kept, of {len(grid)} in the grid")


def forget(directory: RunDirectory, *, everything: bool) -> bool:
    """Delete a folder and say so; what is being computed stays, and without ``everything`` what did not fail."""
    state = directory.state()
    if state == "running" or not (everything or state in ("failed", "spoiled")):
        return False
    with directory.claim() as lease:
        if lease is not None:
            print(f"{state} {directory.reason() if state == 'failed' else directory.path}")
            shutil.rmtree(directory.path)
    return lease is not None
