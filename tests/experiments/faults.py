"""Faults of the run engine, each tried many times, with a count of the records that they cost.

A fault makes a store of toy runs, spoils it or kills who writes it, and calls the engine again, as a user would. Held
is a trial after which every run has one record, with the numbers of an undisturbed run, and nobody saw a traceback.
"""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.engine.config import Run
from experiments.engine.errors import UserError
from experiments.engine.manifests import grids_of_itself, shortfall, write_manifest
from experiments.engine.records import ROOT, read_records, write_records
from experiments.engine.run import execute
from experiments.engine.store import RunDirectory
from tests.experiments.toy import TOY, grid


class FaultTally(NamedTuple):
    """What became of the trials of one fault; the last four count records."""

    tried: int = 0
    held: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    tracebacks: int = 0

    def plus(self, other: "FaultTally") -> "FaultTally":
        return FaultTally(*map(sum, zip(self, other, strict=True)))


Fault = Callable[[Path, random.Random], FaultTally]
FAULTS: dict[str, tuple[Fault, int]] = {}


def fault(what: str, times: int) -> Callable[[Fault], Fault]:
    """Register one trial of a fault, and how often it is tried."""

    def register(trial: Fault) -> Fault:
        FAULTS[what] = trial, times
        return trial

    return register


def tallied(what: str, most: int | None = None) -> FaultTally:
    """The trials of a fault, each in an empty folder."""
    trial, times = FAULTS[what]
    total, chance = FaultTally(), random.Random(what)
    for _ in range(times if most is None else min(most, times)):
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
            os.environ["TOY_COUNTER"] = str(Path(name) / "counter")
            total = total.plus(trial(Path(name), chance))
    return total


def verdict(runs: list[Run], store: Path, said: str = "") -> FaultTally:
    """The count of one trial: the store beside what the runs give when nothing disturbs them."""
    lost, doubled, wrong = 0, 0, 0
    for run in runs:
        directory = RunDirectory.of(run, store)
        lost += not directory.done()
        doubled += len(list(directory.path.glob("record.previous*.json")))
        wrong += directory.done() and directory.record()["metrics"] != undisturbed(run)
    tracebacks = said.count("Traceback")
    return FaultTally(1, int(not (lost or doubled or wrong or tracebacks)), lost, doubled, wrong, tracebacks)


_KNOWN: dict[str, object] = {}


def undisturbed(run: Run) -> object:
    """The metrics of a run in a store of its own."""
    if run.run_id not in _KNOWN:
        with tempfile.TemporaryDirectory() as name:
            _finish([run], Path(name))
            _KNOWN[run.run_id] = RunDirectory.of(run, Path(name)).record()["metrics"]
    return _KNOWN[run.run_id]


def _apart(run: Run, store: Path, seconds: float | None = None) -> None:
    """Execute a run in a process of its own, which is killed after so many seconds."""
    child = os.fork()
    if child == 0:
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                execute(run, runs=store)
        finally:
            os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def _finish(runs: list[Run], store: Path) -> None:
    """What a user does: call again, some times, until all is done."""
    for _ in range(5):
        for run in runs:
            if not RunDirectory.of(run, store).done():
                _apart(run, store)


