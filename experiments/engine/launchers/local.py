"""Runs in worker processes of this machine: a worker that dies costs its current run alone and is replaced."""

import argparse
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from ..config import Run
from ..interrupt import GRACE_SECONDS, end_with_the_parent, ending
from ..run import Outcome, execute
from ..store import KILLED, RunDirectory
from ..wandb import Mode
from . import LaunchPlan


@dataclass
class Worker:
    """A process and the run that it was given last."""

    process: BaseProcess
    run: Run


def add_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--processes", type=_positive, metavar="N", help="runs at the same time (default: all cores)")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def plan(todo: list[Run], *, runs: Path, processes: int | None = None) -> LaunchPlan:
    return LaunchPlan(len(todo), processes or os.cpu_count() or 1)


def launch(todo: list[Run], *, runs: Path, wandb: Mode = "off", processes: int | None = None) -> Iterator[Outcome]:
    """The outcomes of all runs as they come in.

    Raises:
        OSError: from a worker that cannot write the run store; the others are stopped.
    """
    waiting, most = todo[::-1], processes or os.cpu_count() or 1
    crew: dict[Connection, Worker] = {}
    try:
        while waiting or crew:
            while waiting and len(crew) < most:
                connection, worker = _hire(waiting.pop(), runs, wandb)
                crew[connection] = worker
            for ready in wait(list(crew)):
                assert isinstance(ready, Connection)
                try:
                    message: Outcome | OSError = ready.recv()
                except (EOFError, ConnectionResetError):
                    ready.close()
                    worker = crew.pop(ready)
                    worker.process.join()
                    yield lost(worker.run, runs, worker.process.exitcode or 0)
                    continue
                if isinstance(message, OSError):
                    raise message
                if not _give_next(ready, crew[ready], waiting):
                    ready.close()
                    crew.pop(ready).process.join()
                yield message
    finally:
        _dismiss([worker.process for worker in crew.values()])


def _dismiss(processes: list[BaseProcess]) -> None:
    """End the workers; a run that takes steps may still save the current one."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(GRACE_SECONDS + 1)
        process.kill()
        process.join()


def _hire(run: Run, runs: Path, wandb: Mode) -> tuple[Connection, Worker]:
    """A new worker with its first run; one that is dead already shows it by the end of its pipe."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, runs, wandb), daemon=True)
    process.start()
    there.close()
    worker = Worker(process, run)
    with suppress(OSError):
        here.send(run)
    return here, worker


def _give_next(connection: Connection, worker: Worker, waiting: list[Run]) -> bool:
    """Whether the worker got another run; a run that it died too early to get goes back in line."""
    if not waiting:
        return False
    worker.run = waiting.pop()
    try:
        connection.send(worker.run)
    except OSError:
        waiting.append(worker.run)
        return False
    return True


def lost(run: Run, runs: Path, code: int) -> Outcome:
    """What became of a run whose process died with an exit code; its failure names the way it died."""
    directory = RunDirectory.of(run, runs)
    with directory.claim() as lease:
        if lease is None:
            return "running elsewhere"
        if directory.done():
            return "computed"
        directory.fail(f"{KILLED}{ending(code)}")
    return "failed"


def _work(tasks: Connection, runs: Path, wandb: Mode) -> None:
    """Compute what comes through the pipe until it is closed. Ctrl-C is the launcher's business."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, leave)
    end_with_the_parent(signal.SIGTERM)
    try:
        while _work_once(tasks, runs, wandb):
            pass
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is left to give back
    except SystemExit:  # with the lease given back, it ends as it was told to
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)


def _work_once(tasks: Connection, runs: Path, wandb: Mode) -> bool:
    """Compute one run and tell what became of it; False where the launcher has closed the pipe, or is gone."""
    try:
        run = tasks.recv()
    except (EOFError, OSError):
        return False
    message: Outcome | OSError
    try:
        message = execute(run, runs=runs, wandb=wandb)
    except OSError as error:
        message = error
    try:
        tasks.send(message)
    except OSError:
        return False
    return True
