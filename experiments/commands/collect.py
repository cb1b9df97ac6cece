"""Gather finished runs into the committed records.

    python -m experiments collect
    python -m experiments collect --all --records DIR      # also trials, into a folder of one's own

Reads every ``results/runs/EXPERIMENT/*/record.json`` and writes ``results/records/EXPERIMENT.jsonl``, sorted by config;
records that are there already and have no run directory here are kept, as long as a config asks for them, with the
keys that their experiment got later. Calling it again changes nothing. ``EXPERIMENT.manifest.json`` beside it lists all
runs that the grids ask for, so that tables, figures and claims notice what is missing; it is written for every file of
records, also where no run is here.

A trial with another key (``n=500``) has the profile of the grid it was made from, and would be averaged with it. So
only runs of the grids in ``configs/EXPERIMENT/*.yaml`` are taken, and none of ``smoke``; the others are counted and
stay where they are.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from ..engine.config import (
    CONFIGS,
    experiment_module,
    identity,
    metrics_version,
    read_mapping,
    typed,
    variants,
    whole_grid,
    with_added,
)
from ..engine.errors import UserError
from ..engine.manifests import VariantGrid, grids_of_itself, write_manifest
from ..engine.records import RECORDS, TRIALS, Record, read_records, run_id, write_records
from ..engine.store import RUNS, experiments_in, finished_records


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
    """Counts of every experiment in the store; every file of records gets its manifest."""
    counts = {}
    known: dict[str, dict[str, VariantGrid]] = {}
    for folder in experiments_in(runs):
        if not (finished := [record for record in finished_records(folder) if belongs(record, folder.name)]):
            continue
        path = records / f"{folder.name}.jsonl"
        before = {r["run_id"]: r for r in read_records(path)} if path.exists() else {}
        known[folder.name] = grids(folder.name, [*before.values(), *finished], configs)
        grid = {name for variant in known[folder.name].values() for name in variant.ids}
        version = metrics_version(folder.name)
        current = {name for name, r in before.items() if r.get("metrics_version", 1) == version}
        schema = experiment_module(folder.name).Config
        kept = {
            name: r | {"config": with_added(schema, r["config"])}
            for name, r in before.items()
            if everything or name in current & grid
        }
        taken = {r["run_id"]: r for r in finished if everything or r["run_id"] in grid}
        if after := kept | taken:
            write_records(list(after.values()), path)
        new, dropped = len(set(after) - set(before)), len(set(before) - set(after))
        counts[folder.name] = Counts(new, len(after), len(finished) - len(taken), dropped)
    for path in sorted(records.glob("*.jsonl")):
        stored = read_records(path)
        asked = {} if everything else known.get(path.stem) or grids(path.stem, stored, configs)
        there = {record["run_id"] for record in stored}
        begun = {variant: grid for variant, grid in asked.items() if not there.isdisjoint(grid.ids)}
        write_manifest(path, begun or grids_of_itself(stored))
    return counts


def grids(experiment: str, stored: list[Record], configs: Path) -> dict[str, VariantGrid]:
    """All runs that the variants of an experiment ask for, of the profiles that are stored, but for trials."""
    values = [record["config"] for record in stored]
    profiles = {config.get("profile") for config in values}
    found = {}
    for variant in variants(experiment, configs=configs):
        stated = read_mapping(configs / experiment.split(".")[-1] / f"{variant}.yaml").get("profile", variant)
        if variant not in TRIALS and not profiles.isdisjoint({stated, None}):
            runs = whole_grid(experiment, variant, values, configs=configs)
            found[variant] = VariantGrid(str(runs[0].values.get("profile", "")), [run.run_id for run in runs])
    return found


def belongs(record: Record, experiment: str) -> bool:
    """Whether the id of a record is that of its config; one that does not is named and left out."""
    try:
        config = typed(experiment_module(experiment).Config, record["config"], experiment)
        if run_id(experiment, identity(config)) == record["run_id"]:
            return True
    except (UserError, KeyError):
        pass
    print(f"{experiment}/{record['run_id']} is left out: its config is that of another run", file=sys.stderr)
    return False
