"""The table `benchmark`: ours against its peers, from the benchmark's record."""

from __future__ import annotations

from ..engine.records import Record
from .table import Table, table


@table("benchmark", "benchmark")
def benchmark(records: list[Record]) -> Table:
    """Time and memory ratios of one run."""
    record = records[0]
    rows = []
    for row in record["metrics"]["rows"]:
        rows.append([
            row["case"], row["size"], row["contender"],
            _number(row["seconds"], "{:.3g}"), _number(row["time_ratio"], "{:.2f}"),
            _number(row["peak_bytes"], "{:.0f}", scale=1e-6), _number(row["memory_ratio"], "{:.2f}"),
            _number(row["value"], "{:.6g}"), _number(row["value_difference"], "{:.0e}"),
            "; ".join(_target(target) for target in row["targets"]),
        ])  # fmt: skip
    caption = (
        f"Contenders within one run, {record['machine']['cores']} cores, torch {record['versions']['torch']}. Ratios "
        "are to ours: above 1 we are faster or smaller. Memory is what a contender needs beyond its inputs."
    )
    header = ["case", "size", "contender", "time [s]", "time ratio", "peak [MB]", "peak ratio", "value",
              "relative difference", "target"]  # fmt: skip
    return Table(caption, header, rows)


def _target(target: Record) -> str:
    own = {"bytes": ("peak", 1e-6, " MB"), "seconds": ("time", 1.0, " s")}
    quantity, scale, unit = own.get(target["quantity"], (f"{target['quantity']} ratio", 1.0, ""))
    side, value = (">=", target["at_least"]) if target["at_least"] is not None else ("<=", target["at_most"])
    return f"{quantity} {side} {value * scale:.3g}{unit}: {'met' if target['met'] else 'not met'}"


def _number(value: float | None, form: str, *, scale: float = 1.0) -> str:
    return "n/a" if value is None or value != value else form.format(value * scale)
