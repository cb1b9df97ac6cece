"""How far a grid is: done, running, failed, missing.

python -m experiments status EXPERIMENT [config=VARIANT] [key=value ...]
python -m experiments status                 # everything in the run store
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ..engine.config import expand
from ..engine.launchers.slurm import QueueUnknownError, queue_states
from ..engine.store import RUNS, RunDirectory, experiments_in
from ..engine.wandb import split_mode

_BAR = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", nargs="?", metavar="EXPERIMENT", help="default: every experiment in the store")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="as for run")
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")


def main(arguments: argparse.Namespace) -> None:
    if arguments.experiment:
        settings, _ = split_mode(arguments.settings)
        grid = expand(arguments.experiment, settings)
        grids = {arguments.experiment: [RunDirectory.of(run, arguments.runs) for run in grid]}
    else:
        folders = experiments_in(arguments.runs)
        grids = {folder.name: [RunDirectory(p) for p in sorted(folder.iterdir()) if p.is_dir()] for folder in folders}
    for name, directories in grids.items():
        print(describe(name, directories))
    if not grids:
        print(
            f"no runs in {arguments.runs}: `python -m experiments run EXPERIMENT` computes some, "
            "`python -m experiments list` names the experiments"
        )


def describe(name: str, directories: list[RunDirectory]) -> str:
    """One line with a bar, one for the cluster's queue, then the reason and log of every failure."""
    states = {directory: directory.state() for directory in directories}
    counts = Counter(states.values())
    done = counts["done"] / max(len(directories), 1)
    bar = ("#" * round(_BAR * done)).ljust(_BAR, ".")
    parts = ", ".join(f"{counts[state]} {state}" for state in ("done", "running", "failed", "missing") if counts[state])
    lines = [f"{name} [{bar}] {parts or 'no runs'}"]
    jobs = [job[0] for directory, state in states.items() if state != "done" and (job := directory.job())]
    try:
        queued = Counter(queue_states(jobs).values())
    except QueueUnknownError as error:
        queued = Counter()
        lines.append(f"  the queue does not answer: {error}")
    if queued:
        tasks = ", ".join(f"{count} {state.lower()}" for state, count in sorted(queued.items()))
        lines.append(f"  tasks in the queue: {tasks}")
    for directory, state in states.items():
        if state == "failed":
            lines.append(f"  failed {directory.reason()}")
    return "\n".join(lines)
