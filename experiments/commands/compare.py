"""Runs of this machine against the committed records, number by number.

    python -m experiments compare      # after `run`: how many runs agree exactly, within tolerance, or not (seconds)

The committed records are those of git's HEAD, so it does not matter whether `collect` was called in between; with
``--against`` they are those of a folder.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trace.io.writing import plain

from ..engine.errors import MissingFileError, UserError
from ..engine.records import ROOT, Record, git, parse_records, read_records
from ..engine.store import RUNS, experiments_in, finished_records
from ..tables.table import Table, to_text

TOLERANCE = 1e-3
"""Largest difference of a column, in units of its largest entry, that counts as agreement: other processors add up in
another order, and training carries that on."""

Kind = Literal["exact", "close", "differs"]


class Agreement(NamedTuple):
    """How two results of one run compare."""

    kind: Kind
    difference: float
    """The largest of all columns, relative; infinite where something is missing or of another shape."""
    where: str
    """The column that differs most."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")
    parser.add_argument("--against", type=Path, help="a folder of *.jsonl (default: results/records of git's HEAD)")


def main(arguments: argparse.Namespace) -> None:
    table = comparison(arguments.runs, arguments.against)
    if not table.rows:
        raise UserError(f"{arguments.runs} holds no finished run: `python -m experiments run EXPERIMENT` first")
    print(to_text(table))


def comparison(runs: Path, against: Path | None) -> Table:
    """One line an experiment.

    Raises:
        MissingFileError: for a folder to compare with that does not exist.
    """
    if against is not None and not against.is_dir():
        raise MissingFileError(f"{against} is no folder: --against needs one with EXPERIMENT.jsonl, as results/records")
    rows = []
    for folder in experiments_in(runs):
        if not (found := {record["run_id"]: record for record in finished_records(folder)}):
            continue
        recorded = {r["run_id"]: r for r in _committed(folder.name, against)}
        shared = found.keys() & recorded.keys()
        agreements = {name: agreement(recorded[name]["metrics"], found[name]["metrics"]) for name in shared}
        counts = Counter(a.kind for a in agreements.values())
        worst = max(agreements.values(), key=lambda a: a.difference, default=Agreement("exact", 0.0, ""))
        numbers = [len(found), *(counts[kind] for kind in ("exact", "close", "differs")), len(found) - len(shared)]
        largest = f"{worst.difference:.0e} in {worst.where}" if worst.difference else "none"
        rows.append([folder.name, *map(str, [*numbers, len(recorded.keys() - shared)]), largest])
    caption = (
        f"Runs computed here beside the committed records: equal in every stored digit, within {TOLERANCE:g} of each "
        "column's largest entry, or not."
    )
    kinds = ["computed", "exact", "within tolerance", "differ", "not recorded", "not computed"]
    return Table(caption, ["experiment", *kinds, "largest difference"], rows)


def _committed(experiment: str, against: Path | None) -> list[Record]:
    if against is not None:
        path = against / f"{experiment}.jsonl"
        return read_records(path) if path.exists() else []
    if git("rev-parse", "HEAD") is None:
        raise UserError(f"{ROOT} is no git checkout, so nothing is committed: name a folder with --against")
    text = git("show", f"HEAD:results/records/{experiment}.jsonl")
    return [] if text is None else parse_records(text, f"the committed results/records/{experiment}.jsonl")


def agreement(recorded: Mapping[str, Any], found: Mapping[str, Any]) -> Agreement:
    """The worst column decides. Times and memory are no metrics, so nothing of this machine enters."""
    where, worst = max(_gaps(plain(recorded), plain(found), ""), key=lambda found: found[1], default=("", 0.0))
    if worst == 0:
        return Agreement("exact", 0.0, "")
    return Agreement("close" if worst <= TOLERANCE else "differs", worst, where)


def _gaps(a: Any, b: Any, name: str) -> Iterator[tuple[str, float]]:
    """Relative difference of every column: a list of numbers is one, in units of its largest entry."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in sorted(set(a) | set(b)):
            inner = f"{name}.{key}".lstrip(".")
            if key in a and key in b:
                yield from _gaps(a[key], b[key], inner)
            else:
                yield inner, math.inf
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        if all(_number(v) for v in (*a, *b)):
            yield name, _distance(a, b)
        else:
            for i, (left, right) in enumerate(zip(a, b, strict=True)):
                yield from _gaps(left, right, f"{name}[{i}]")
    elif _number(a) and _number(b):
        yield name, _distance([a], [b])
    else:
        yield name, 0.0 if json.dumps(a) == json.dumps(b) else math.inf


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _distance(a: list[float], b: list[float]) -> float:
    apart = max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)
    return apart / max(map(abs, a)) if apart and any(a) else math.inf if apart else 0.0
