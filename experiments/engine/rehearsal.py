"""What a grid would cost on this node, from a little of every stage at its real size: hours, memory, disk."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .memory import gpu_peak_bytes, peak_bytes, reset_peaks


class Rehearsed(NamedTuple):
    """One stage: what was done of it, and what all of it would take."""

    name: str
    done: str
    """In words: 512 of 102,770 images."""
    seconds: float
    """That it took here."""
    expected: float
    """Seconds for the whole grid, one after the other."""


class Demand(NamedTuple):
    """Bytes on disk for the whole grid."""

    name: str
    bytes: float


Stage = Callable[[float], Rehearsed]
"""Takes the seconds that it may last; a step that has begun is finished."""


class Rehearsal(NamedTuple):
    """What an experiment's ``rehearsal(configs)`` returns."""

    stages: list[Stage]
    disk: list[Demand]


def streamed(name: str, unit: str, total: float, work: Callable[[], Iterable[int]]) -> Stage:
    """A stage of equal units, such as images: ``work`` yields how many each of its steps did.

    The first step, in which networks are laid out and readers start, is left out of the rate where others follow.
    """

    def stage(seconds: float) -> Rehearsed:
        ends, counts = [time.perf_counter()], []
        for count in work():
            ends.append(time.perf_counter())
            counts.append(count)
            if ends[-1] - ends[0] > seconds:
                break
        first = 1 if len(counts) > 1 else 0
        rate = (ends[-1] - ends[first]) / sum(counts[first:])
        return Rehearsed(name, f"{sum(counts):,} of {total:,.0f} {unit}", ends[-1] - ends[0], rate * total)

    return stage


def growing(name: str, size: int, times: float, work: Callable[[int], object], *, start: int = 256) -> Stage:
    """A stage that is done ``times`` times on ``size`` rows: on twice as many until the next would take too long.

    What is left is extrapolated by the slope between the last two sizes, from 1 to 3 in the logarithm.
    """

    def stage(seconds: float) -> Rehearsed:
        begun, taken = time.perf_counter(), []
        rows = [min(size, start)]
        while True:
            before = time.perf_counter()
            work(rows[-1])
            taken.append(time.perf_counter() - before)
            slope = _slope(rows, taken)
            following = min(size, 2 * rows[-1])
            left = seconds - (time.perf_counter() - begun)
            if following == rows[-1] or taken[-1] * (following / rows[-1]) ** slope > left:
                break
            rows.append(following)
        whole = taken[-1] * (size / rows[-1]) ** slope
        return Rehearsed(name, f"{rows[-1]:,} of {size:,} rows", time.perf_counter() - begun, whole * times)

    return stage


def _slope(rows: list[int], taken: list[float]) -> float:
    """Of the logarithm of time in that of size; 2 while there is one size."""
    if len(rows) < 2:
        return 2.0
    found = math.log(taken[-1] / taken[-2]) / math.log(rows[-1] / rows[-2])
    return min(3.0, max(1.0, found))


def report(rehearsal: Rehearsal, *, seconds: float, num_runs: int, at_once: int) -> Iterator[str]:
    """A line a stage as it is done, then what the grid would take."""
    reset_peaks()
    expected = 0.0
    for stage in rehearsal.stages:
        found = stage(seconds)
        expected += found.expected
        yield f"{found.name:24}{found.done:>32} in {found.seconds:6.1f} s, all of it in {found.expected / 3600:8.2f} h"
    for demand in rehearsal.disk:
        yield f"{demand.name:24}{_size(demand.bytes):>32} on disk"
    gpu = gpu_peak_bytes()
    yield (
        f"{num_runs} runs: {expected / 3600:.2f} h, {expected / 3600 / at_once:.2f} with {at_once} at a time; "
        f"{_size(sum(demand.bytes for demand in rehearsal.disk))} of disk; "
        f"{_size(peak_bytes())} of memory, {'no GPU' if gpu is None else f'{_size(gpu)} of the GPU'}"
    )


def _size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
