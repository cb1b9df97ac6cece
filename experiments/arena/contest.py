"""Where a score stands among all that the records hold, on every replication of the arena."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from trace.stats.jackknife import StudentInterval

from ..analysis.cells import interval
from ..analysis.gate import REPLICATED_AT, SCORES, TABLES_ALONE, area, both_kinds, correlation, gate_frame, lead
from ..analysis.replications import replication_title
from ..engine.errors import UserError
from ..engine.records import ROOT, Record
from ..tables.table import Table
from .cases import SCALARS, Bout
from .worker import FAILED

OWN = "own"
"""Column of the score that is tried."""
LABELS = {**SCORES, **TABLES_ALONE, OWN: "the new score"}


def scored(script: Path, bouts: list[Bout], *, seconds: float = 600) -> DataFrame:
    """The script's score of every case, computed by another process: ``title``, ``seed``, ``name``, `OWN`.

    Raises:
        UserError: where the script fails, takes too long, or gives something that is no number.
    """
    if not script.is_file():
        raise UserError(f"{script} is no file: name one that defines score(case), see experiments/arena/README.md")
    rows = [(bout.title, bout.seed, name, case) for bout in bouts for name, case in bout.cases()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.npz"
        arrays: dict[str, Any] = {"count": np.array(len(rows)), "scalar_names": np.array(SCALARS)}
        for number, (*_, case) in enumerate(rows):
            fields = asdict(case)
            fields["scalars"] = np.array([case.scalars[name] for name in SCALARS])
            arrays |= {f"{number}_{name}": values for name, values in fields.items()}
        np.savez(path, allow_pickle=False, **arrays)
        call = [sys.executable, "-m", "experiments.arena.worker", str(script.resolve()), str(path)]
        try:
            done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise UserError(f"{script} took more than {seconds:g} s for {len(rows)} cases: make it faster") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        raise UserError(said[-1] if done.returncode == FAILED else f"{script} ended its process: {said[-1]}")
    values = json.loads(done.stdout.splitlines()[-1])
    found = DataFrame([row[:3] for row in rows], columns=["title", "seed", "name"])
    return found.assign(**{OWN: values})


def joined(records: list[Record], own: DataFrame) -> DataFrame:
    """The plain updates of the records that stand in the arena, with all their scores and what ``own`` adds.

    Raises:
        UserError: where a case of the arena has no record.
    """
    frame = gate_frame(records).assign(title=[replication_title(record["config"]) for record in records])
    found = frame.merge(own, on=["title", "seed", "name"])
    if len(found) != len(own):
        raise UserError(f"{len(own) - len(found)} cases of the arena have no record: restore results/ from git")
    return found


def entered(bouts: list[Bout]) -> DataFrame:
    """All cases, without a score of one's own: what `joined` takes for the scores of the records alone."""
    rows = [(bout.title, bout.seed, name) for bout in bouts for name in bout.names]
    return DataFrame(rows, columns=["title", "seed", "name"])


def standing(frame: DataFrame) -> Table:
    """By replication: rho and AUROC of the new score, its rank by rho, and its lead over the best of the others."""
    rows = []
    for title, part in frame.groupby("title"):
        found = _correlations(part, LABELS)
        mine = found.pop(OWN)
        best = next(iter(found))
        rank = 1 + sum(other.estimate > mine.estimate for other in found.values())
        beside = f"{interval(lead(part, OWN, best), '{:+.2f}')} over {LABELS[best]}"
        rank_of = f"{rank} of {len(found) + 1}"
        rows.append([str(title), interval(mine, "{:.2f}"), rank_of, beside, *_areas(part, OWN), str(len(part))])
    return Table(
        caption=(
            "The new score on every replication of the arena: Spearman's rho with the signed change of the anchor's "
            "0-1 risk, its rank among all scores, the paired difference to the best of the others, and AUROC for a "
            "rise above tau; 95% intervals, Student's t over seeds and candidates."
        ),
        header=["replication", "rho", "rank", "lead", *_AREAS, "updates"],
        rows=rows,
    )


def ladder(frame: DataFrame, *, own: str = "") -> Table:
    """Every score on every replication, best first; ``own`` is the name of the new one, where there is one."""
    labels = {**LABELS, OWN: own or LABELS[OWN]}
    rows = [
        [str(title), str(rank), labels[name], interval(rho, "{:.2f}"), *_areas(part, name)]
        for title, part in frame.groupby("title")
        for rank, (name, rho) in enumerate(_correlations(part, labels).items(), 1)
    ]
    return Table(
        caption=(
            "All scores on the updates of the arena, by Spearman's rho with the signed change of the anchor's 0-1 "
            "risk, and AUROC for a rise above tau; 95% intervals, Student's t over seeds and candidates."
        ),
        header=["replication", "rank", "score", "rho", *_AREAS],
        rows=rows,
    )


_AREAS = [f"AUROC at {tau:g}" for tau in REPLICATED_AT]


def _areas(part: DataFrame, name: str) -> list[str]:
    return [interval(area(part, name, tau), "{:.2f}") if both_kinds(part, tau) else "one kind" for tau in REPLICATED_AT]


def _correlations(part: DataFrame, labels: Iterable[str]) -> dict[str, StudentInterval]:
    """Rho of all scores that a replication has, the largest first, undefined ones last."""
    found = {name: correlation(part, name) for name in labels if name in part and part[name].notna().all()}
    return dict(sorted(found.items(), key=lambda item: float(np.nan_to_num(-item[1].estimate, nan=np.inf))))
