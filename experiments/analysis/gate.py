"""Scores of a deployment gate and how well they predict harm, with intervals over seeds and candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from trace.baselines import BASELINES
from trace.scores import SCORES as LIBRARY
from trace.stats.bootstrap import BootstrapInterval, Difference, two_way_bootstrap
from trace.stats.metrics import Metric, auroc, spearman

from ..engine.errors import UserError
from ..engine.records import Record
from .frame import stack_pairs
from .paper import GATE
from .repeats import gate_settings
from .summary import RESAMPLES

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

Area = Callable[[Any, Any], Metric]


def gate_frame(records: Sequence[Record]) -> DataFrame:
    """The candidates of the `gate` records, one row each, with their ``kind``: plain, reference, or a control's.

    Raises:
        UserError: where a data set and seed has two Qs, or two candidates of one name; or for records from before a
            score was added that needs the models' outputs.
    """
    gate_settings(records)
    frame = stack_pairs((_about(r["config"]), {k: [r["metrics"][k]] for k in _columns(r)}) for r in records)
    if lacking := [name for name in SCORES if name not in frame]:
        raise UserError(
            f"the records of gate lack {', '.join(lacking)}: raise METRICS_VERSION in experiments/gate.py by one, then "
            "`python -m experiments run gate` and `collect` compute them"
        )
    return frame.assign(abs_error_change=np.abs(frame["error_change"]))


def _about(config: dict[str, Any]) -> dict[str, Any]:
    candidate = config["candidate"]
    same = {name: config[name] for name in ("data", "seed", "c_h")}
    return {**same, "name": candidate["name"], "kind": kind(candidate)}


def _columns(record: Record) -> list[str]:
    """The measured numbers, without what describes the data."""
    return [name for name in record["metrics"] if name not in ("num_classes", "skipped")]


def kind(candidate: dict[str, Any]) -> str:
    """What a gate candidate is."""
    control = next((name for key, name in CONTROLS.items() if candidate[key]), "plain")
    return "reference" if candidate["reference"] else control


def subsets(records: list[Record]) -> list[tuple[str, DataFrame]]:
    """The plain fine-tunes of every data set; and all updates, with controls and the references run beside them."""
    found = []
    for data, part in gate_frame(records).groupby("data", sort=False):
        plain = part[part["kind"] == "plain"]
        found.append((f"{data}, fine-tunes", plain))
        if len(plain) < len(part):
            found.append((f"{data}, with controls", part))
    return found


def correlation(frame: DataFrame, score: str, target: str = "error_change") -> BootstrapInterval:
    """Spearman's rho of a score with a risk change, or with another score."""
    return resample(frame, spearman, frame[score], frame[target])


def area(frame: DataFrame, score: str, tau: float, metric: Area = auroc) -> BootstrapInterval:
    """AUROC or AUPRC of a score for a rise of the anchor's 0-1 risk above ``tau``."""
    return resample(frame, metric, frame[score], harmful(frame, tau))


def lead(frame: DataFrame, score: str, over: str, tau: float | None = None) -> BootstrapInterval:
    """How much better ``score`` is than ``over`` on the same updates: in rho with the signed change, or in AUROC."""
    metric, target = (spearman, frame["error_change"]) if tau is None else (auroc, harmful(frame, tau))
    return resample(frame, Difference(metric), frame[score], frame[over], target)


def resolvable(found: BootstrapInterval) -> bool:
    """The interval of a difference excludes 0."""
    return bool(found.lower > 0 or found.upper < 0)


def harmful(frame: DataFrame, tau: float) -> Series:
    return frame["error_change"] > tau


def both_kinds(frame: DataFrame, tau: float) -> bool:
    """There are harmful and harmless updates at ``tau``."""
    return 0 < harmful(frame, tau).mean() < 1


def alarm(frame: DataFrame, score: str) -> Series:
    """Where each update stands among those of its seed: 0 the least alarming, 1 the most; ties in the middle."""
    own = frame.groupby("seed")[score]
    return (own.rank() - 1) / np.maximum(1, own.transform("size") - 1)


def resample(
    frame: DataFrame, statistic: Callable[..., Metric | float], *columns: Series, num_resamples: int = RESAMPLES
) -> BootstrapInterval:
    """A statistic of columns with an interval over seeds and candidates."""
    generator = np.random.default_rng(0)
    names = frame["seed"], frame["name"]
    return two_way_bootstrap(statistic, *names, *columns, generator=generator, num_resamples=num_resamples)
