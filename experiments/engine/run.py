"""One run from claim to record."""

import errno
import io
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from trace.io.writing import replacement

from .config import Run, experiment_module
from .interrupt import GRACE_SECONDS, Warned
from .leases import Lease
from .memory import gpu_peak_bytes, peak_bytes, reset_peaks
from .records import PROFILE, Record, provenance
from .shared import Value, sealed, shared, unsealed
from .store import RUNS, SHARED, RunDirectory
from .wandb import Mode, Tracker

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""What a disk says on which no further run can be stored."""

Outcome = Literal["computed", "done before", "running elsewhere", "failed", "submitted", "queued before", "missing"]
"""Of a run under a launcher; missing: its task ended without a record or a reason."""


@dataclass(frozen=True)
class Context:
    """What a run may use besides its config."""

    directory: RunDirectory
    tracker: Tracker
    warned: Warned = field(default_factory=Warned)
    lease: Lease | None = None
    """Of the run's directory."""

    def log(self, step: int, **values: float) -> None:
        """A point of the run's curves."""
        self._check_lease()
        self.tracker.log(step, values)

    def save(self, state: dict[str, Any]) -> None:
        """Keep the state of a long training (tensors and plain values) until the run is done; whole or not at all."""
        self._check_lease()
        with replacement(self.directory.checkpoint_path, sync=True) as aside:
            aside.write_bytes(sealed(state))

    def _check_lease(self) -> None:
        """Two that compute one run do not write into each other's curves and checkpoints."""
        if self.lease is not None and self.lease.lost:
            raise LeaseLostError(f"{self.directory.path} is computed by another process now, which took this for gone")

    def checkpoint(self, state: Callable[[], dict[str, Any]]) -> None:
        """Call it after every step: when the cluster has warned, the state is saved here and the attempt ends."""
        self.warned.listen()
        if self.warned.pending is not None:
            self.save(state())
            self.warned.act()
            raise SystemExit(1)  # where nobody ends the process, the kill that follows would

    def shared(
        self, kind: str, key: Mapping[str, Any], compute: Callable[[], Value], *, classes: Sequence[type] = ()
    ) -> Value:
        """What other runs of this store need too: computed by the first of them, `experiments.engine.shared`."""
        return shared(self.directory.path.parents[1] / SHARED, kind, key, compute, classes=classes)

    def keep(self, name: str, **arrays: NDArray[Any]) -> None:
        """``NAME.npz`` beside the record: what later questions need and no table prints."""
        with replacement(self.directory.path / f"{name}.npz") as aside, open(aside, "wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)

    def load(self) -> dict[str, Any] | None:
        """The state that an earlier attempt saved last, on the CPU; None at a first attempt.

        One that was damaged is set aside, and the run starts again.
        """
        path = self.directory.checkpoint_path
        if not path.exists():
            return None
        payload = unsealed(path)
        if payload is None:
            aside = path.replace(path.with_name("checkpoint.damaged.pt"))
            self.tracker.start_again()
            print(f"{path} was damaged and is kept as {aside.name}: the run starts again")
            return None
        return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)


class LeaseLostError(RuntimeError):
    """A run that was paused for so long that another process computes it."""


def threads(run: Run) -> int:
    """The cores that a task was given; one for the committed results, where sums come out in the same order anywhere.

    So the same seed gives the same bits under every launcher.
    """
    return 1 if run.values.get("profile") == PROFILE else int(os.environ.get("SLURM_CPUS_PER_TASK", 1))


def execute(run: Run, *, runs: Path = RUNS, wandb: Mode = "off", grace: float = GRACE_SECONDS) -> Outcome:
    """Compute a run unless it is done or somebody computes it now; what it prints goes to its log.

    A failure is stored with its traceback and does not propagate; Ctrl-C does, and leaves the run missing. A warning
    of the cluster waits at most ``grace`` seconds for the end of a step.

    Raises:
        OSError: if the run store cannot be written.
    """
    directory = RunDirectory.of(run, runs)
    with directory.claim() as lease:
        if lease is None:
            return "running elsewhere"
        if directory.done():
            return "done before"
        directory.set_aside()
        directory.begin(run)
        with (
            open(directory.log_path, "a", encoding="utf-8", buffering=1) as log,
            redirect_stdout(log),
            redirect_stderr(log),
        ):
            try:
                with Warned(grace) as warned:
                    return _compute(run, directory, wandb, warned, lease)
            except Exception as error:
                if isinstance(error, OSError) and error.errno in FULL:
                    raise
                traceback.print_exc()
                if lease.lost:
                    return "running elsewhere"
                directory.fail(traceback.format_exc())
                return "failed"
            finally:
                directory.release_reserve()


def _compute(run: Run, directory: RunDirectory, wandb: Mode, warned: Warned, lease: Lease) -> Outcome:
    torch.set_num_threads(threads(run))
    tracker = Tracker(run, directory, wandb)
    try:
        record = _record(run, Context(directory, tracker, warned, lease))
        first = directory.finish(record)
    except Exception:
        tracker.finish(None)
        raise
    tracker.finish(record["metrics"])
    if not first:
        print("another process has stored the record of this run: that one stays, this one is discarded")
    return "computed" if first else "done before"


def _record(run: Run, context: Context) -> Record:
    """The run's metrics with what they cost and where they come from."""
    origin = provenance()
    reset_peaks()
    started = time.perf_counter()
    metrics = experiment_module(run.experiment).run(run.config, context)
    seconds = time.perf_counter() - started
    if not isinstance(metrics, dict):
        raise TypeError(f"run of {run.experiment} returned {type(metrics).__name__}: it must return a dict of metrics")
    return {
        "run_id": run.run_id,
        "experiment": run.experiment,
        "profile": run.values.get("profile", ""),
        "seed": run.values.get("seed"),
        "config": run.values,
        "metrics_version": run.metrics_version,
        "metrics": metrics,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "seconds": seconds,
        "peak_bytes": peak_bytes(),
        "gpu_peak_bytes": gpu_peak_bytes(),
        **origin,
    }
