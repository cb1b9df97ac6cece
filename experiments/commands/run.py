"""Run what is missing of an experiment's grid.

    python -m experiments run EXPERIMENT [config=VARIANT] [key=value ...] [--launcher inline|local|slurm] [--dry-run]

A finished run is never computed again; a relaunch computes what is missing or failed. Ctrl-C loses the current runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from ..engine.config import Run, expand
from ..engine.errors import UserError
from ..engine.interrupt import uninterrupted
from ..engine.launchers import slurm
from ..engine.launchers.inline import inline
from ..engine.launchers.local import local
from ..engine.progress import watched
from ..engine.run import Outcome
from ..engine.store import RUNS, RunDirectory, unwritable
from ..engine.wandb import Mode, split_mode

WAIT_SECONDS = 2.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", metavar="EXPERIMENT", help="a name from `list`, or the dotted path of a module")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="key=value",
        help="config=VARIANT, keys (a list sweeps), wandb=auto|offline|off",
    )
    parser.add_argument(
        "--launcher", choices=("inline", "local", "slurm"), default="inline", help="default: %(default)s"
    )
    parser.add_argument("--profile", default="cpu", help="slurm/profiles/PROFILE.yaml for slurm (default: %(default)s)")
    parser.add_argument("--wait", action="store_true", help="with slurm: block until the array has left the queue")
    parser.add_argument("--slice", default="0/1", metavar="I/N", help="every N-th run from the I-th")
    parser.add_argument(
        "--processes", type=_positive, default=os.cpu_count() or 1, help="of --launcher local (default: all cores)"
    )
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="compute finished runs again; their records are kept as record.previousN.json",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs and their states, run nothing")


def main(arguments: argparse.Namespace) -> None:
    settings, wandb = split_mode(arguments.settings)
    grid = _slice(expand(arguments.experiment, settings), arguments.slice)
    profile = slurm.load_profile(arguments.profile) if arguments.launcher == "slurm" else None
    if arguments.dry_run:
        _show(grid, profile, arguments)
        return
    if arguments.force:
        _set_aside(grid, arguments.runs)
    todo = _unfinished(grid, arguments.runs)
    print(f"{arguments.experiment}: {len(grid)} runs, {len(grid) - len(todo)} done before", file=sys.stderr)
    if not todo:
        print("nothing to do", file=sys.stderr)
    elif profile is not None:
        _to_slurm(todo, profile, arguments, wandb)
    else:
        _compute_here(todo, arguments, wandb)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _slice(grid: list[Run], text: str) -> list[Run]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise UserError(f"--slice must be I/N with I below N, got {text!r}")
    return grid[int(index) :: int(count)]


def _unfinished(grid: list[Run], runs: Path) -> list[Run]:
    return [run for run in grid if RunDirectory.of(run, runs).state() != "done"]


def _set_aside(grid: list[Run], runs: Path) -> None:
    try:
        for run in grid:
            RunDirectory.of(run, runs).set_aside()
    except OSError as error:
        raise unwritable(error) from error


def _show(grid: list[Run], profile: slurm.Profile | None, arguments: argparse.Namespace) -> None:
    """The runs with their states, and for slurm the script for those that are not done."""
    todo = grid if arguments.force else _unfinished(grid, arguments.runs)
    if profile is not None:
        script = slurm.script(todo, profile, runs=arguments.runs, name=arguments.experiment) if todo else ""
        print(script or "nothing to do")
    for run in grid:
        print(run.run_id, RunDirectory.of(run, arguments.runs).state(), run.values)


def _compute_here(todo: list[Run], arguments: argparse.Namespace, wandb: Mode) -> None:
    outcomes = (
        local(todo, runs=arguments.runs, wandb=wandb, processes=arguments.processes)
        if arguments.launcher == "local"
        else inline(todo, runs=arguments.runs, wandb=wandb)
    )
    try:
        counts = Counter(watched(outcomes, len(todo), arguments.experiment))
    except KeyboardInterrupt:
        raise SystemExit("interrupted: what is finished is kept, the same command goes on with the rest") from None
    except OSError as error:
        raise unwritable(error) from error
    _report(todo, counts, arguments.runs)


def _report(todo: list[Run], counts: Counter[Outcome], runs: Path) -> None:
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())), file=sys.stderr)
    _name_failures(todo, runs)
    _name_elsewhere(counts["running elsewhere"])
    if counts["failed"]:
        raise SystemExit(1)


def _name_failures(todo: list[Run], runs: Path) -> None:
    for directory in (RunDirectory.of(run, runs) for run in todo):
        if directory.state() == "failed":
            print(f"failed {directory.reason()}", file=sys.stderr)


def _name_elsewhere(count: int) -> None:
    if count:
        print(
            f"{count} of these runs are being computed by another launcher: `status` follows them, and the same "
            "command later computes what it may leave",
            file=sys.stderr,
        )


def _to_slurm(todo: list[Run], profile: slurm.Profile, arguments: argparse.Namespace, wandb: Mode) -> None:
    jobs: list[str] = []
    try:
        with uninterrupted():
            jobs = slurm.submit(todo, profile, runs=arguments.runs, wandb=wandb, name=arguments.experiment)
        array = jobs[0].split("_")[0]
        print(f"{len(todo)} runs in {len(jobs)} tasks of array {array}; `status` follows them", file=sys.stderr)
        if arguments.wait:
            _wait_for(jobs)
            _report_states(todo, arguments.runs)
    except KeyboardInterrupt:
        raise SystemExit(_interrupted(jobs)) from None


def _interrupted(jobs: list[str]) -> str:
    if not jobs:
        return "interrupted: nothing was submitted"
    array = jobs[0].split("_")[0]
    return f"interrupted: array {array} goes on in the queue; `status` follows it, `scancel {array}` stops it"


def _report_states(todo: list[Run], runs: Path) -> None:
    states = Counter(RunDirectory.of(run, runs).state() for run in todo)
    print(", ".join(f"{count} {state}" for state, count in sorted(states.items())), file=sys.stderr)
    _name_failures(todo, runs)
    _name_elsewhere(states["running"])
    if states["failed"] or states["missing"]:
        raise SystemExit(1)


def _wait_for(jobs: list[str]) -> None:
    """Until the queue says that it holds none of them; no answer is no reason to stop."""
    while True:
        time.sleep(WAIT_SECONDS)
        try:
            if not slurm.queue_states(jobs):
                return
        except slurm.QueueUnknownError as error:
            print(f"the queue does not answer ({error}), asking again", file=sys.stderr)
