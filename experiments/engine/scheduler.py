"""What SLURM says about jobs: those in its queue, and how the others ended."""

import re
import shutil
import signal
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from .interrupt import ending
from .store import Job

OUT_OF_MEMORY = "OUT_OF_MEMORY"


class QueueUnknownError(RuntimeError):
    """The cluster did not say what is in its queue."""


class TaskEnding(NamedTuple):
    """How a task ended that is no longer in the queue."""

    state: str
    """SLURM's word: COMPLETED, FAILED, CANCELLED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, ..."""
    code: int = 0
    """Of its process; negative for a signal."""

    def __str__(self) -> str:
        return _WORDS.get(self.state, ending(self.code))


_WORDS = {
    "BOOT_FAIL": "lost its node, which did not start",
    "CANCELLED": "was cancelled",
    "DEADLINE": "reached its deadline",
    "NODE_FAIL": "lost its node",
    OUT_OF_MEMORY: "ran out of memory",
    "PREEMPTED": "was preempted and not requeued",
    "TIMEOUT": "reached its time limit",
    "UNKNOWN": "ended, and the cluster does not know any more why",
}


def queue_states(job_ids: Collection[str]) -> dict[str, str]:
    """PENDING, RUNNING, ... of the jobs that are still in the queue.

    Raises:
        QueueUnknownError: if the controller does not answer; that says nothing about the jobs.
    """
    if not job_ids:
        return {}
    if not shutil.which("squeue"):
        raise QueueUnknownError("squeue is not on this machine")
    found = _call("squeue", "--noheader", "--array", "--format=%i %T", f"--jobs={','.join(_arrays(job_ids))}")
    if found.returncode and "Invalid job id" not in found.stderr:  # which it says of jobs that ended long ago
        raise QueueUnknownError(found.stderr.strip())
    return dict(line.split(maxsplit=1) for line in found.stdout.splitlines() if " " in line)


def endings(jobs: Collection[Job]) -> dict[str, TaskEnding]:
    """How jobs ended that have left the queue: the controller's word, or later that of the accounting, if there is one.

    A job of which neither knows anything has the state UNKNOWN. Where a job was killed and its log says that it was for
    lack of memory, the log is right: SLURM has no such state where it kills a step and not the job.
    """
    ids = {job.id for job in jobs}
    known = dict(entry for array in _arrays(ids) for entry in _of_controller(array))
    if forgotten := sorted(ids - known.keys()):
        known |= dict(_of_accounting(forgotten))
    return {job.id: _with_log(known.get(job.id, TaskEnding("UNKNOWN")), job.log) for job in jobs}


def _with_log(ended: TaskEnding, log: str) -> TaskEnding:
    killed = ended.state == "UNKNOWN" or ended.code == -signal.SIGKILL
    return TaskEnding(OUT_OF_MEMORY, ended.code) if killed and _short_of_memory(log) else ended


def _short_of_memory(log: str) -> bool:
    """Whether SLURM's own lines at the end of a task's log, or of its errors, say so."""
    for path in (Path(log), Path(log).with_suffix(".err")):
        if path.is_file():
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL))
                if _MEMORY.search(file.read().decode(errors="replace")):
                    return True
    return False


_TAIL = 2**16
_MEMORY = re.compile(r"^slurmstepd.*(exceeded (job |step )?memory limit|oom.kill event)", re.IGNORECASE | re.MULTILINE)


def _of_controller(array: str) -> Iterator[tuple[str, TaskEnding]]:
    """From ``scontrol``, which knows a job for some minutes after its end."""
    if shutil.which("scontrol"):
        for line in _call("scontrol", "--oneliner", "show", "job", array).stdout.splitlines():
            said = dict(re.findall(r"(\w+)=(\S*)", line))
            if {"JobId", "JobState", "ExitCode"} <= said.keys():
                job = f"{said['ArrayJobId']}_{said['ArrayTaskId']}" if "ArrayTaskId" in said else said["JobId"]
                yield job, TaskEnding(said["JobState"], _code(said["ExitCode"]))


def _of_accounting(job_ids: Collection[str]) -> Iterator[tuple[str, TaskEnding]]:
    """From ``sacct``, which says nothing where there is no accounting."""
    if shutil.which("sacct"):
        options = ["--noheader", "--parsable2", "--allocations", "--format=JobID,State,ExitCode"]
        for line in _call("sacct", *options, f"--jobs={','.join(job_ids)}").stdout.splitlines():
            if line.count("|") == 2:
                job, state, code = line.split("|")
                yield job, TaskEnding(state.split()[0], _code(code))  # CANCELLED by 1000


def _code(text: str) -> int:
    """``EXIT:SIGNAL``; a shell makes 128 + the signal of it.

    >>> _code("0:9"), _code("137:0"), _code("2:0")
    (-9, -9, 2)
    """
    code, signal = (int(part) for part in text.split(":"))
    return -signal if signal else 128 - code if 128 < code < 193 else code


def _arrays(job_ids: Collection[str]) -> list[str]:
    return sorted({job_id.split("_")[0] for job_id in job_ids})


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
