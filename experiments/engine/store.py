"""The run directory: ``results/runs/EXPERIMENT/RUN_ID`` with config, log, checkpoint and record.

A run is done when its record reads: it parses, belongs to its folder and has its digest. Records appear whole, by a
link that fails where one exists, so that there is never a second one. Whoever computes a run holds the lease on its
directory, `experiments.engine.leases`.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from omegaconf import OmegaConf

from trace.io.writing import plain, strict_json, write_atomically

from .config import Run, metrics_version, read_mapping
from .errors import UserError
from .leases import Holder, Lease, acquire, look, store_once
from .records import ROOT, Record

RUNS = ROOT / "results" / "runs"
SHARED = ".shared"
"""Folder of a store with what its runs share."""

RESERVE = 2**20
"""Bytes that a run keeps free for its record: what could not be stored is not computed."""

KILLED = "the process of the run "
"""How the failure of a run begins whose process was killed, or died without a word."""

State = Literal["missing", "running", "failed", "spoiled", "done"]


class Job(NamedTuple):
    """A task of a cluster."""

    id: str
    log: str
    mem: str
    """That it asked for; empty for the cluster's default."""


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

    @property
    def lease_path(self) -> Path:
        return self.path / "lease"

    def state(self) -> State:
        """done > running > spoiled > failed > missing: what a relaunch has to know."""
        if self.done():
            return "done"
        if not self.path.exists():
            return "missing"
        if self.holder() is not None:
            return "running"
        if self.fault() is not None:
            return "spoiled"
        return "failed" if self.failure_path.exists() else "missing"

    def done(self) -> bool:
        """Whether there is a record that reads, with the columns of this version."""
        try:
            return self.record().get("metrics_version", 1) == self.metrics_version
        except (FileNotFoundError, UserError):
            return False

    def fault(self) -> str | None:
        """What is wrong with the record that is there."""
        try:
            self.record()
        except FileNotFoundError:
            return None
        except UserError as error:
            return str(error)
        return None

    def holder(self) -> Holder | None:
        """Who computes the run, as far as can be seen from here without waiting; looking leaves no trace."""
        found = look(self.lease_path)
        return None if found is None or found.gone() else found

    @contextmanager
    def claim(self) -> Iterator[Lease | None]:
        """Hold the run, without what an earlier attempt left half written; yields None if another process holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        lease = acquire(self.lease_path)
        if lease is None:
            yield None
            return
        with lease:
            for stale in (*self.path.glob(".trace.*"), *self.path.glob(".lease.*")):
                shutil.rmtree(stale, ignore_errors=True) if stale.is_dir() else stale.unlink(missing_ok=True)
            yield lease

    def job(self) -> Job | None:
        """The cluster job that the run was given to last."""
        path = self.path / "job.txt"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        return Job(*lines) if len(lines) == 3 else None

    def killed(self) -> str:
        """How the process of its last attempt died, which is no fault of its code; empty where it did not."""
        said = self.failure_path.read_text(encoding="utf-8") if self.failure_path.exists() else ""
        return said.removeprefix(KILLED) if said.startswith(KILLED) else ""

    def config(self) -> dict[str, Any]:
        """The resolved config of a run that was begun; empty before."""
        path = self.path / "config.yaml"
        return read_mapping(path) if path.exists() else {}

    def begin(self, run: Run) -> None:
        """Store the resolved config, keep space for the record, and forget an earlier failure."""
        write_atomically(self.path / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(plain(run.values))))
        self._reserve_path.write_bytes(bytes(RESERVE))
        self.failure_path.unlink(missing_ok=True)

    def finish(self, record: Record) -> bool:
        """Store the record, which makes the run done, and drop its checkpoint; False where there was one already."""
        self.release_reserve()
        self.path.mkdir(parents=True, exist_ok=True)
        read_back = json.loads(strict_json(record, indent=None))
        text = json.dumps({**read_back, "digest": _digest(read_back)}, sort_keys=True) + "\n"
        first = store_once(self.record_path, text.encode())
        self.checkpoint_path.unlink(missing_ok=True)
        return first

    @property
    def _reserve_path(self) -> Path:
        return self.path / ".trace.reserve"

    def release_reserve(self) -> None:
        """Give back the space that was kept for the record."""
        self._reserve_path.unlink(missing_ok=True)

    def fail(self, reason: str) -> None:
        write_atomically(self.failure_path, reason)

    def record(self) -> Record:
        """The finished record, as it was computed.

        Raises:
            FileNotFoundError: where there is none.
            UserError: where it does not read, is another run's, or has changed since it was stored.
        """
        try:
            found = json.loads(self.record_path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.record_path} is not a record ({error}): {_AGAIN}") from error
        if not isinstance(found, dict) or "run_id" not in found:
            raise UserError(f"{self.record_path} is not a record: {_AGAIN}")
        if found["run_id"] != self.path.name:
            raise UserError(f"{self.record_path} is the record of run {found['run_id']}: {_AGAIN}")
        record: Record = {key: value for key, value in found.items() if key != "digest"}
        if found.get("digest", _digest(record)) != _digest(record):  # one from before digests has none
            raise UserError(f"{self.record_path} was changed after it was stored: {_AGAIN}")
        return record

    def set_aside(self) -> None:
        """Keep an earlier record under a numbered name, so that the run is computed again; say it of a spoiled one."""
        if not self.record_path.exists():
            return
        fault = self.fault()
        kind = "previous" if fault is None else "spoiled"
        number = 1 + len(list(self.path.glob(f"record.{kind}*.json")))
        aside = self.record_path.rename(self.path / f"record.{kind}{number}.json")
        if fault is not None:
            print(f"{fault}; it is kept as {aside.name}", file=sys.stderr)

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
    """The records of all finished runs in an experiment's folder, with the columns of its version.

    What is spoiled is left out and named on stderr.
    """
    try:
        version: int | None = metrics_version(folder.name)
    except UserError:  # its module is gone: there is no other version
        version = None
    for path in sorted(folder.glob("*/record.json")):
        try:
            record = RunDirectory(path.parent).record()
        except UserError as error:
            print(error, file=sys.stderr)
            continue
        if version is None or record.get("metrics_version", 1) == version:
            yield record


def unwritable(error: OSError, consequence: str = "what is finished is kept") -> UserError:
    """The sentence of every launcher for a store that is full or closed."""
    return UserError(
        f"the run store cannot be written ({error}): free space or permissions, then call the same command again; "
        f"{consequence}"
    )


_AGAIN = "`run` sets it aside and computes it again"


def _digest(record: Record) -> str:
    """SHA-256 of a record as it is read: what is damaged or edited later has another."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
