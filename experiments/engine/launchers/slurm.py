"""SLURM arrays through submitit: one array a grid, several short runs packed into one task.

A task that is preempted or times out is requeued and goes on with the first run of its pack that is not done, a run
that takes steps from the step at which it was warned. A task that dies without a signal loses its current run; a
relaunch computes it.
"""

import argparse
import dataclasses
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trace.io.writing import write_atomically

from ..config import Run, read_mapping, typed
from ..errors import UserError
from ..interrupt import GRACE_SECONDS, uninterrupted
from ..records import ROOT
from ..run import Outcome, execute
from ..store import RunDirectory, State, unwritable
from ..wandb import Mode
from . import LaunchPlan

CLUSTERS = ROOT / "slurm" / "profiles"
DEFAULT_CLUSTER = "cpu"
WAIT_SECONDS = 2.0


class QueueUnknownError(RuntimeError):
    """The cluster did not say what is in its queue."""


@dataclasses.dataclass(frozen=True)
class Cluster:
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


def load_cluster(name: str, folder: Path = CLUSTERS) -> Cluster:
    """``slurm/profiles/NAME.yaml``."""
    path = folder / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise UserError(f"{path} does not exist: --cluster is one of {known}")
    return typed(Cluster, read_mapping(path), str(path))


def add_arguments(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--cluster", metavar="NAME", help=f"slurm/profiles/NAME.yaml (default: {DEFAULT_CLUSTER})")
    parser.add_argument("--wait", action="store_true", help="until the array has left the queue (default: return)")


def plan(todo: list[Run], *, runs: Path, cluster: str | None = None, wait: bool = False) -> LaunchPlan:
    """The array with its sbatch script; no cluster is needed to see it."""
    chosen = load_cluster(cluster or DEFAULT_CLUSTER)
    return LaunchPlan(len(_packs(todo, chosen)), chosen.parallel, script(todo, chosen, runs=runs) if todo else "")


def launch(
    todo: list[Run], *, runs: Path, wandb: Mode = "off", cluster: str | None = None, wait: bool = False
) -> Iterator[Outcome]:
    """Submit one array; with ``wait``, follow it to its end. Ctrl-C leaves the array in the queue."""
    jobs: list[str] = []
    try:
        with uninterrupted():
            jobs = submit(todo, load_cluster(cluster or DEFAULT_CLUSTER), runs=runs, wandb=wandb)
        array = jobs[0].split("_")[0]
        print(f"{len(todo)} runs in {len(jobs)} tasks of array {array}; `status` follows them", file=sys.stderr)
        if wait:
            _wait_for(jobs)
    except KeyboardInterrupt:
        raise SystemExit(_interruption(jobs)) from None
    for run in todo:
        yield _OUTCOMES[RunDirectory.of(run, runs).state()] if wait else "submitted"


_OUTCOMES: dict[State, Outcome] = {
    "done": "computed",
    "running": "running elsewhere",
    "failed": "failed",
    "missing": "missing",
}


def _interruption(jobs: list[str]) -> str:
    if not jobs:
        return "interrupted: nothing was submitted"
    array = jobs[0].split("_")[0]
    return f"interrupted: array {array} goes on in the queue; `status` follows it, `scancel {array}` stops it"


def _wait_for(jobs: list[str]) -> None:
    """Until the queue says that it holds none of them; no answer is no reason to stop."""
    while True:
        time.sleep(WAIT_SECONDS)
        try:
            if not queue_states(jobs):
                return
        except QueueUnknownError as error:
            print(f"the queue does not answer ({error}), asking again", file=sys.stderr)


class Pack:
    """The work of one array task: runs one after the other, skipping what is done."""

    def __init__(self, runs: Path, wandb: Mode, grace: float) -> None:
        self.runs, self.wandb, self.grace = runs, wandb, grace

    def __call__(self, pack: list[Run]) -> list[str]:
        return [execute(run, runs=self.runs, wandb=self.wandb, grace=self.grace) for run in pack]

    def checkpoint(self, pack: list[Run]) -> Any:
        """What submitit calls on a timeout or preemption: the same pack again; the store knows what is done."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, pack)


def submit(todo: list[Run], cluster: Cluster, *, runs: Path, wandb: Mode = "off") -> list[str]:
    """Submit one array with one sbatch call and return its job ids at once; each run remembers its job and log.

    An array whose files cannot be written is withdrawn: its tasks would find nothing to do, and a relaunch loses
    nothing.
    """
    import submitit

    if not shutil.which("sbatch"):
        raise UserError("sbatch is not on this machine: submit from a login node, or use --launcher local")
    title = f"{_name(todo)}-{uuid.uuid4().hex[:8]}"
    packs = _packs(todo, cluster)
    work = Pack(runs.resolve(), wandb, min(GRACE_SECONDS, cluster.signal_seconds / 2))
    executor = submitit.SlurmExecutor(folder=_folder(runs), max_num_timeout=cluster.max_timeouts)
    executor.update_parameters(**_parameters(cluster, title))
    try:
        jobs = executor.map_array(work, packs)
        for job, pack in zip(jobs, packs, strict=True):
            for run in pack:
                _remember(RunDirectory.of(run, runs).path, job.job_id, str(job.paths.stdout))
    except RuntimeError as error:
        raise UserError(f"the cluster refused the array: {error}") from error
    except OSError as error:
        raise unwritable(error, _withdraw(title)) from error
    return [job.job_id for job in jobs]


def _remember(directory: Path, job_id: str, log: str) -> None:
    write_atomically(directory / "job.txt", f"{job_id}\n{log}\n", sync=False)
    link = directory / "slurm.out"
    link.unlink(missing_ok=True)
    link.symlink_to(log)


def _withdraw(title: str) -> str:
    """Cancel what was submitted under a name that only this submission has, and say what is in the queue now."""
    done = subprocess.run(["scancel", "--me", f"--name={title}"], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"stop what may have been submitted with `scancel --me --name={title}`"
    return "nothing is left in the queue"


def script(todo: list[Run], cluster: Cluster, *, runs: Path) -> str:
    """The sbatch script that `submit` would send; no cluster is needed to see it."""
    from submitit.slurm.slurm import _make_sbatch_string

    tasks = len(_packs(todo, cluster))
    return _make_sbatch_string(
        command=f"{shlex.quote(sys.executable)} -u -m submitit.core._submit {shlex.quote(_folder(runs))}",
        folder=_folder(runs),
        map_count=tasks if tasks > 1 else None,
        **_parameters(cluster, _name(todo)),
    )


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
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode and "Invalid job id" not in found.stderr:  # which it says of jobs that ended long ago
        raise QueueUnknownError(found.stderr.strip())
    return dict(line.split(maxsplit=1) for line in found.stdout.splitlines() if " " in line)


def _packs(todo: list[Run], cluster: Cluster) -> list[list[Run]]:
    size = max(1, cluster.runs_per_task)
    return [todo[start : start + size] for start in range(0, len(todo), size)]


def _name(todo: list[Run]) -> str:
    return todo[0].experiment.split(".")[-1]


def _folder(runs: Path) -> str:
    """submitit's own files, one folder an array; hidden, so that it is not taken for an experiment."""
    return str(runs.resolve() / ".slurm" / "%A")


def _parameters(cluster: Cluster, title: str) -> dict[str, Any]:
    """A cluster in the words of sbatch."""
    return {
        "job_name": title,
        "time": cluster.minutes,
        "cpus_per_task": cluster.cpus_per_task,
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "gres": cluster.gres,
        "mem": cluster.mem,
        "signal_delay_s": cluster.signal_seconds,
        "array_parallelism": cluster.parallel,
        "setup": [f"cd {shlex.quote(str(ROOT))}", f"export PYTHONPATH={shlex.quote(str(ROOT))}:$PYTHONPATH"],
        "additional_parameters": {"requeue": True} if cluster.requeue else {"no-requeue": True},
    }
