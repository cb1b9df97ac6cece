"""Speed and memory of the estimators against their peers, as ratios within one run.

Tables `benchmark` and `growth`; about 17 minutes on two cores with the default profile, half of them for the sizes of
DomainNet. Times are medians of interleaved repetitions in one process. Peak memory is what a contender needs beyond its
inputs, each measured in a fresh process; cases of minutes are timed there, too, in their one call.

    python -m experiments benchmark
    python -m experiments benchmark --case "full size"               # selection and distances at DomainNet's sizes
    python -m experiments benchmark --case ridge --profile smoke     # one case, small, not stored
"""

import argparse
import ctypes
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from trace.io.writing import plain

from ..benchmarks import SIZES, BenchmarkCase
from ..benchmarks.growth import growth
from ..engine.manifests import write_record
from ..engine.memory import peak_bytes, reset_peaks, status_bytes
from ..engine.records import RECORDS, ROOT, Record, provenance, run_id
from ..engine.registry import submodules
from ..tables.benchmark import benchmark
from ..tables.table import to_markdown

_LONG = 5.0
"""Seconds above which a contender is timed once."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", choices=sorted(SIZES), default="cpu", help="sizes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random inputs (default: %(default)s)")
    parser.add_argument("--case", default="", help="only cases whose name contains this; nothing is stored then")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where to store (default: results/records)")
    parser.add_argument("--alone", nargs=2, metavar=("CASE", "CONTENDER"), help=argparse.SUPPRESS)


def main(arguments: argparse.Namespace) -> None:
    """Measure, store one record, and print the table."""
    profile, seed = arguments.profile, arguments.seed
    if arguments.alone:
        print(json.dumps(_here(profile, seed, *arguments.alone)))
        return
    if not (chosen := [case for case in cases(profile) if arguments.case in case.name]):
        raise SystemExit(f"no case has {arguments.case!r} in its name")
    rows = []
    for case in chosen:
        print(f"{case.name} ({case.size})", file=sys.stderr)
        rows += measure(case, profile, seed)
    config = {"seed": seed, "sizes": SIZES[profile]}
    record: Record = {
        "run_id": run_id("benchmark", {"profile": profile, **config}),
        "experiment": "benchmark",
        "profile": profile,
        "config": config,
        "seed": seed,
        "metrics": {"rows": rows},
        **provenance(),
    }
    if not arguments.case:
        print("growth with n", file=sys.stderr)
        record["metrics"]["growth"] = growth(profile, seed)
        write_record(record, arguments.records / "benchmark.jsonl")
    print(to_markdown(benchmark([plain(record)])))


def cases(profile: str) -> list[BenchmarkCase]:
    """All cases of a profile, from every file of `experiments.benchmarks` that has some; none has drawn its inputs."""
    subjects = [module for module in submodules("experiments.benchmarks") if hasattr(module, "cases")]
    return [case for subject in subjects for case in subject.cases(SIZES[profile])]


class MeasuredCall(NamedTuple):
    """One call of a contender in a process of its own."""

    value: float
    seconds: float
    peak: float
    """Bytes of resident memory that it adds; NaN where the system does not tell (not Linux)."""


def measure(case: BenchmarkCase, profile: str, seed: int) -> list[Record]:
    """One row per contender: time, peak memory, value, and whether the promises about it hold."""
    calls = {name: _elsewhere(profile, seed, case.name, name) for name in case.contenders}
    if not case.once:
        values, seconds = _timed(case.calls(torch.Generator().manual_seed(seed)))
        calls = {name: call._replace(value=values[name], seconds=seconds[name]) for name, call in calls.items()}
    ours = next(iter(calls.values()))
    rows = []
    for name, call in calls.items():
        measured = {
            "time": call.seconds / ours.seconds,
            "memory": call.peak / max(ours.peak, 1.0),
            "bytes": call.peak,
            "seconds": call.seconds,
        }
        targets = [
            {**target._asdict(), "met": target.at_least <= measured[target.quantity] <= target.at_most}
            for target in case.targets
            if target.contender == name
        ]
        rows.append(
            {
                "case": case.name,
                "size": case.size,
                "contender": name,
                "seconds": call.seconds,
                "time_ratio": measured["time"],
                "peak_bytes": call.peak,
                "memory_ratio": measured["memory"],
                "value": call.value,
                "value_difference": abs(call.value - ours.value) / max(abs(ours.value), 1e-30),
                "targets": targets,
            }
        )
    return rows


def _timed(contenders: dict[str, Callable[[], float]], rounds: int = 4) -> tuple[dict[str, float], dict[str, float]]:
    """Values and median seconds. The first round warms up; contenders take turns so that noise hits all of them."""
    values: dict[str, float] = {}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, contender in contenders.items():
            if seconds[name] and seconds[name][0] > _LONG:
                continue
            start = time.perf_counter()
            values[name] = contender()
            seconds[name].append(time.perf_counter() - start)
    return values, {name: statistics.median(s[1:] or s) for name, s in seconds.items()}


def _elsewhere(profile: str, seed: int, case: str, contender: str) -> MeasuredCall:
    command = [sys.executable, "-m", "experiments", "benchmark", "--profile", profile, "--seed", str(seed)]
    command += ["--alone", case, contender]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return MeasuredCall(*json.loads(done.stdout))


def _here(profile: str, seed: int, case: str, contender: str) -> MeasuredCall:
    """One measured call, after one at the smoke sizes that loads what is imported late."""
    _named(case, "smoke").calls(torch.Generator())[contender]()
    measured = _named(case, profile).calls(torch.Generator().manual_seed(seed))[contender]
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # give back what is free, or its reuse hides a peak
    before = status_bytes("VmRSS") if reset_peaks() else None
    start = time.perf_counter()
    value = measured()
    seconds = time.perf_counter() - start
    return MeasuredCall(value, seconds, math.nan if before is None else float(max(peak_bytes() - before, 0)))


def _named(name: str, profile: str) -> BenchmarkCase:
    return next(case for case in cases(profile) if case.name == name)
