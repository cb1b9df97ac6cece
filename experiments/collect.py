"""Gather finished runs into the committed records.

    python -m experiments collect

Reads every ``results/runs/EXPERIMENT/*/record.json`` and writes ``results/records/EXPERIMENT.jsonl``, sorted by run id;
records that are there already and have no run directory here are kept. Calling it again changes nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .records import RECORDS, read_records, write_records
from .store import RUNS, RunDirectory, experiments_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where to write (default: results/records)")


def main(arguments: argparse.Namespace) -> None:
    counts = collect(arguments.runs, arguments.records)
    print(
        "\n".join(f"{name}: {new} new, {total} in all" for name, (new, total) in counts.items()) or "no finished runs"
    )


def collect(runs: Path = RUNS, records: Path = RECORDS) -> dict[str, tuple[int, int]]:
    """New and all records of every experiment in the store."""
    counts = {}
    for folder in experiments_in(runs):
        found = [RunDirectory(path.parent).record() for path in folder.glob("*/record.json")]
        if not found:
            continue
        path = records / f"{folder.name}.jsonl"
        before = {r["run_id"]: r for r in read_records(path)} if path.exists() else {}
        after = before | {r["run_id"]: r for r in found}
        write_records(list(after.values()), path)
        counts[folder.name] = (len(after) - len(before), len(after))
    return counts
