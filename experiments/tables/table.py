"""A finished table as Markdown, LaTeX (booktabs) and CSV."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame

from trace.io.writing import write_atomically

from ..engine.records import Record
from ..engine.registry import Registry

_COMMANDS = {
    ">=": r"$\geq$",
    "<=": r"$\leq$",
    ">": "$>$",
    "<": "$<$",
    "\\": r"\textbackslash{}",
    "%": r"\%",
    "&": r"\&",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "|": r"\textbar{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
"""What LaTeX would read as something else, longest first."""


class Table(NamedTuple):
    """A finished table: every cell is the text that is printed."""

    caption: str
    header: list[str]
    rows: list[list[str]]


table: Registry[Callable[[list[Record]], Table]] = Registry("experiments.tables")
"""``@table("label", "experiment")`` over a function of that experiment's records."""


def write(table: Table, label: str, folder: Path) -> None:
    """``LABEL.md``, ``LABEL.tex`` and ``LABEL.csv``."""
    for suffix, text in (("md", to_markdown(table)), ("tex", to_latex(table, label)), ("csv", to_csv(table))):
        write_atomically(folder / f"{label}.{suffix}", text.rstrip() + "\n")


def without(table: Table, columns: Sequence[str]) -> Table:
    """The table less some columns."""
    kept = [i for i, name in enumerate(table.header) if name not in columns]
    header, *rows = [[line[i] for i in kept] for line in (table.header, *table.rows)]
    return Table(table.caption, header, rows)


def to_text(table: Table) -> str:
    """Aligned columns for a terminal."""
    lines = [table.header, *table.rows]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    rows = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([table.caption, "", *rows])


def to_markdown(table: Table) -> str:
    lines = [table.header, ["---"] * len(table.header), *table.rows]
    body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{table.caption}\n\n{body}"


def to_latex(table: Table, label: str) -> str:
    """A booktabs table that needs nothing but ``booktabs``."""
    lines = [" & ".join(_escape(cell) for cell in line) + r" \\" for line in [table.header, *table.rows]]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering\scriptsize",
            rf"\caption{{{_escape(table.caption)}}}",
            rf"\label{{tab:{label}}}",
            r"\begin{tabular}{" + "l" * len(table.header) + "}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )


def to_csv(table: Table) -> str:
    return DataFrame(table.rows, columns=table.header).to_csv(index=False, lineterminator="\n")


def replace_marked(path: Path, name: str, text: str) -> None:
    """Rewrite what stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    page = path.read_text(encoding="utf-8")
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"{path} must hold {begin} and {end} once each: restore the two markers")
    before, rest = page.split(begin)
    write_atomically(path, before + begin + "\n" + text + "\n" + end + rest.split(end)[1])


def _escape(text: str) -> str:
    return re.sub("|".join(map(re.escape, _COMMANDS)), lambda found: _COMMANDS[found[0]], text)
