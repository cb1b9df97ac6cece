"""Tables from stored records alone, as Markdown, LaTeX and CSV.

python -m experiments tables      # rewrites results/tables/ and the generated part of the README, in seconds
"""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path
from typing import NamedTuple

from .records import RECORDS, ROOT, Record, read_records, write_atomically

TABLES = ROOT / "results" / "tables"
README = ROOT / "README.md"


class Table(NamedTuple):
    """A finished table: every cell is the text that is printed."""

    caption: str
    header: list[str]
    rows: list[list[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument("--output", type=Path, default=TABLES, help="folder for the tables (default: results/tables)")
    parser.add_argument("--readme", type=Path, default=README, help="file whose marked part is rewritten")


def main(arguments: argparse.Namespace) -> None:
    """Write every table whose records exist."""
    table = benchmark(read_records(arguments.records / "benchmark.jsonl"))
    write(table, "benchmark", arguments.output)
    replace_marked(arguments.readme, "benchmark", to_markdown(table))


def benchmark(records: list[Record]) -> Table:
    """Time and memory ratios of the largest profile that was run."""
    record = next((r for r in records if r["profile"] == "cpu"), records[0])
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
    unit = "peak" if target["quantity"] == "bytes" else f"{target['quantity']} ratio"
    scale = 1e-6 if target["quantity"] == "bytes" else 1.0
    side, value = (">=", target["at_least"]) if target["at_least"] is not None else ("<=", target["at_most"])
    shown = f"{value * scale:.3g}" + (" MB" if target["quantity"] == "bytes" else "")
    return f"{unit} {side} {shown}: {'met' if target['met'] else 'not met'}"


def _number(value: float | None, form: str, *, scale: float = 1.0) -> str:
    return "n/a" if value is None or value != value else form.format(value * scale)


def write(table: Table, label: str, folder: Path) -> None:
    """``LABEL.md``, ``LABEL.tex`` and ``LABEL.csv``."""
    for suffix, text in (("md", to_markdown(table)), ("tex", to_latex(table, label)), ("csv", to_csv(table))):
        write_atomically(folder / f"{label}.{suffix}", text.rstrip() + "\n")


def to_markdown(table: Table) -> str:
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{table.caption}\n\n{body}"


def to_latex(table: Table, label: str) -> str:
    """A booktabs table that needs nothing but ``booktabs``."""
    lines = [" & ".join(_escape(cell) for cell in line) + r" \\" for line in [table.header, *table.rows]]
    return "\n".join([
        r"\begin{table}", r"\centering\scriptsize", rf"\caption{{{_escape(table.caption)}}}", rf"\label{{tab:{label}}}",
        r"\begin{tabular}{" + "l" * len(table.header) + "}", r"\toprule", lines[0], r"\midrule", *lines[1:],
        r"\bottomrule", r"\end{tabular}", r"\end{table}",
    ])  # fmt: skip


def to_csv(table: Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows])
    return text.getvalue()


def replace_marked(path: Path, name: str, text: str) -> None:
    """Rewrite what stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    page = path.read_text(encoding="utf-8")
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"{path} must hold {begin} and {end} once each: restore the two markers")
    before, rest = page.split(begin)
    write_atomically(path, before + begin + "\n" + text + "\n" + end + rest.split(end)[1])


def _escape(text: str) -> str:
    for symbol, command in (("\\", r"\textbackslash{}"), ("%", r"\%"), ("&", r"\&"), ("_", r"\_"), ("#", r"\#"),
                            (">=", r"$\geq$"), ("<=", r"$\leq$")):  # fmt: skip
        text = text.replace(symbol, command)
    return text
