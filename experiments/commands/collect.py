"""Gather finished runs into the committed records.

    python -m experiments collect
    python -m experiments collect --all      # also runs with keys of one's own, which then enter the tables

Reads every ``results/runs/EXPERIMENT/*/record.json`` and writes ``results/records/EXPERIMENT.jsonl``, sorted by run id;
records that are there already and have no run directory here are kept. Calling it again changes nothing.

A trial with another key (``n=500``) has the profile of the grid it was made from, and would be averaged with it. So
only runs of the grids in ``configs/EXPERIMENT/*.yaml`` are taken; the others are counted and stay where they are.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from ..engine.config import CONFIGS, grid_ids
from ..engine.records import RECORDS, read_records, write_records
from ..engine.store import RUNS, RunDirectory, experiments_in


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where to write (default: results/records)")
    parser.add_argument("--all", action="store_true", dest="everything", help="also runs that are in no config's grid")


def main(arguments: argparse.Namespace) -> None:
    found = collect(arguments.runs, arguments.records, everything=arguments.everything)
    print("\n".join(f"{name}: {counts.text()}" for name, counts in found.items()) or "no finished runs")


class Counts(NamedTuple):
    """What became of an experiment's finished runs."""

    new: int
    total: int
    left_out: int = 0

    def text(self) -> str:
        told = f"{self.new} new, {self.total} in all"
        if not self.left_out:
            return told
        return (
            f"{told}; {self.left_out} left out, in no grid of its configs: give them a YAML variant with a profile of "
            "its own, or take them with --all"
        )


def collect(
    runs: Path = RUNS, records: Path = RECORDS, *, everything: bool = False, configs: Path = CONFIGS
) -> dict[str, Counts]:
    """Counts of every experiment in the store; an experiment without any YAML has no grid, and all its runs count."""
    counts = {}
    for folder in experiments_in(runs):
        found = [RunDirectory(path.parent).record() for path in folder.glob("*/record.json")]
        if not found:
            continue
        path = records / f"{folder.name}.jsonl"
        before = {r["run_id"]: r for r in read_records(path)} if path.exists() else {}
        grid = None if everything else grid_ids(folder.name, [r["config"] for r in found], configs=configs)
        taken = {r["run_id"]: r for r in found if grid is None or r["run_id"] in grid | set(before)}
        after = before | taken
        if after:
            write_records(list(after.values()), path)
        counts[folder.name] = Counts(len(after) - len(before), len(after), len(found) - len(taken))
    return counts
