"""Cost against sample size: the table `growth`, from the benchmark's record."""

from __future__ import annotations

import inspect

import numpy as np

from trace.estimators import sinkhorn_divergence, wasserstein1
from trace.estimators.sinkhorn import MEMORY_BUDGET

from ..engine.records import Record
from .table import Table, table

DOMAINNET = 50_416
"""Images of painting's training split, the pool of the active study."""

LIMITED = {"Sinkhorn divergence": sinkhorn_divergence, "exact W1": wasserstein1}
"""Estimators that take the mean over subsamples beyond a size of their own."""


@table("growth", "benchmark")
def growth(records: list[Record]) -> Table:
    """Seconds by size, the slope, and what it says about the size of DomainNet."""
    record = records[0]
    rows, sizes = record["metrics"]["growth"], sorted({row["n"] for row in record["metrics"]["growth"]})
    table = []
    for name in dict.fromkeys(row["estimator"] for row in rows):
        seconds = {row["n"]: row["seconds"] for row in rows if row["estimator"] == name}
        rate = slope(list(seconds), list(seconds.values()))
        largest = max(seconds)
        projected = f"{seconds[largest] * (DOMAINNET / largest) ** rate:.2g}"
        if name in LIMITED and _default(name, "max_samples") < DOMAINNET:
            projected = "subsampled"
        measured = [f"{seconds[n]:.2g}" if n in seconds else "too long" for n in sizes]
        table.append([name, *measured, f"{rate:.2f}", projected])
    caption = (
        f"Seconds of one call on n source and n target samples in {rows[0]['dim']} dimensions, "
        f"{record['machine']['cores']} cores; the slope of log seconds against log n over the upper half of the sizes; "
        f"and the seconds that it projects for n = {DOMAINNET:,}. 'subsampled': beyond its own limit an estimator "
        f"is the mean over subsamples: {'; '.join(map(_beyond, LIMITED))}. Sinkhorn's kernels outgrow its memory "
        f"budget of {MEMORY_BUDGET / 2**30:g} GiB between the last two sizes; what does not fit is made anew in each "
        "sweep."
    )
    return Table(caption, ["estimator", *(f"n = {n:,}" for n in sizes), "slope", "projected [s]"], table)


def _default(name: str, option: str) -> int:
    return int(inspect.signature(LIMITED[name]).parameters[option].default)


def _beyond(name: str) -> str:
    limit, draws, size = (_default(name, option) for option in ("max_samples", "num_draws", "subsample"))
    return f"{name} beyond {limit:,}, {draws} of {size:,}"


def slope(n: list[int], seconds: list[float]) -> float:
    """Of log seconds against log n, over the upper half of the sizes: small ones measure overhead.

    >>> round(slope([1, 2, 4, 8], [9.0, 4.0, 16.0, 64.0]), 6)
    2.0
    """
    if len(n) < 2:
        return float("nan")
    upper = slice(min(len(n) // 2, len(n) - 2), None)
    return float(np.polyfit(np.log(n[upper]), np.log(seconds[upper]), 1)[0])
