"""Scores of a deployment gate and how well they predict harm, with intervals over seeds and candidates."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from trace.baselines import BASELINES
from trace.scores import SCORES as LIBRARY
from trace.stats.bootstrap import Difference
from trace.stats.jackknife import StudentInterval
from trace.stats.metrics import Metric, auroc, spearman

from ..engine.errors import UserError
from ..engine.records import Record
from .frame import one_setting, stack_pairs
from .paper import GATE
from .replications import replication_names, replication_title
from .summary import over_units

THRESHOLDS = (0.02, 0.05, *(row.tau for row in GATE))
"""Of the rise in 0-1 risk above which an update is harmful; the last three are the paper's."""

CONTROLS = {"relabelled": "blind harm", "constant": "constant", "rehearsal": "rehearsal", "distill": "distillation"}
"""Keys of a gate candidate that make it more than a plain fine-tune, and what it is then; the first one counts."""

SCORES = {
    name: score.label
    for scores, kind in ((LIBRARY, "gate"), (BASELINES, "baseline"), (LIBRARY, "anchor"))
    for name, score in scores.items()
    if score.kind == kind
}
"""Labels of what is compared, all oriented so that higher predicts more harm."""

REPLICATED_AT = (0.005, 0.01, 0.02, *(row.tau for row in GATE))
"""Thresholds for all replications: those of small harm, such as a year's, and the paper's."""

TABLES_ALONE = {"cbpe": "CBPE"}
"""Scores that only candidates of tables have."""

MACHINE = ("compiled", "device", "workers")
"""Keys of a config that decide how fast a run is, not what it finds."""

DESCRIPTIONS = ("num_classes", "skipped")
"""Of the data, among the measured numbers of a record."""

Area = Callable[[Any, Any], Metric]


def gate_frame(records: Sequence[Record]) -> DataFrame:
    """The candidates of the `gate` records, one row each, with their ``kind``: plain, reference, or a control's.

    ``data`` is the replication (`replication_names`), ``data_set`` what it shares with others.

    Raises:
        UserError: where a replication and seed has two Qs, or two candidates of one name; or for records from before a
            score was added that needs the models' outputs.
    """
    _check_settings(records)
    frame = stack_pairs(
        ({**_about(r["config"]), "data": name}, {k: [v] for k, v in r["metrics"].items() if k not in DESCRIPTIONS})
        for r, name in zip(records, replication_names(records), strict=True)
    )
    if lacking := [name for name in SCORES if name not in frame]:
        raise UserError(
            f"the records of gate lack {', '.join(lacking)}: raise METRICS_VERSION in experiments/gate.py by one, then "
            "`python -m experiments run gate` and `collect` compute them"
        )
    return frame.assign(abs_error_change=np.abs(frame["error_change"]))


def _check_settings(records: Sequence[Record]) -> None:
    """All candidates of a replication and seed are updates of one Q, and no two have one name."""
    shared: dict[str, tuple[dict[str, Any], Record]] = {}
    candidates = []
    for record in records:
        config = record["config"]
        about = {"data": replication_title(config), "seed": config["seed"]}
        rest = {name: value for name, value in config.items() if name not in ("candidate", *MACHINE)}
        shared[repr(sorted(rest.items()))] = about, rest
        candidates.append(({**about, "candidate": config["candidate"]["name"]}, {**rest, **config["candidate"]}))
    one_setting("gate", shared.values())
    one_setting("gate", candidates)


def _about(config: dict[str, Any]) -> dict[str, Any]:
    candidate = config["candidate"]
    return {
        "data_set": config["data"],
        "seed": config["seed"],
        "c_h": config["c_h"],
        "name": candidate["name"],
        "kind": kind(candidate),
    }


def kind(candidate: dict[str, Any]) -> str:
    """What a gate candidate is."""
    control = next((name for key, name in CONTROLS.items() if candidate[key]), "plain")
    return "reference" if candidate["reference"] else control


def subsets(records: list[Record]) -> list[tuple[str, DataFrame]]:
    """The plain fine-tunes of every data set; and all updates, with controls and the references run beside them."""
    found = []
    for data, part in gate_frame(records).groupby("data", sort=False):
        plain = part["kind"] == "plain"
        found += [(f"{data}, fine-tunes", part[plain])] if plain.any() else []
        found += [(f"{data}, with controls", part)] if not plain.all() else []
    return found


def correlation(frame: DataFrame, score: str, target: str = "error_change") -> StudentInterval:
    """Spearman's rho of a score with a risk change, or with another score."""
    return over_updates(frame, spearman, frame[score], frame[target])


def area(frame: DataFrame, score: str, tau: float, metric: Area = auroc) -> StudentInterval:
    """AUROC or AUPRC of a score for a rise of the anchor's 0-1 risk above ``tau``."""
    return over_updates(frame, metric, frame[score], harmful(frame, tau))


def lead(frame: DataFrame, score: str, over: str, tau: float | None = None) -> StudentInterval:
    """How much better ``score`` is than ``over`` on the same updates: in rho with the signed change, or in AUROC."""
    metric, target = (spearman, frame["error_change"]) if tau is None else (auroc, harmful(frame, tau))
    return over_updates(frame, Difference(metric), frame[score], frame[over], target)


def ceiling(frame: DataFrame) -> float:
    """The rho with the measured change that the true change would have: the square root of the reliability.

    Two halves of the test rows measure the change of every update, with rho r between them, mean over seeds; by
    Spearman and Brown all rows have the reliability ``2 r / (1 + r)``.
    """
    halves = [spearman(g["error_change_first"], g["error_change_second"]).value for _, g in frame.groupby("seed")]
    r = max(0.0, float(np.mean(halves)))
    return math.sqrt(2 * r / (1 + r))


def resolvable(found: StudentInterval) -> bool:
    """The interval of a difference excludes 0."""
    return bool(found.lower > 0 or found.upper < 0)


def harmful(frame: DataFrame, tau: float) -> Series:
    return frame["error_change"] > tau


def both_kinds(frame: DataFrame, tau: float) -> bool:
    """There are harmful and harmless updates at ``tau``."""
    return 0 < harmful(frame, tau).mean() < 1


def replicated(plain: DataFrame) -> dict[tuple[str, str], dict[str, Any]]:
    """By replication and score: rho, the AUROC at every threshold of `REPLICATED_AT`, and what stands behind them."""
    return {
        (str(title), label): {
            "data_set": part["data_set"].iloc[0],
            "updates": len(part),
            "rho": correlation(part, score),
            **{str(tau): area(part, score, tau) for tau in REPLICATED_AT},
        }
        for title, part in plain.groupby("data")
        for score, label in {**SCORES, **TABLES_ALONE}.items()
        if score in part and part[score].notna().all()
    }


def alarm(frame: DataFrame, score: str) -> Series:
    """Where each update stands among those of its seed: 0 the least alarming, 1 the most; ties in the middle."""
    own = frame.groupby("seed")[score]
    return (own.rank() - 1) / np.maximum(1, own.transform("size") - 1)


def over_updates(frame: DataFrame, metric: Area | Difference, *columns: Series) -> StudentInterval:
    """A metric of updates with an interval over seeds and candidates."""
    kind = metric.metric if isinstance(metric, Difference) else metric
    low, high = (-1, 1) if kind is spearman else (0, 1)
    limits = (low, high) if kind is metric else (low - high, high - low)
    return over_units(metric, frame["seed"], frame["name"], columns=columns, limits=limits)
