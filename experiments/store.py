"""The run directory: ``results/runs/EXPERIMENT/RUN_ID`` with config, log, checkpoint and record.

A run is done when its record exists, and records appear whole (written aside, then renamed). Whoever computes a run
holds an exclusive lock on its directory; the system drops the lock when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from omegaconf import OmegaConf

from .config import Run
from .records import ROOT, Record, plain, write_atomically

RUNS = ROOT / "results" / "runs"

State = Literal["missing", "running", "failed", "done"]


_TRIES = 10
_PAUSE = 0.02
"""Seconds between tries: looking at a run's state holds its lock for an instant."""


@dataclass(frozen=True)
class RunDirectory:
    """Where one run keeps its files."""

    path: Path

    @classmethod
    def of(cls, run: Run, runs: Path = RUNS) -> RunDirectory:
        return cls(runs / run.experiment / run.run_id)

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
        if self.record_path.exists():
            return "done"
        if not self.path.exists():
            return "missing"
        with self.claim() as claimed:
            if not claimed:
                return "running"
        return "failed" if self.failure_path.exists() else "missing"

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
        job_id, log = path.read_text(encoding="utf-8").splitlines()
        return job_id, log

    def begin(self, run: Run) -> None:
        """Store the resolved config and forget an earlier failure."""
        write_atomically(self.path / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(plain(run.values))))
        self.failure_path.unlink(missing_ok=True)

    def finish(self, record: Record) -> None:
        """Store the record, which makes the run done, and drop its checkpoint."""
        write_atomically(self.record_path, json.dumps(plain(record), sort_keys=True, allow_nan=False) + "\n")
        self.checkpoint_path.unlink(missing_ok=True)

    def fail(self, reason: str) -> None:
        write_atomically(self.failure_path, reason)

    def record(self) -> Record:
        """The finished record."""
        found: Record = json.loads(self.record_path.read_text(encoding="utf-8"))
        return found

    def set_aside(self) -> None:
        """Keep an earlier record under another name, so that the run is computed again."""
        if self.record_path.exists():
            self.record_path.rename(self.path / "record.previous.json")


def experiments_in(runs: Path) -> list[Path]:
    """The folders of a store that hold runs."""
    return sorted(path for path in runs.glob("*") if path.is_dir() and not path.name.startswith("."))


def _lock_soon(lock: IO[str]) -> bool:
    for _ in range(_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        else:
            return True
    return False
