"""Pairs of which one cause alone was turned: the step size of the fine-tuning, or the severity of the shift."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from pandas import DataFrame

from ..engine.records import Record
from .frame import stack_pairs


def isolation_frame(records: Iterable[Record]) -> DataFrame:
    """All pairs of the `isolation` records; ``knob`` is the value of what ``vary`` names."""
    frame = stack_pairs(
        (
            {**{name: r["config"][name] for name in ("world", "vary", "n", "c_h")}, **r["metrics"]["remainders"]},
            r["metrics"]["columns"],
        )
        for r in records
    )
    return frame.assign(knob=np.where(frame["vary"] == "lr", frame["finetune_lr"], frame["severity"]))


def leak(frame: DataFrame, name: str) -> float:
    """How far a column moves when the knob is turned: the largest over the smallest mean."""
    means = frame.groupby("knob")[name].mean()
    return float(means.max() / means.min()) if means.min() > 0 else float("inf")
