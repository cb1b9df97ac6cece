"""Pairs of the synthetic worlds: how well a score ranks them, how often a bound holds, and how loosely."""

from __future__ import annotations

import numpy as np

from trace.stats.bootstrap import BootstrapInterval, clustered_bootstrap
from trace.stats.metrics import spearman

from .frame import Frame, groups, size, where
from .paper import ExcerptRow

FEW = 10
"""Seeds; of fewer a percentile interval is clearly too narrow (of 4 it covers a normal mean in 79% of draws)."""


def over_seeds(frame: Frame) -> str:
    """What the intervals of a table are worth: over how many seeds of each world they are."""
    counts = sorted({len(groups(where(frame, world=world), "seed")) for (world,) in groups(frame, "world")})
    shown = " or ".join(map(str, counts)) or "no"
    return f"95% percentile interval over {shown} seeds" + (
        ", too narrow for so few" if min(counts, default=0) < FEW else ""
    )


def rank_correlation(frame: Frame, score: str) -> BootstrapInterval:
    """Spearman's rho of a score with |Delta R|, with an interval over seeds (``app:common-impl``)."""
    return clustered_bootstrap(
        spearman, frame["seed"], frame[score], frame["abs_risk_change"],
        generator=np.random.default_rng(0), num_resamples=500,
    )  # fmt: skip


def covers(frame: Frame, bound: str) -> tuple[float, float]:
    """Share of pairs where a bound holds, and the median of its ratio to |Delta R|."""
    change = frame["abs_risk_change"]
    moved = change > 0
    return float((frame[bound] >= change).mean()), float(np.median(frame[bound][moved] / change[moved]))


def excerpt_part(frame: Frame, row: ExcerptRow, model: str) -> Frame:
    """Our pairs of a published row: all seeds, the smallest weight decay."""
    part = where(frame, world=row.world, severity=row.severity, n=row.n, model=model)
    return where(part, weight_decay=part["weight_decay"].min()) if size(part) else part


def excerpt_terms(part: Frame, *, squared: bool) -> Frame:
    """The columns of the excerpt in one of the two readings."""
    scale = 1 / part["n"] if squared else np.ones(size(part))
    change = part["model_change_squared" if squared else "model_change"]
    shift = {form: part[f"emp_shift_{form}"] * scale for form in ("ot", "mmd")}
    return {
        "risk_change": part["abs_risk_change"],
        "model_change": change,
        **{f"emp_shift_{form}": shift[form] for form in shift},
        **{f"bound_{form}": part["gaps"] + change + shift[form] for form in shift},
    }


def leak(frame: Frame, knob: str, name: str) -> float:
    """How far a column moves when a knob is turned: the largest over the smallest mean."""
    means = [where(frame, **{knob: value})[name].mean() for value in dict.fromkeys(frame[knob].tolist())]
    return float(max(means) / min(means)) if min(means) > 0 else float("inf")