def _spoil(path: Path, chance: random.Random) -> None:
    """Set, cut or insert bytes."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data))
    match chance.choice(["set", "cut", "insert", "empty"]):
        case "set":
            data[at] ^= 1 << chance.randrange(8)
        case "cut":
            del data[at:]
        case "insert":
            data[at:at] = chance.randbytes(3)
        case _:
            data = bytearray()
    path.write_bytes(data)


@fault("a stored record is damaged", 100)
def damaged_record(folder: Path, chance: random.Random) -> FaultTally:
    (run,) = grid(1)
    directory = RunDirectory.of(run, folder)
    _finish([run], folder)
    _spoil(directory.record_path, chance)
    _finish([run], folder)
    return verdict([run], folder)


@fault("a checkpoint is damaged", 60)
def damaged_checkpoint(folder: Path, chance: random.Random) -> FaultTally:
    (run,) = grid(1, mode="kill")
    _apart(run, folder)
    _spoil(RunDirectory.of(run, folder).checkpoint_path, chance)
    _finish([run], folder)
    return verdict([run], folder)


@fault("a run is killed (kill -9) at any moment", 150)
def killed_run(folder: Path, chance: random.Random) -> FaultTally:
    (run,) = grid(1)
    _apart(run, folder, chance.uniform(0, 0.1))
    _finish([run], folder)
    return verdict([run], folder)


@fault("two compute the same runs, and a third deletes their leases", 30)
def deleted_leases(folder: Path, chance: random.Random) -> FaultTally:
    runs = grid(5)
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            try:
                for run in random.Random(os.getpid()).sample(runs, len(runs)):
                    execute(run, runs=folder)
            finally:
                os._exit(0)
        children.append(child)
    while children:
        for lease in folder.glob(f"{TOY}/*/lease"):
            if chance.random() < 0.3:
                shutil.rmtree(lease, ignore_errors=True)
        children = [child for child in children if os.waitpid(child, os.WNOHANG)[0] == 0]
        time.sleep(0.005)
    _finish(runs, folder)
    return verdict(runs, folder)


@fault("a launcher with its workers is ended (SIGTERM, SIGINT, SIGKILL) at any moment", 6)
def ended_launcher(folder: Path, chance: random.Random) -> FaultTally:
    runs, number = grid(6, mode="slow"), chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
    options = [TOY, "seed=[0,1,2,3,4,5]", "mode=slow", "wandb=off", "--runs", str(folder / "runs")]
    command = [sys.executable, "-m", "experiments", "run", *options, "--launcher", "local", "--processes", "2"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while process.poll() is None and not (folder / "counter").exists():
        time.sleep(0.05)
    time.sleep(chance.uniform(0, 1.5))
    process.send_signal(number)
    said = process.communicate()[1]
    deadline = time.monotonic() + 40
    while _members(process.pid) and time.monotonic() < deadline:  # workers see that their launcher is gone
        time.sleep(0.1)
    orphans = _members(process.pid)
    _finish(runs, folder / "runs")
    counted = verdict(runs, folder / "runs", said)
    return counted._replace(held=counted.held if not orphans else 0)


def _members(group: int) -> list[str]:
    found = subprocess.run(["pgrep", "-g", str(group)], capture_output=True, text=True, check=False)
    return found.stdout.split()


@fault("lines of a file of records are lost, doubled, edited or cut", 400)
def spoiled_lines(folder: Path, chance: random.Random) -> FaultTally:
    """Wrong is a file that tables would take although its records are not those that were collected."""
    path = folder / "toy.jsonl"
    collected = [
        {"run_id": f"r{i}", "profile": "cpu", "config": {"seed": i}, "metrics": {"mean": i / 7}} for i in range(8)
    ]
    write_records(collected, path)
    write_manifest(path, grids_of_itself(collected))
    lines = path.read_text().splitlines(keepends=True)
    at = chance.randrange(len(lines))
    match how := chance.choice(["lost", "doubled", "edited", "bytes"]):
        case "lost":
            del lines[at]
        case "doubled":
            lines.insert(chance.randrange(len(lines)), lines[at])
        case "edited":
            record = json.loads(lines[at])
            record["metrics"]["mean"] += 1e-9
            lines[at] = json.dumps(record, sort_keys=True) + "\n"
    path.write_text("".join(lines))
    if how == "bytes":
        _spoil(path, chance)
    try:
        taken = not shortfall(path, ["cpu"], incomplete=False)
        wrong = taken and read_records(path) != sorted(collected, key=lambda record: json.dumps(record["config"]))
    except UserError:
        wrong = False
    return FaultTally(1, int(not wrong), 0, 0, int(wrong), 0)
