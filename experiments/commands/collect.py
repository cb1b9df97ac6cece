"""Gather finished runs into the committed records.

    python -m experiments collect
    python -m experiments collect --all --records DIR      # also trials, into a folder of one's own

Reads every ``results/runs/EXPERIMENT/*/record.json`` and writes ``results/records/EXPERIMENT.jsonl``, sorted by config;
records that are there already and have no run directory here are kept, as long as a config asks for them. Calling it
again changes nothing.

A trial with another key (``n=500``) has the profile of the grid it was made from, and would be averaged with it. So
only runs of the grids in ``configs/EXPERIMENT/*.yaml`` are taken, and none of ``smoke``; the others are counted and
stay where they are.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

from ..engine.config import CONFIGS, metrics_version, variants, whole_grid
from ..engine.errors import UserError
from ..engine.records import RECORDS, read_records, write_records
from ..engine.store import RUNS, experiments_in, finished_records

TRIALS = ("smoke",)
"""Variants that are no part of the results."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where to write (default: results/records)")
    parser.add_argument("--all", action="store_true", dest="everything", help="also trials; needs --records DIR")


def main(arguments: argparse.Namespace) -> None:
    if arguments.everything and arguments.records.resolve() == RECORDS:
        raise UserError("--all takes trials too, which must not enter results/records: name a folder with --records")
    taken = collect(arguments.runs, arguments.records, everything=arguments.everything)
    print("\n".join(f"{name}: {counts.text()}" for name, counts in taken.items()) or "no finished runs")


class Counts(NamedTuple):
    """What became of an experiment's finished runs."""

    new: int
    total: int
    left_out: int = 0
    dropped: int = 0

    def text(self) -> str:
        told = f"{self.new} new, {self.total} in all"
        if self.dropped:
            told += (
                f"; {self.dropped} dropped, which no config asks for any more or whose columns are of another version"
            )
        if not self.left_out:
            return told
        return (
            f"{told}; {self.left_out} left out, in no grid of its configs: give them a YAML variant of their own, or "
            "take them with --all into a folder of your own"
        )


def collect(
    runs: Path = RUNS, records: Path = RECORDS, *, everything: bool = False, configs: Path = CONFIGS
) -> dict[str, Counts]:
    """Counts of every experiment in the store."""
    counts = {}
    for folder in experiments_in(runs):
        if not (finished := list(finished_records(folder))):
            continue
        path = records / f"{folder.name}.jsonl"
        before = {r["run_id"]: r for r in read_records(path)} if path.exists() else {}
        values = [r["config"] for r in (*before.values(), *finished)]
        grid = {
            run.run_id
            for variant in variants(folder.name, configs=configs)
            if variant not in TRIALS
            for run in whole_grid(folder.name, variant, values, configs=configs)
        }
        version = metrics_version(folder.name)
        current = {name for name, r in before.items() if r.get("metrics_version", 1) == version}
        kept = before if everything else {name: before[name] for name in current & grid}
        taken = {r["run_id"]: r for r in finished if everything or r["run_id"] in grid}
        if after := kept | taken:
            write_records(list(after.values()), path)
        new, dropped = len(set(after) - set(before)), len(set(before) - set(after))
        counts[folder.name] = Counts(new, len(after), len(finished) - len(taken), dropped)
    return counts
