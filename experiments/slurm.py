"""SLURM arrays through submitit: one array a grid, several short runs packed into one task.

A task that is preempted or times out is requeued and goes on with the first run of its pack that is not done; a long
run goes on from its own checkpoint. A task that dies without a signal loses its current run; a relaunch computes it.
"""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from .config import Run, read_mapping, typed
from .errors import UserError
from .execute import execute
from .records import ROOT, write_atomically
from .store import RunDirectory
from .tracking import Mode

PROFILES = ROOT / "slurm" / "profiles"


class QueueUnknownError(RuntimeError):
    """The cluster did not say what is in its queue."""


@dataclasses.dataclass(frozen=True)
class Profile:
    """What a task asks the cluster for."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    gres: str | None = None
    """For example ``gpu:1``."""
    cpus_per_task: int = 1
    mem: str | None = None
    """For example ``16GB``."""
    minutes: int = 60
    signal_seconds: int = 90
    """The warning before a timeout: long enough to write a checkpoint."""
    max_timeouts: int = 10
    """How often a task that timed out is requeued."""
    parallel: int = 256
    """Most tasks of an array at the same time."""
    runs_per_task: int = 1
    requeue: bool = True
    """Whether the cluster may requeue tasks that it preempts."""

    def __post_init__(self) -> None:
        if 60 * self.minutes < self.signal_seconds + 120:
            raise UserError(
                f"minutes={self.minutes} is too short for signal_seconds={self.signal_seconds}: SLURM may send the "
                "warning a minute early, and a task needs time to start; leave at least two minutes more"
            )


def load_profile(name: str, folder: Path = PROFILES) -> Profile:
    """``slurm/profiles/NAME.yaml``."""
    path = folder / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise UserError(f"{path} does not exist: --profile is one of {known}")
    return typed(Profile, read_mapping(path), str(path))


class Pack:
    """The work of one array task: runs one after the other, skipping what is done."""

    def __init__(self, runs: Path, wandb: Mode) -> None:
        self.runs, self.wandb = runs, wandb

    def __call__(self, pack: list[Run]) -> list[str]:
        return [execute(run, runs=self.runs, wandb=self.wandb) for run in pack]

    def checkpoint(self, pack: list[Run]) -> Any:
        """What submitit calls on a timeout or preemption: the same pack again; the store knows what is done."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, pack)


def submit(todo: list[Run], profile: Profile, *, runs: Path, wandb: Mode = "off", name: str) -> list[str]:
    """Submit one array with one sbatch call and return its job ids at once; each run remembers its job and log."""
    if not shutil.which("sbatch"):
        raise UserError("sbatch is not on this machine: submit from a login node, or use --launcher local")
    executor = _executor(profile, runs, name)
    packs = _packs(todo, profile)
    try:
        jobs = executor.map_array(Pack(runs.resolve(), wandb), packs)
    except RuntimeError as error:
        raise UserError(f"the cluster refused the array: {error}") from error
    for job, pack in zip(jobs, packs, strict=True):
        for run in pack:
            directory = RunDirectory.of(run, runs).path
            write_atomically(directory / "job.txt", f"{job.job_id}\n{job.paths.stdout}\n", sync=False)
            link = directory / "slurm.out"
            link.unlink(missing_ok=True)
            link.symlink_to(job.paths.stdout)
    return [job.job_id for job in jobs]


def script(todo: list[Run], profile: Profile, *, runs: Path, name: str) -> str:
    """The sbatch script that `submit` would send."""
    from submitit.slurm.slurm import _make_sbatch_string

    parameters = {**_executor(profile, runs, name)._executor.parameters, "map_count": len(_packs(todo, profile))}
    return _make_sbatch_string(command="python -m submitit.core._submit FOLDER", folder=_folder(runs), **parameters)


def queue_states(job_ids: list[str]) -> dict[str, str]:
    """PENDING, RUNNING, ... of the jobs that are still in the queue.

    Raises:
        QueueUnknownError: if the controller does not answer; that says nothing about the jobs.
    """
    if not job_ids:
        return {}
    if not shutil.which("squeue"):
        raise QueueUnknownError("squeue is not on this machine")
    arrays = sorted({job_id.split("_")[0] for job_id in job_ids})
    found = subprocess.run(
        ["squeue", "--noheader", "--array", "--format=%i %T", f"--jobs={','.join(arrays)}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode and "Invalid job id" not in found.stderr:  # which it says of jobs that ended long ago
        raise QueueUnknownError(found.stderr.strip())
    return dict(line.split(maxsplit=1) for line in found.stdout.splitlines() if " " in line)


def _packs(todo: list[Run], profile: Profile) -> list[list[Run]]:
    size = max(1, profile.runs_per_task)
    return [todo[start : start + size] for start in range(0, len(todo), size)]


def _folder(runs: Path) -> str:
    """submitit's own files, one folder an array; hidden, so that it is not taken for an experiment."""
    return str(runs.resolve() / ".slurm" / "%A")


def _executor(profile: Profile, runs: Path, name: str) -> Any:
    import submitit

    executor = submitit.AutoExecutor(folder=_folder(runs), cluster="slurm", slurm_max_num_timeout=profile.max_timeouts)
    executor.update_parameters(
        name=name.split(".")[-1],
        timeout_min=profile.minutes,
        cpus_per_task=profile.cpus_per_task,
        slurm_partition=profile.partition,
        slurm_account=profile.account,
        slurm_qos=profile.qos,
        slurm_gres=profile.gres,
        slurm_mem=profile.mem,
        slurm_signal_delay_s=profile.signal_seconds,
        slurm_array_parallelism=profile.parallel,
        slurm_setup=[f"cd {shlex.quote(str(ROOT))}", f"export PYTHONPATH={shlex.quote(str(ROOT))}:$PYTHONPATH"],
        slurm_additional_parameters={"requeue": True} if profile.requeue else {"no-requeue": True},
    )
    return executor
