"""Cost against sample size: the table `growth`, from the benchmark's record."""

from __future__ import annotations

import numpy as np

from .records import Record
from .table_text import Table

DOMAINNET = 50_416
"""Images of painting's training split, the pool of the active study."""


def growth(records: list[Record]) -> Table:
    """Seconds by size, the slope, and what it says about the size of DomainNet."""
    record = records[0]
    rows, sizes = record["metrics"]["growth"], sorted({row["n"] for row in record["metrics"]["growth"]})
    table = []
    for name in dict.fromkeys(row["estimator"] for row in rows):
        seconds = {row["n"]: row["seconds"] for row in rows if row["estimator"] == name}
        rate = slope(list(seconds), list(seconds.values()))
        largest = max(seconds)
        projected = seconds[largest] * (DOMAINNET / largest) ** rate
        measured = [f"{seconds[n]:.2g}" if n in seconds else "too long" for n in sizes]
        table.append([name, *measured, f"{rate:.2f}", f"{projected:.2g}"])
    caption = (
        f"Seconds of one call on n source and n target samples in {rows[0]['dim']} dimensions, "
        f"{record['machine']['cores']} cores; the slope of log seconds against log n over the upper half of the sizes; "
        f"and the seconds that it projects for n = {DOMAINNET:,}."
    )
    return Table(caption, ["estimator", *(f"n = {n:,}" for n in sizes), "slope", "projected [s]"], table)


def slope(n: list[int], seconds: list[float]) -> float:
    """Of log seconds against log n, over the upper half of the sizes: small ones measure overhead.

    >>> round(slope([1, 2, 4, 8], [9.0, 4.0, 16.0, 64.0]), 6)
    2.0
    """
    if len(n) < 2:
        return float("nan")
    upper = slice(min(len(n) // 2, len(n) - 2), None)
    return float(np.polyfit(np.log(n[upper]), np.log(seconds[upper]), 1)[0])
