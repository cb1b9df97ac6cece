"""How far a grid is: how many of all runs that its YAML asks for are done, running, failed or missing.

python -m experiments status EXPERIMENT [config=VARIANT] [key=value ...]
python -m experiments status                 # every experiment and variant that has a run in the store
"""

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..engine.config import CONFIGS, expand, variants, whole_grid
from ..engine.scheduler import QueueUnknownError, endings, queue_states
from ..engine.store import RUNS, RunDirectory, State, directories_in, experiments_in
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
        whole = expand(arguments.experiment, [setting for setting in settings if setting.startswith("config=")])
        part = f", {len(grid)} of the grid's {len(whole)} runs" if len(grid) < len(whole) else ""
        lines = [describe(arguments.experiment + part, [RunDirectory.of(run, arguments.runs) for run in grid])]
    else:
        grids = (pair for folder in experiments_in(arguments.runs) for pair in grids_of(folder))
        lines = [describe(name, directories) for name, directories in grids]
    none = f"no runs in {arguments.runs}: `python -m experiments run EXPERIMENT` computes some, `list` names them"
    print("\n".join(lines) or none)


def grids_of(folder: Path, configs: Path = CONFIGS) -> Iterator[tuple[str, list[RunDirectory]]]:
    """The whole grid of every variant that has a run in an experiment's folder, then the runs that are in none."""
    left = {directory.path.name: directory for directory in directories_in(folder)}
    values = [directory.config() for directory in left.values()]
    for variant in variants(folder.name, configs=configs):
        grid = whole_grid(folder.name, variant, values, configs=configs)
        if any(run.run_id in left for run in grid):
            yield f"{folder.name} config={variant}", [RunDirectory.of(run, folder.parent) for run in grid]
            left = {name: left[name] for name in left.keys() - {run.run_id for run in grid}}
    if left:
        yield f"{folder.name}, keys of one's own", [left[name] for name in sorted(left)]


def describe(name: str, directories: list[RunDirectory]) -> str:
    """One line with a bar, one for the cluster's queue, then the reason and log of every failure."""
    states = {directory: directory.state() for directory in directories}
    counts = Counter(states.values())
    done = counts["done"] / max(len(directories), 1)
    bar = ("#" * round(_BAR * done)).ljust(_BAR, ".")
    others = [f", {counts[state]} {state}" for state in ("running", "failed", "spoiled", "missing") if counts[state]]
    lines = [f"{name} [{bar}] {counts['done']} of {len(directories)} done{''.join(others)}"]
    lines += [f"  {line}" for line in _of_cluster(states)]
    lines += [f"  failed {directory.reason()}" for directory, state in states.items() if state == "failed"]
    lines += [f"  spoiled {directory.fault()}" for directory, state in states.items() if state == "spoiled"]
    return "\n".join(lines)


def _of_cluster(states: dict[RunDirectory, State]) -> Iterator[str]:
    """The tasks of unfinished runs in the queue, and how those ended that left a run without a record."""
    jobs = {directory: job for directory, state in states.items() if state != "done" and (job := directory.job())}
    try:
        queued = queue_states({job.id for job in jobs.values()})
    except QueueUnknownError as error:
        yield f"the queue does not answer: {error}"
        return
    if queued:
        counts = Counter(queued.values())
        yield "tasks in the queue: " + ", ".join(f"{count} {state.lower()}" for state, count in sorted(counts.items()))
    missing = Counter(job for directory, job in jobs.items() if states[directory] == "missing")
    lost = {job: count for job, count in missing.items() if job.id not in queued}
    known = endings(lost)
    for job, count in lost.items():
        yield f"task {job.id} {known[job.id]}: {count} runs are missing (log: {job.log})"
