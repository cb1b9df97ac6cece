"""The tables `benchmark`, ours against its peers, and `growth`, cost against sample size, from one record."""

import numpy as np
from pandas import DataFrame
from scipy.stats import linregress

from ..engine.records import Record
from .table import Table, table

DOMAINNET = 50_416
"""Images of painting's training split, the pool of the active study."""


@table("benchmark", "benchmark")
def benchmark(records: list[Record]) -> Table:
    """Time and memory ratios of one run."""
    record = records[0]
    sizes = ["time [s]", "time ratio", "peak [MB]", "peak ratio", "value", "relative difference"]
    return Table(
        caption=(
            f"Contenders within one run, {record['machine']['cores']} cores, torch {record['versions']['torch']}. "
            "Ratios are to ours: above 1 we are faster or smaller. Memory is what a contender needs beyond its inputs."
        ),
        header=["case", "size", "contender", *sizes, "target"],
        rows=[
            [
                row["case"],
                row["size"],
                row["contender"],
                _number(row["seconds"], "{:.3g}"),
                _number(row["time_ratio"], "{:.2f}"),
                _number(row["peak_bytes"], "{:.0f}", scale=1e-6),
                _number(row["memory_ratio"], "{:.2f}"),
                _number(row["value"], "{:.6g}"),
                _number(row["value_difference"], "{:.0e}"),
                "; ".join(_target(target) for target in row["targets"]),
            ]
            for row in record["metrics"]["rows"]
        ],
    )


def _target(target: Record) -> str:
    own = {"bytes": ("peak", 1e-6, " MB"), "seconds": ("time", 1.0, " s")}
    quantity, scale, unit = own.get(target["quantity"], (f"{target['quantity']} ratio", 1.0, ""))
    side, value = (">=", target["at_least"]) if target["at_least"] is not None else ("<=", target["at_most"])
    return f"{quantity} {side} {value * scale:.3g}{unit}: {'met' if target['met'] else 'not met'}"


def _number(value: float | None, form: str, *, scale: float = 1.0) -> str:
    return "n/a" if value is None or value != value else form.format(value * scale)


@table("growth", "benchmark")
def growth(records: list[Record]) -> Table:
    """Seconds by size, the slope, and what it says about the size of DomainNet."""
    frame = DataFrame(records[0]["metrics"]["growth"])
    sizes, rows = sorted(set(frame["n"])), []
    for name, part in frame.groupby("estimator", sort=False):
        seconds, rate = part.set_index("n")["seconds"], order_of_growth(part)
        measured = [f"{seconds[n]:.2g}" if n in seconds else "too long" for n in sizes]
        projected = seconds.iloc[-1] * (DOMAINNET / seconds.index[-1]) ** rate
        rows.append([name, *measured, f"{rate:.2f}", f"{projected:.2g}"])
    return Table(
        caption=(
            f"Seconds of one call on n source and n target samples in {frame['dim'][0]} dimensions, "
            f"{records[0]['machine']['cores']} cores; the slope of log seconds against log n over the upper half of "
            f"the sizes; and the seconds that it projects for one call on all of n = {DOMAINNET:,}."
        ),
        header=["estimator", *(f"n = {n:,}" for n in sizes), "slope", "projected [s]"],
        rows=rows,
    )


def order_of_growth(part: DataFrame) -> float:
    """Slope of log seconds against log n, over the upper half of the sizes: small ones measure overhead.

    >>> round(order_of_growth(DataFrame({"n": [1, 2, 4, 8], "seconds": [9.0, 4.0, 16.0, 64.0]})), 6)
    2.0
    """
    if len(part) < 2:
        return float("nan")
    upper = np.log(part[["n", "seconds"]].iloc[min(len(part) // 2, len(part) - 2) :])
    return float(linregress(upper["n"], upper["seconds"]).slope)
