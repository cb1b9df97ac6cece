"""Scores of a deployment gate and how well they predict harm, with intervals over seeds and candidates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trace.baselines import BASELINES
from trace.scores import SCORES as LIBRARY
from trace.stats.bootstrap import BootstrapInterval, Difference, two_way_bootstrap
from trace.stats.metrics import Metric, auroc, spearman

from ..engine.records import Record
from .frame import Frame, gate_frame, groups, where
from .paper import GATE

THRESHOLDS = (0.02, 0.05, *(row.tau for row in GATE))
"""Of the rise in 0-1 risk above which an update is harmful; the last three are the paper's."""

SCORES = {
    name: score.label
    for scores, kind in ((LIBRARY, "gate"), (BASELINES, "baseline"), (LIBRARY, "anchor"))
    for name, score in scores.items()
    if score.kind == kind
}
"""Labels of what is compared, all oriented so that higher predicts more harm."""

RESAMPLES = 500

Area = Callable[[Any, Any], Metric]


def subsets(records: list[Record]) -> list[tuple[str, Frame]]:
    """The plain fine-tunes of every data set; and all updates, with controls and the references run beside them."""
    frame = gate_frame(records)
    found = []
    for (data,) in groups(frame, "data"):
        part = where(frame, data=data)
        found.append((f"{data}, fine-tunes", where(part, kind="plain")))
        if set(part["kind"].tolist()) != {"plain"}:
            found.append((f"{data}, with controls", part))
    return found


def ranked(frame: Frame, score: str, target: str = "error_change") -> BootstrapInterval:
    """Spearman's rho of a score with a risk change."""
    values = np.abs(frame["error_change"]) if target == "abs_error_change" else frame[target]
    return _resampled(frame, spearman, frame[score], values)


def area(frame: Frame, score: str, tau: float, metric: Area = auroc) -> BootstrapInterval:
    """AUROC or AUPRC of a score for a rise of the anchor's 0-1 risk above ``tau``."""
    return _resampled(frame, metric, frame[score], harmful(frame, tau))


def lead(frame: Frame, score: str, over: str, tau: float | None = None) -> BootstrapInterval:
    """How much better ``score`` is than ``over`` on the same updates: in rho with the signed change, or in AUROC."""
    metric, target = (spearman, frame["error_change"]) if tau is None else (auroc, harmful(frame, tau))
    return _resampled(frame, Difference(metric), frame[score], frame[over], target)


def resolvable(found: BootstrapInterval) -> bool:
    """The interval of a difference excludes 0."""
    return bool(found.lower > 0 or found.upper < 0)


def harmful(frame: Frame, tau: float) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = frame["error_change"] > tau
    return found


def both_kinds(frame: Frame, tau: float) -> bool:
    """There are harmful and harmless updates at ``tau``."""
    return 0 < harmful(frame, tau).mean() < 1


def alarm(frame: Frame, score: str) -> NDArray[np.float64]:
    """Where each update stands among those of its seed: 0 the least alarming, 1 the most; ties in the middle."""
    place = np.empty(len(frame[score]))
    for (seed,) in groups(frame, "seed"):
        own = frame["seed"] == seed
        values = frame[score][own]
        below = (values[:, None] > values).sum(axis=1) + 0.5 * ((values[:, None] == values).sum(axis=1) - 1)
        place[own] = below / max(1, len(values) - 1)
    return place


def _resampled(frame: Frame, statistic: Callable[..., Metric], *columns: NDArray[Any]) -> BootstrapInterval:
    return two_way_bootstrap(statistic, frame["seed"], frame["name"], *columns,
                             generator=np.random.default_rng(0), num_resamples=RESAMPLES)  # fmt: skip
