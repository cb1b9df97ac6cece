"""Pairs of which one cause alone was turned: step size of the fine-tuning, severity of the shift, or sample size."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from pandas import DataFrame

from ..engine.records import Record
from .frame import stack_pairs

KNOBS = {"lr": "finetune_lr", "severity": "severity", "n": "n_target"}
"""The column of what is turned."""


def isolation_frame(records: Iterable[Record]) -> DataFrame:
    """All pairs of the `isolation` records; ``knob`` is the value of what ``vary`` names."""
    frame = stack_pairs(
        ({**_about(r["config"]), **r["metrics"]["remainders"]}, r["metrics"]["columns"]) for r in records
    )
    return frame.assign(knob=np.select([frame["vary"] == name for name in KNOBS], [frame[c] for c in KNOBS.values()]))


def _about(config: Record) -> dict[str, Any]:
    same = {name: config[name] for name in ("world", "vary", "n", "c_h")}
    return {**same, "n_target": config.get("n_target") or config["n"]}


def leak(frame: DataFrame, name: str) -> float:
    """How far a column moves when the knob is turned: the largest over the smallest mean."""
    means = frame.groupby("knob")[name].mean()
    return float(means.max() / means.min()) if means.min() > 0 else float("inf")
