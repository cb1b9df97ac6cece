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

from ..config import Run
from ..interrupt import GRACE_SECONDS
from ..run import Outcome, execute
from ..store import RunDirectory
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
                    yield _lost(crew.pop(ready), runs)
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


def _lost(worker: Worker, runs: Path) -> Outcome:
    """What became of the run of a worker that died; its failure names the way it died."""
    worker.process.join()
    directory = RunDirectory.of(worker.run, runs)
    with directory.claim() as claimed:
        if not claimed:
            return "running elsewhere"
        if directory.record_path.exists():
            return "computed"
        directory.fail(f"the worker process {_ending(worker.process.exitcode or 0)}")
    return "failed"


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code} in the middle of the run"
    hint = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{hint}"


def _work(tasks: Connection, runs: Path, wandb: Mode) -> None:
    """Compute what comes through the pipe until it is closed. Ctrl-C is the launcher's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            run = tasks.recv()
        except EOFError:
            return
        try:
            tasks.send(execute(run, runs=runs, wandb=wandb))
        except OSError as error:
            tasks.send(error)
