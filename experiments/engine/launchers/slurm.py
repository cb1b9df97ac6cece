"""SLURM arrays through submitit: one array a grid, several short runs packed into one task.

A task that is preempted or times out is requeued and goes on with the first run of its pack that is not done, a run
that takes steps from the step at which it was warned. Every run has a process of its own: one that is killed costs that
run alone, and the rest of the pack goes on. A task that is killed as a whole leaves its runs to a relaunch, with the
cluster's word about why, `experiments.engine.scheduler`. Tasks run the code that was submitted.
"""

import argparse
import dataclasses
import multiprocessing
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from trace.io.writing import write_atomically

from ..config import Run, read_mapping, typed
from ..deaths import BY_HAND, note_death, refusal
from ..errors import UserError
from ..interrupt import GRACE_SECONDS, WARNINGS, end_with_the_parent, uninterrupted
from ..records import ROOT
from ..run import Outcome, execute
from ..scheduler import QueueUnknownError, TaskEnding, endings, queue_states
from ..store import Job, RunDirectory, State, unwritable
from ..submitted import keep_tree
from ..wandb import Mode
from . import LaunchPlan
from .local import lost

CLUSTERS = ROOT / "slurm" / "profiles"
DEFAULT_CLUSTER = "cpu"
WAIT_SECONDS = 2.0


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
    """Submit as one array what is not in the queue; with ``wait``, follow it to its end and submit again what died.

    Ctrl-C leaves the array in the queue.
    """
    chosen, directories = load_cluster(cluster or DEFAULT_CLUSTER), [RunDirectory.of(run, runs) for run in todo]
    outcomes: dict[Path, Outcome] = {}
    jobs = _queued_jobs(directories)
    before = {directory.path for directory, job in zip(directories, jobs, strict=True) if job}
    left = [run for run, job in zip(todo, jobs, strict=True) if not job]
    following = [job for job in jobs if job]
    try:
        while left := _admitted(left, chosen, runs):
            with uninterrupted():
                following += (submitted := submit(left, chosen, runs=runs, wandb=wandb))
            tasks = f"{len(submitted)} tasks of array {submitted[0].split('_')[0]}"
            print(f"{len(left)} runs in {tasks}; `status` follows them", file=sys.stderr)
            outcomes |= dict.fromkeys((RunDirectory.of(run, runs).path for run in left), "submitted")
            if not wait:
                break
            _wait_for(following)
            left = _dead(left, runs)
        if wait and following:
            _wait_for(following)
    except KeyboardInterrupt:
        raise SystemExit(_interruption(following)) from None
    outcomes |= dict.fromkeys(before, "queued before")
    for directory in directories:
        yield _OUTCOMES[directory.state()] if wait else outcomes.get(directory.path, "failed")


def _queued_jobs(directories: list[RunDirectory]) -> list[str]:
    """The job of every run that waits or is computed in the queue now; one that failed there is submitted again."""
    found = {directory.path: job.id for directory in directories if (job := directory.job())}
    try:
        queued = queue_states(found.values())
    except QueueUnknownError as error:
        raise UserError(f"the queue does not answer ({error}), and may hold these runs: call again later") from error
    waiting = {path: job for path, job in found.items() if job in queued}
    return [
        waiting.get(directory.path, "") if directory.state() in ("missing", "running") else ""
        for directory in directories
    ]


def _admitted(left: list[Run], cluster: Cluster, runs: Path) -> list[Run]:
    """Those that may be submitted; of the others the reason is stored and said."""
    ended = _deaths(left, runs)
    admitted, refused = [], Counter[str]()
    for run in left:
        directory = RunDirectory.of(run, runs)
        if death := ended.get(directory.path):
            note_death(directory, death)
        if reason := refusal(directory, cluster.mem or ""):
            directory.fail(reason)
            refused[reason] += 1
        else:
            admitted.append(run)
    for reason, count in refused.items():
        print(f"{count} runs are not submitted again: {reason}", file=sys.stderr)
    return admitted


def _deaths(some: list[Run], runs: Path) -> dict[Path, TaskEnding]:
    """Of runs whose last task has ended without a record, and without a reason of their own."""
    directories = [RunDirectory.of(run, runs) for run in some]
    jobs = {d.path: job for d in directories if (job := d.job()) and (d.state() == "missing" or d.killed())}
    known = endings(jobs.values())
    return {path: known[job.id] for path, job in jobs.items()}


def _dead(some: list[Run], runs: Path) -> list[Run]:
    """Those to be submitted again without being asked: what was cancelled is not."""
    died = _deaths(some, runs)
    again = {path for path, death in died.items() if death.state != BY_HAND}
    return [run for run in some if RunDirectory.of(run, runs).path in again]


_LONGER = "raise minutes in the cluster's profile, or lower runs_per_task, then call again"

