"""Rounds of active selection as curves over seeds, and how well each score ranks them by the anchor's change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trace.scores import labels
from trace.stats.bootstrap import BootstrapInterval, clustered_bootstrap
from trace.stats.metrics import Metric, spearman

from ..engine.records import Record
from .frame import Frame, active_frame, groups, mean_interval, where

POLICIES = ("w1min", "mmdmin", "random")

SCORES = {
    "distance": "OT distance, all labels",
    "mmd": "MMD, all labels",
    "batch_distance": "OT distance, batch",
    "output_distance": "output discrepancy",
    "proxy": "TRACE-Proxy",
    **labels("trace_w", "trace_mmd"),
    "bound_ot": "bound (OT)",
    "bound_mmd": "bound (MMD)",
    **labels("anchor_disagreement", "anchor_worst_label", "anchor_plug_in"),
}

RESAMPLES = 500


def rounds_of(records: list[Record], data: str) -> Frame:
    """The evaluated rounds on one data set, with what the tables add to a frame.

    ``points`` is |Delta R| in percentage points of top-1 error; ``proxy`` has each policy's own distance.
    """
    return completed(where(active_frame(records), data=data))


def of_shared_seeds(frame: Frame, policies: Iterable[str]) -> Frame:
    """The rounds of the seeds that every one of some policies was run with."""
    own = [where(frame, policy=policy)["seed"] for policy in policies] if frame else []
    kept = np.logical_and.reduce([np.isin(frame["seed"], seeds) for seeds in own]) if own else ...
    return {name: column[kept] for name, column in frame.items()}


def completed(frame: Frame) -> Frame:
    if not frame:
        return {}
    own = np.where(frame["policy"] == "mmdmin", frame["proxy_mmd"], frame["proxy_ot"])
    return frame | {
        "points": 100 * np.abs(frame["error_change"]),
        "signed_points": 100 * frame["error_change"],
        "target_points": 100 * frame["target_error"],
        "proxy": own,
        **{f"{rows}_distance": np.maximum(frame[f"{rows}_transport"], 0) for rows in ("batch", "held_out")},
        **{f"{rows}_mmd": np.sqrt(np.maximum(frame[f"{rows}_mmd_squared"], 0)) for rows in ("batch", "held_out")},
    }


def curve(frame: Frame, policy: str, column: str) -> NDArray[np.float64]:
    """``[seeds, rounds]`` of one policy, in ascending order of seeds and labels."""
    part = where(frame, policy=policy)
    order = np.lexsort((part["labeled"], part["seed"]))
    return np.asarray(part[column][order], dtype=float).reshape(len(set(part["seed"].tolist())), -1)


def growth(frame: Frame, policy: str, column: str, *, since: int = 0) -> BootstrapInterval:
    """Mean over seeds of the last round minus round ``since`` (from 0), with an interval over seeds."""
    values = curve(frame, policy, column)
    return mean_interval(values[:, -1] - values[:, since])


def contrast(frame: Frame, policy: str, other: str, column: str) -> BootstrapInterval:
    """Mean over seeds and rounds of ``policy`` minus ``other``; the seeds are the same samples of images."""
    return mean_interval((curve(frame, policy, column) - curve(frame, other, column)).mean(axis=1))


def ranked_means(frame: Frame, score: str, target: str = "points") -> BootstrapInterval:
    """Spearman's rho over the means of every policy and round; seeds are resampled."""
    group = np.zeros(len(frame[score]))
    for number, (policy, labeled) in enumerate(groups(frame, "policy", "labeled")):
        group[(frame["policy"] == policy) & (frame["labeled"] == labeled)] = number

    def of_means(group: Any, score: Any, target: Any) -> Metric:
        codes = group.astype(int)
        counts = np.bincount(codes)
        drawn = counts > 0
        means = (np.bincount(codes, values)[drawn] / counts[drawn] for values in (score, target))
        return spearman(*means)

    return _over_seeds(of_means, frame, group, frame[score], frame[target])


def ranked_rounds(frame: Frame, score: str, target: str = "points") -> BootstrapInterval:
    """Spearman's rho over every round of every run; seeds are resampled."""
    return _over_seeds(spearman, frame, frame[score], frame[target])


def _over_seeds(statistic: Any, frame: Frame, *columns: NDArray[Any]) -> BootstrapInterval:
    if any(np.isnan(column).any() for column in columns):
        nan = float("nan")
        return BootstrapInterval(nan, nan, nan, 0.95, 0, 0, "undefined in some rounds")
    return clustered_bootstrap(
        statistic, frame["seed"], *columns, generator=np.random.default_rng(0), num_resamples=RESAMPLES
    )
