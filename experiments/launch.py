"""Run what is missing of an experiment's grid.

    python -m experiments run EXPERIMENT [config=VARIANT] [key=value ...] [--launcher inline|local|slurm] [--dry-run]

A finished run is never computed again; a relaunch computes what is missing or failed. Ctrl-C loses the current runs.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from . import slurm
from .config import Run, expand
from .errors import UserError
from .execute import Outcome, execute
from .progress import watched
from .store import RUNS, RunDirectory
from .tracking import Mode, split_mode

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
        if profile is not None:
            print(slurm.script(grid, profile, runs=arguments.runs, name=arguments.experiment))
        for run in grid:
            print(run.run_id, RunDirectory.of(run, arguments.runs).state(), run.values)
        return
    if arguments.force:
        for run in grid:
            RunDirectory.of(run, arguments.runs).set_aside()
    todo = [run for run in grid if RunDirectory.of(run, arguments.runs).state() != "done"]
    print(f"{arguments.experiment}: {len(grid)} runs, {len(grid) - len(todo)} done before", file=sys.stderr)
    if profile is not None:
        _to_slurm(todo, profile, arguments, wandb)
        return
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
        raise UserError(
            f"the run store cannot be written ({error}): free space or permissions, then call the same command again; "
            "what is finished is kept"
        ) from error
    _report(todo, counts, arguments.runs)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _slice(grid: list[Run], text: str) -> list[Run]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise UserError(f"--slice must be I/N with I below N, got {text!r}")
    return grid[int(index) :: int(count)]


def _to_slurm(todo: list[Run], profile: slurm.Profile, arguments: argparse.Namespace, wandb: Mode) -> None:
    if not todo:
        print("nothing to do", file=sys.stderr)
        return
    jobs = slurm.submit(todo, profile, runs=arguments.runs, wandb=wandb, name=arguments.experiment)
    array = jobs[0].split("_")[0]
    print(f"{len(todo)} runs in {len(jobs)} tasks of array {array}; `status` follows them", file=sys.stderr)
    if arguments.wait:
        _wait_for(jobs)
        states = Counter(RunDirectory.of(run, arguments.runs).state() for run in todo)
        print(", ".join(f"{count} {state}" for state, count in sorted(states.items())), file=sys.stderr)
        if states["done"] < len(todo):
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


def inline(todo: list[Run], *, runs: Path, wandb: Mode = "off") -> Iterator[Outcome]:
    """One after the other, in this process."""
    for run in todo:
        yield execute(run, runs=runs, wandb=wandb)


def local(todo: list[Run], *, runs: Path, wandb: Mode = "off", processes: int = 1) -> Iterator[Outcome]:
    """In worker processes. A worker that is killed takes its current run with it, and is replaced."""
    context = multiprocessing.get_context("spawn")
    waiting = todo[::-1]
    workers: dict[Connection, BaseProcess] = {}

    def hire() -> None:
        here, there = context.Pipe()
        workers[here] = context.Process(target=_work, args=(there, runs, wandb), daemon=True)
        workers[here].start()
        there.close()
        here.send(waiting.pop())

    try:
        for _ in range(min(processes, len(todo))):
            hire()
        while workers:
            for connection in wait(list(workers)):
                assert isinstance(connection, Connection)
                try:
                    outcome: Outcome = connection.recv()
                except EOFError:
                    outcome = "failed"
                    workers.pop(connection).join()
                    if waiting:
                        hire()
                else:
                    if waiting:
                        connection.send(waiting.pop())
                    else:
                        connection.close()
                        workers.pop(connection).join()
                yield outcome
    finally:
        for worker in workers.values():
            worker.terminate()
            worker.join()


def _work(tasks: Connection, runs: Path, wandb: Mode) -> None:
    """Compute what comes through the pipe until it is closed. Ctrl-C is the launcher's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            run = tasks.recv()
        except EOFError:
            return
        tasks.send(execute(run, runs=runs, wandb=wandb))


def _report(todo: list[Run], counts: Counter[Outcome], runs: Path) -> None:
    summary = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(summary or "nothing to do", file=sys.stderr)
    failed = [d for d in (RunDirectory.of(run, runs) for run in todo) if d.state() == "failed"]
    for directory in failed:
        print(f"failed {directory.reason()}", file=sys.stderr)
    if counts["failed"]:
        raise SystemExit(1)