_OUTCOMES: dict[State, Outcome] = {
    "done": "computed",
    "running": "running elsewhere",
    "failed": "failed",
    "spoiled": "missing",
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


@dataclasses.dataclass(frozen=True)
class Pack:
    """The work of one array task: runs one after the other, skipping what is done."""

    runs: Path
    wandb: Mode
    grace: float

    def __call__(self, pack: list[Run]) -> list[str]:
        from submitit.core.utils import UncompletedJobError

        try:
            return [self._apart(run) for run in pack]
        except UncompletedJobError:
            for directory in (RunDirectory.of(run, self.runs) for run in pack):
                if directory.state() == "missing":
                    directory.fail(f"its task reached its time limit more often than max_timeouts allows: {_LONGER}")
            raise

    def _apart(self, run: Run) -> Outcome:
        """Compute a run in a process of its own; a warning is passed on to it, and acts here when it has ended."""
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=self._compute, args=(there, run))
        received: list[signal.Signals] = []

        def pass_on(number: int, _: FrameType | None) -> None:
            received.append(signal.Signals(number))
            with suppress(ProcessLookupError):
                os.kill(process.pid or 0, number)

        mask = signal.pthread_sigmask(signal.SIG_BLOCK, WARNINGS)
        before = {number: signal.signal(number, pass_on) for number in WARNINGS}
        try:
            process.start()
            there.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                message: Outcome | OSError | None = here.recv()
            except EOFError:
                message = None
            process.join()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for number, handler in before.items():
                signal.signal(number, handler)
        if received:
            handler = before[received[0]]
            if callable(handler):
                handler(received[0], None)  # submitit's: it requeues the task and ends it
            raise SystemExit(1)
        if isinstance(message, OSError):
            raise message
        return message or lost(run, self.runs, process.exitcode or 0)

    def _compute(self, result: Connection, run: Run) -> None:
        """In the child. A run that takes no steps may use the time between SIGTERM and the kill that follows."""
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WARNINGS)
        end_with_the_parent(signal.SIGUSR2)
        try:
            result.send(execute(run, runs=self.runs, wandb=self.wandb, grace=self.grace))
        except OSError as error:
            result.send(error)

    def checkpoint(self, pack: list[Run]) -> Any:
        """What submitit calls on a timeout or preemption: the same pack again; the store knows what is done."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, pack)


def submit(todo: list[Run], cluster: Cluster, *, runs: Path, wandb: Mode = "off") -> list[str]:
    """Submit one array with one sbatch call and return its job ids at once; each run remembers its job and log.

    An array whose files cannot be written is withdrawn: its tasks would find nothing to do, and a relaunch loses
    nothing.
    """
    from submitit import SlurmExecutor

    if not shutil.which("sbatch"):
        raise UserError("sbatch is not on this machine: submit from a login node, or use --launcher local")
    title = f"{_name(todo)}-{uuid.uuid4().hex[:8]}"
    packs = _packs(todo, cluster)
    work = Pack(runs.resolve(), wandb, min(GRACE_SECONDS, cluster.signal_seconds / 2))
    executor = SlurmExecutor(folder=_folder(runs), max_num_timeout=cluster.max_timeouts)
    try:
        executor.update_parameters(**_parameters(cluster, title, keep_tree(runs.resolve() / ".slurm" / "code")))
        jobs = executor.map_array(work, packs)
        for job, pack in zip(jobs, packs, strict=True):
            for run in pack:
                _remember(RunDirectory.of(run, runs).path, Job(job.job_id, str(job.paths.stdout), cluster.mem or ""))
    except RuntimeError as error:
        raise UserError(f"the cluster refused the array: {error}") from error
    except OSError as error:
        raise unwritable(error, _withdraw(title)) from error
    return [job.job_id for job in jobs]


def _remember(directory: Path, job: Job) -> None:
    write_atomically(directory / "job.txt", "\n".join(job) + "\n", sync=False)
    link = directory / "slurm.out"
    link.unlink(missing_ok=True)
    link.symlink_to(job.log)


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
        **_parameters(cluster, _name(todo), ROOT),
    )


def _packs(todo: list[Run], cluster: Cluster) -> list[list[Run]]:
    size = max(1, cluster.runs_per_task)
    return [todo[start : start + size] for start in range(0, len(todo), size)]


def _name(todo: list[Run]) -> str:
    return todo[0].experiment.split(".")[-1]


def _folder(runs: Path) -> str:
    """submitit's own files, one folder an array; hidden, so that it is not taken for an experiment."""
    return str(runs.resolve() / ".slurm" / "%A")


def _parameters(cluster: Cluster, title: str, code: Path) -> dict[str, Any]:
    """A cluster in the words of sbatch; tasks import from ``code``, and stand where they were submitted."""
    paths = ":".join(shlex.quote(str(path)) for path in dict.fromkeys((code, ROOT)))
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
        "setup": [
            f"cd {shlex.quote(str(ROOT))}",
            "export PYTHONSAFEPATH=1",
            f"export PYTHONPATH={paths}:$PYTHONPATH",
        ],
        "additional_parameters": {"requeue": True} if cluster.requeue else {"no-requeue": True},
    }
