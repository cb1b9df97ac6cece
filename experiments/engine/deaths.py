"""Tasks of a run that ended without a record: how, and whether the run is submitted once more."""

import json
from typing import NamedTuple

from trace.io.writing import write_atomically

from .scheduler import OUT_OF_MEMORY, TaskEnding
from .store import RunDirectory

ATTEMPTS = {OUT_OF_MEMORY: 1, "TIMEOUT": 2, "NODE_FAIL": 10, "BOOT_FAIL": 10, "PREEMPTED": 10}
"""How often a run is submitted with the same memory while its tasks end in this way."""
OTHER_ATTEMPTS = 3
"""The same for any other way: killed, or ended without a word."""
BY_HAND = "CANCELLED"
"""Is no fault of the run: a relaunch submits it, however often."""
BYSTANDER = "BYSTANDER"
"""Of a run that was not begun when its task ran out of memory: another run of the pack took it."""


class Death(NamedTuple):
    """One task of a run that left no record."""

    job: str
    state: str
    said: str
    """Its ending in words."""
    log: str
    mem: str


def note_death(directory: RunDirectory, ended: TaskEnding) -> None:
    """Remember how the last task of a run ended, once for every task."""
    job, noted = directory.job(), _noted(directory)
    if job is not None and all(death.job != job.id for death in noted):
        blameless = ended.state == OUT_OF_MEMORY and not directory.config()
        death = Death(
            job.id, BYSTANDER if blameless else ended.state, directory.killed() or str(ended), job.log, job.mem
        )
        lines = [json.dumps(known._asdict()) + "\n" for known in (*noted, death)]
        write_atomically(directory.path / "deaths.jsonl", "".join(lines))


def refusal(directory: RunDirectory, mem: str) -> str:
    """Why a run is not submitted once more with so much memory; empty where it is."""
    deaths = [death for death in _noted(directory) if death.mem == mem and death.state != BY_HAND]
    if not deaths:
        return ""
    last = deaths[-1]
    times = sum(death.state == last.state for death in deaths)
    if times < ATTEMPTS.get(last.state, OTHER_ATTEMPTS):
        return ""
    remedy = f"raise mem{mem and f'={mem}'} in the cluster's profile" if last.state == OUT_OF_MEMORY else "see its log"
    often = f" as {times - 1} before it" if times > 1 else ""
    return (
        f"task {last.job} {last.said}{often} (log: {last.log}): {remedy}, then call again; `forget` deletes "
        "such runs, and they start afresh"
    )


def _noted(directory: RunDirectory) -> list[Death]:
    """What was noted; what cannot be read costs an attempt more."""
    path = directory.path / "deaths.jsonl"
    try:
        return [Death(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return []
