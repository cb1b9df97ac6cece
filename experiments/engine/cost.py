"""What runs will cost, from what stored records of the same experiment and profile say."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from .config import Run
from .records import RECORDS, Record, read_records
from .store import finished_records


class Cost(NamedTuple):
    """Of some runs together."""

    seconds: float
    """One after the other."""
    bytes: float
    """Of their records."""


def expected_cost(todo: list[Run], *, runs: Path, records: Path = RECORDS) -> Cost | None:
    """A run that has a record costs what it did, any other run the mean of its profile; None without any record."""
    profiles = {run.values.get("profile", "") for run in todo}
    known = {
        record["run_id"]: Cost(record["seconds"], len(json.dumps(record)))
        for experiment in {run.experiment for run in todo}
        for record in _stored(experiment, runs, records)
        if record["profile"] in profiles
    }
    if not known:
        return None
    mean = Cost(*map(fmean, zip(*known.values(), strict=True)))
    return Cost(*map(sum, zip(*(known.get(run.run_id, mean) for run in todo), strict=True)))


def _stored(experiment: str, runs: Path, records: Path) -> Iterator[Record]:
    path = records / f"{experiment}.jsonl"
    yield from read_records(path) if path.exists() else []
    yield from finished_records(runs / experiment)
