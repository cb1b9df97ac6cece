"""What the engine itself costs: empty runs a second in one process, and the time to submit a grid to SLURM."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import torch

from ..engine.config import Run
from ..engine.interrupt import uninterrupted
from ..engine.launchers.inline import inline
from ..engine.launchers.slurm import Profile, submit
from ..engine.records import provenance
from .empty import Config

NAME = "experiments.benchmarks.empty"


def empty_grid(count: int) -> list[Run]:
    """Runs that differ in their seed and compute nothing."""
    return [Run(NAME, Config(seed)) for seed in range(count)]


def inline_runs_per_second(count: int = 200) -> float:
    """Empty runs from claim to stored record, one after the other; the process keeps its number of threads."""
    provenance()  # asked of git once a process, whatever the number of runs
    threads = torch.get_num_threads()
    try:
        with tempfile.TemporaryDirectory() as store:
            started = time.perf_counter()
            outcomes = list(inline(empty_grid(count), runs=Path(store)))
            seconds = time.perf_counter() - started
    finally:
        torch.set_num_threads(threads)  # a run sets it to 1, and what is timed next would be slower
    if outcomes != ["computed"] * count:
        raise RuntimeError(f"{outcomes.count('failed')} of {count} empty runs failed")
    return count / seconds


def slurm_submit_seconds(count: int = 1000) -> float | None:
    """From a grid to an array in the queue, every run with its job; None where no cluster answers."""
    if not cluster_answers():
        return None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as store, uninterrupted():
        profile = Profile(runs_per_task=20)
        started = time.perf_counter()
        jobs = submit(empty_grid(count), profile, runs=Path(store), name=NAME)
        seconds = time.perf_counter() - started
        subprocess.run(["scancel", jobs[0].split("_")[0]], check=True)
    return seconds


def cluster_answers() -> bool:
    """Whether SLURM's programs are here and its controller replies."""
    if not shutil.which("sbatch"):
        return False
    return subprocess.run(["sinfo", "--noheader"], capture_output=True, check=False).returncode == 0
