"""Benchmark cases of choosing what to label, in the form of `experiments.benchmark_cases`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator

from trace.selection import mmdmin, w1min

from .benchmark_cases import Case, Target, unit_features


def selection(size: dict[str, int], generator: Generator) -> Iterator[Case]:
    """One batch from a pool of the size of DomainNet's paintings, close to its photographs; the value is the objective.

    Measured once there, each of the two takes minutes: see that they stay within memory.
    """
    n, m = size.get("n_source", 120_906), size.get("n_pool", 50_416)
    d, count = size.get("d_features", 2048), size.get("count_selected", 250)
    source, pool = unit_features(n, d, 0.0, generator), unit_features(m, d, 0.3, generator)
    shape, small = f"{n} x {m} x {d}, choose {count}", (Target("ours", "bytes", at_most=8e9),)

    def herding() -> float:
        return mmdmin(source, pool, count).objective

    def matching() -> float:
        return w1min(source, pool, count, generator=torch.Generator().manual_seed(0)).objective

    yield Case("selection, mmdmin", shape, {"ours": herding}, small)
    yield Case("selection, w1min", shape, {"ours": matching}, small)
