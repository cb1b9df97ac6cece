"""Rounds of active selection as curves over seeds, and how well each score ranks them by the anchor's change."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from trace.scores import labels
from trace.stats.jackknife import StudentInterval
from trace.stats.metrics import Metric, spearman

from ..engine.records import Record
from .frame import one_setting, stack_pairs, with_proxies
from .replications import replication_names
from .summary import mean_interval, over_units

CHANCE = "random"
POLICIES = ("w1min", "mmdmin", CHANCE)
"""Those of the paper, and chance."""

COMPARED = {"points": "|Delta R| [p.p.]", "signed_points": "Delta R [p.p.]", "target_points": "target error [p.p.]"}
"""Columns in which policies are compared with chance."""

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


SCALE_FROM = CHANCE
"""Whose development rounds c_h comes from: five candidates of a pair, by none of the policies that are compared."""


def active_frame(records: Iterable[Record], scale_from: str = SCALE_FROM) -> DataFrame:
    """The evaluated rounds of the `active` records, with the proxies of one c_h for a pair of source and target.

    ``data`` is the replication (`replication_names`), ``data_set`` what it shares with others;
    ``points`` is |Delta R| in percentage points of top-1 error; ``proxy`` has each policy's own distance, and c_h that
    of the development rounds of ``scale_from`` for it (``app:proxy-and-cal``: once per pair).

    Raises:
        UserError: where a policy and seed was run at two settings.
    """
    records = list(records)
    names = ("policy", "seed", "development")
    runs = [
        ({"data": data, **{name: r["config"][name] for name in names}}, r["config"], r["metrics"]["columns"])
        for r, data in zip(records, replication_names(records), strict=True)
    ]
    one_setting("active", ((about, config) for about, config, _ in runs))
    rounds = stack_pairs(({**about, "data_set": c["data"], "c_h": c["c_h"]}, columns) for about, c, columns in runs)
    frame = with_proxies(rounds[~rounds["development"] | (rounds["policy"] == scale_from)], ["data"])
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


def growth(frame: DataFrame, policy: str, column: str, *, since: int = 0) -> StudentInterval:
    """Mean over seeds of the last round minus round ``since`` (from 0), with an interval over seeds."""
    values = curve(frame, policy, column)
    return mean_interval(values[:, -1] - values[:, since])


def contrast(frame: DataFrame, policy: str, other: str, column: str) -> StudentInterval:
    """Mean over seeds and rounds of ``policy`` minus ``other``; the seeds are the same samples of images."""
    return mean_interval((curve(frame, policy, column) - curve(frame, other, column)).mean(axis=1))


class PolicyLead(NamedTuple):
    """A policy minus `CHANCE` on one replication."""

    data: str
    data_set: str
    policy: str
    seeds: int
    over: dict[str, StudentInterval]
    """By the columns of `COMPARED`; below 0 the policy is better."""


def policy_leads(frame: DataFrame) -> list[PolicyLead]:
    """Every policy of every replication that was run beside random labels, on the seeds that both have."""
    found = []
    for data, part in frame.groupby("data"):
        for policy in [policy for policy in policies_in(part) if policy != CHANCE]:
            both = shared_seeds(part, (policy, CHANCE))
            if both["seed"].nunique() > 1:
                over = {name: contrast(both, policy, CHANCE, name) for name in COMPARED}
                found.append(PolicyLead(str(data), part["data_set"].iloc[0], policy, both["seed"].nunique(), over))
    return found


def mean_correlation(frame: DataFrame, score: str, target: str = "points") -> StudentInterval:
    """Spearman's rho over the means of every policy and round, with an interval over seeds."""

    def of_means(group: Any, score: Any, target: Any) -> Metric:
        codes = group.astype(int)
        counts = np.bincount(codes)
        drawn = counts > 0
        return spearman(*(np.bincount(codes, values)[drawn] / counts[drawn] for values in (score, target)))

    group = frame.groupby(["policy", "labeled"]).ngroup()
    return over_units(of_means, frame["seed"], columns=(group, frame[score], frame[target]), limits=(-1, 1))
