"""Rounds of active selection as curves over seeds, and how well each score ranks them by the anchor's change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from trace.scores import labels
from trace.stats.bootstrap import BootstrapInterval
from trace.stats.metrics import Metric, spearman

from ..engine.records import Record
from .frame import stack_pairs, with_proxies
from .repeats import one_setting
from .summary import mean_interval, over_seeds

POLICIES = ("w1min", "mmdmin", "random")
"""Those of the paper, and chance."""

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


def active_frame(records: Iterable[Record]) -> DataFrame:
    """The evaluated rounds of the `active` records, with the proxies of each policy's own development rounds.

    ``points`` is |Delta R| in percentage points of top-1 error; ``proxy`` has each policy's own distance.

    Raises:
        UserError: where a policy and seed was run at two settings.
    """
    names = ("data", "policy", "seed", "development")
    runs = [({name: r["config"][name] for name in names}, r["config"], r["metrics"]["columns"]) for r in records]
    one_setting("active", ((about, config) for about, config, _ in runs))
    frame = with_proxies(
        stack_pairs(({**about, "c_h": c["c_h"]}, columns) for about, c, columns in runs), ["data", "policy"]
    )
    return frame.assign(
        points=100 * np.abs(frame["error_change"]),
        signed_points=100 * frame["error_change"],
        target_points=100 * frame["target_error"],
        proxy=np.where(frame["policy"] == "mmdmin", frame["proxy_mmd"], frame["proxy_ot"]),
        **{f"{rows}_distance": np.maximum(frame[f"{rows}_transport"], 0) for rows in ("batch", "held_out")},
        **{f"{rows}_mmd": np.sqrt(np.maximum(frame[f"{rows}_mmd_squared"], 0)) for rows in ("batch", "held_out")},
    )


def policies_in(frame: DataFrame) -> list[str]:
    """All policies: those of `POLICIES` whether they were run or not, then one's own."""
    return list(dict.fromkeys([*POLICIES, *frame["policy"]]))


def shared_seeds(frame: DataFrame, policies: Iterable[str]) -> DataFrame:
    """The rounds of the seeds that every one of some policies was run with."""
    return frame.groupby("seed").filter(lambda own: set(policies) <= set(own["policy"]))


def curve(frame: DataFrame, policy: str, column: str) -> NDArray[np.float64]:
    """``[seeds, rounds]`` of one policy, in ascending order of seeds and labels."""
    part = frame[frame["policy"] == policy]
    return part.pivot(index="seed", columns="labeled", values=column).to_numpy()


def growth(frame: DataFrame, policy: str, column: str, *, since: int = 0) -> BootstrapInterval:
    """Mean over seeds of the last round minus round ``since`` (from 0), with an interval over seeds."""
    values = curve(frame, policy, column)
    return mean_interval(values[:, -1] - values[:, since])


def contrast(frame: DataFrame, policy: str, other: str, column: str) -> BootstrapInterval:
    """Mean over seeds and rounds of ``policy`` minus ``other``; the seeds are the same samples of images."""
    return mean_interval((curve(frame, policy, column) - curve(frame, other, column)).mean(axis=1))


def mean_correlation(frame: DataFrame, score: str, target: str = "points") -> BootstrapInterval:
    """Spearman's rho over the means of every policy and round; seeds are resampled."""

    def of_means(group: Any, score: Any, target: Any) -> Metric:
        codes = group.astype(int)
        counts = np.bincount(codes)
        drawn = counts > 0
        return spearman(*(np.bincount(codes, values)[drawn] / counts[drawn] for values in (score, target)))

    group = frame.groupby(["policy", "labeled"]).ngroup()
    return over_seeds(of_means, frame["seed"], group, frame[score], frame[target])
