"""The run directory: ``results/runs/EXPERIMENT/RUN_ID`` with config, log, checkpoint and record.

A run is done when its record exists, and records appear whole (written aside, then renamed). Whoever computes a run
holds an exclusive lock on its directory; the system drops the lock when the process ends, however it ends.
"""

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from omegaconf import OmegaConf

from trace.io.writing import plain, strict_json, write_atomically

from .config import Run, metrics_version, read_mapping
from .errors import UserError
from .records import ROOT, Record

RUNS = ROOT / "results" / "runs"
SHARED = ".shared"
"""Folder of a store with what its runs share."""

State = Literal["missing", "running", "failed", "done"]

_TRIES = 10
_PAUSE = 0.02
"""Seconds between tries: looking at a run's state shares its lock for an instant."""


@dataclass(frozen=True)
class RunDirectory:
    """Where one run keeps its files."""

    path: Path
    metrics_version: int = 1
    """That a record must have to count."""

    @classmethod
    def of(cls, run: Run, runs: Path = RUNS) -> "RunDirectory":
        return cls(runs / run.experiment / run.run_id, run.metrics_version)

    @property
    def store(self) -> Path:
        """The run store that it is part of."""
        return self.path.parents[1]

    @property
    def record_path(self) -> Path:
        return self.path / "record.json"

    @property
    def failure_path(self) -> Path:
        return self.path / "failed.txt"

    @property
    def log_path(self) -> Path:
        return self.path / "log.txt"

    @property
    def checkpoint_path(self) -> Path:
        return self.path / "checkpoint.pt"

    def state(self) -> State:
        """done > running > failed > missing: what a relaunch has to know."""
        if self.done():
            return "done"
        if not self.path.exists():
            return "missing"
        if self.held():
            return "running"
        return "failed" if self.failure_path.exists() else "missing"

    def done(self) -> bool:
        """Whether there is a record with the columns of this version."""
        return self.record_path.exists() and self.record().get("metrics_version", 1) == self.metrics_version

    def held(self) -> bool:
        """Whether a process holds the run; looking leaves no trace and does not wait."""
        try:
            with open(self.path / "lock", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    @contextmanager
    def claim(self) -> Iterator[bool]:
        """Hold the run; yields False if another process holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "lock", "a", encoding="utf-8") as lock:
            yield _lock_soon(lock)

    def job(self) -> tuple[str, str] | None:
        """Id and log of the cluster job that the run was given to last."""
        path = self.path / "job.txt"
        if not path.exists():
            return None
        lines = path.read_text(encoding="utf-8").splitlines()
        return (lines[0], lines[1]) if len(lines) == 2 else None

    def config(self) -> dict[str, Any]:
        """The resolved config of a run that was begun; empty before."""
        path = self.path / "config.yaml"
        return read_mapping(path) if path.exists() else {}

    def begin(self, run: Run) -> None:
        """Store the resolved config and forget an earlier failure."""
        write_atomically(self.path / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(plain(run.values))))
        self.failure_path.unlink(missing_ok=True)

    def finish(self, record: Record) -> None:
        """Store the record, which makes the run done, and drop its checkpoint."""
        write_atomically(self.record_path, strict_json(record, indent=None, sort_keys=True) + "\n")
        self.checkpoint_path.unlink(missing_ok=True)

    def fail(self, reason: str) -> None:
        write_atomically(self.failure_path, reason)

    def record(self) -> Record:
        """The finished record."""
        try:
            found: Record = json.loads(self.record_path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise UserError(f"{self.record_path} is not a record ({error}): delete it and run again") from error
        return found

    def set_aside(self) -> None:
        """Keep an earlier record under a numbered name, so that the run is computed again."""
        if self.record_path.exists():
            number = 1 + len(list(self.path.glob("record.previous*.json")))
            self.record_path.rename(self.path / f"record.previous{number}.json")

    def reason(self) -> str:
        """The last line of a failure, with where to read the rest."""
        try:
            lines = self.failure_path.read_text(encoding="utf-8").strip().splitlines()
        except FileNotFoundError:
            lines = []
        return f"{self.path.name}: {lines[-1] if lines else 'no reason was stored'} (log: {self.log_path})"


def experiments_in(runs: Path) -> list[Path]:
    """The folders of a store that hold runs."""
    return sorted(path for path in runs.glob("*") if path.is_dir() and not path.name.startswith("."))


def directories_in(folder: Path) -> list[RunDirectory]:
    """The runs of an experiment's folder, whatever became of them."""
    return [RunDirectory(path) for path in sorted(folder.glob("*")) if path.is_dir()]


def finished_records(folder: Path) -> Iterator[Record]:
    """The records of all finished runs in an experiment's folder, with the columns of its version."""
    found = (RunDirectory(path.parent).record() for path in sorted(folder.glob("*/record.json")))
    try:
        version = metrics_version(folder.name)
    except UserError:  # its module is gone: there is no other version
        return found
    return (record for record in found if record.get("metrics_version", 1) == version)


def unwritable(error: OSError, consequence: str = "what is finished is kept") -> UserError:
    """The sentence of every launcher for a store that is full or closed."""
    return UserError(
        f"the run store cannot be written ({error}): free space or permissions, then call the same command again; "
        f"{consequence}"
    )


def _lock_soon(lock: IO[str]) -> bool:
    for _ in range(_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        else:
            return True
    return False
