"""Tables from stored records alone, as Markdown, LaTeX and CSV.

python -m experiments tables      # rewrites results/tables/ and the generated parts of the README, about a minute
python -m experiments tables --profile paper --output paper/tables      # of another profile, beside the README
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from . import (
    tables_active,
    tables_anchoring,
    tables_excerpt,
    tables_gate,
    tables_growth,
    tables_hours,
    tables_isolation,
    tables_ridge,
    tables_synthetic,
)
from .records import PROFILE, RECORDS, ROOT, Record, with_records
from .table_text import Table, replace_marked, to_markdown, without, write

TABLES = ROOT / "results" / "tables"
README = ROOT / "README.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument("--output", type=Path, help="folder for the tables (default: results/tables)")
    parser.add_argument("--readme", type=Path, help="file with marked parts (default: ours, for cpu without --output)")
    parser.add_argument("--profile", default=PROFILE, help="whose runs are shown: cpu or paper (default: %(default)s)")


def main(arguments: argparse.Namespace) -> None:
    """Write every table whose records exist, and name those that are missing."""
    committed = arguments.output is None and arguments.profile == PROFILE
    readme = arguments.readme or (README if committed else None)
    for label, records, make in with_records(MAKERS, arguments.records, arguments.profile):
        table = make(records)
        write(table, label, arguments.output or TABLES)
        if readme and label in IN_README:
            replace_marked(readme, label, to_markdown(without(table, IN_README[label])))


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


MAKERS: dict[str, tuple[str, Callable[[list[Record]], Table]]] = {
    "ridge-scaling": ("ridge", tables_ridge.ridge_scaling),
    "combined-excerpt": ("synthetic", tables_excerpt.combined_excerpt),
    "rank-power": ("synthetic", tables_synthetic.rank_power),
    "glance": ("synthetic", tables_synthetic.glance),
    "trace-domainnet-main": ("active", tables_active.main),
    "trace-domainnet-combined": ("active", tables_active.combined),
    "active-terms": ("active", tables_active.terms),
    "active-ranks": ("active", tables_active.ranks),
    "gate-tau-main": ("gate", tables_gate.gate_tau_main),
    "gate-tau": ("gate", tables_gate.gate_tau),
    "gate-paired": ("gate", tables_gate.gate_paired),
    "gate-controls": ("gate", tables_gate.gate_controls),
    "coverage": ("synthetic", tables_synthetic.coverage),
    "isolation": ("isolation", tables_isolation.isolation),
    "anchoring": ("anchoring", tables_anchoring.anchoring),
    "benchmark": ("benchmark", benchmark),
    "growth": ("benchmark", tables_growth.growth),
    "hours": ("benchmark", tables_hours.hours),
}
"""Label of the table: the experiment whose records it shows, and the function that makes it."""

IN_README: dict[str, tuple[str, ...]] = {"glance": (), "benchmark": ("value", "relative difference")}
"""Tables that also stand in the README, between markers of their label, without these columns."""
