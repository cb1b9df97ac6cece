"""The `anchoring` records as one table of updates, and the update that each method takes at equal target accuracy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from trace.stats.bootstrap import BootstrapInterval

from ..engine.records import Record
from .frame import Frame, groups, mean_interval, stacked, where
from .repeats import one_setting

TOLERANCE = 0.01
"""How far above the plain fine-tune's an error on the target still counts as equal."""


class Method(NamedTuple):
    """How a method is shown, and what it needs of the anchor."""

    title: str
    needs: str
    share: bool = False
    """Its strength is a share of the plain fine-tune, so that less is more restrained; else a weight."""


METHODS = {
    "plain": Method("plain fine-tune", "nothing", share=True),
    "worst_label": Method("penalty, worst label", "inputs"),
    "lipschitz": Method("penalty, Lipschitz", "inputs"),
    "plug_in": Method("penalty, plug-in", "inputs"),
    "rehearsal": Method("rehearsal", "inputs and labels"),
    "distillation": Method("distillation on target", "nothing"),
    "early_stop": Method("fewer epochs", "nothing", share=True),
    "small_steps": Method("smaller steps", "nothing", share=True),
    "interpolation": Method("interpolated weights", "nothing", share=True),
}
PENALTIES = ("worst_label", "lipschitz", "plug_in")
TRIVIAL = ("early_stop", "small_steps", "interpolation")


def anchoring_frame(records: Iterable[Record]) -> Frame:
    """All updates of the `anchoring` records; ``restraint`` is 0 for plain and grows as a method moves less.

    Raises:
        UserError: where a study and seed was run at two settings.
    """
    parts, runs = [], []
    for record in records:
        c, metrics = record["config"], record["metrics"]
        part: Frame = {name: np.asarray(values, dtype=float) for name, values in metrics["columns"].items()}
        length = len(metrics["methods"])
        title = (
            f"moons_warp, severity {c['severity']:g}"
            if c["study"] == "moons_warp"
            else f"{c['data']}, {c['source']} to {c['target']}"
        )
        runs.append(({"study": title, "seed": c["seed"]}, c))
        shares = np.array([METHODS[name].share for name in metrics["methods"]])
        part |= {
            "method": np.array(metrics["methods"]),
            "study": np.full(length, title),
            "seed": np.full(length, c["seed"]),
            "restraint": np.where(shares, 1 - part["strength"], part["strength"]),
            "abs_risk_change": np.abs(part["risk_change"]),
            "abs_error_change": np.abs(part["error_change"]),
        }
        parts.append(part)
    one_setting("anchoring", runs)
    return stacked(parts)


def studies(frame: Frame) -> list[tuple[str, Frame]]:
    """Each study with its updates, Moons first."""
    return [(name, where(frame, study=name)) for (name,) in sorted(groups(frame, "study"), reverse=True)]


def replicated(frame: Frame) -> list[tuple[str, Frame]]:
    """The studies with at least two seeds, of which an interval can be made."""
    return [(title, part) for title, part in studies(frame) if len(groups(part, "seed")) > 1]


def at_equal_accuracy(part: Frame, method: str) -> Frame:
    """One update a seed, in the order of the seeds: what a user would take who knows no label of the anchor.

    The most restrained one whose error on the target's validation split is at most `TOLERANCE` above the plain
    fine-tune's; where there is none, the plain fine-tune itself.
    """
    chosen = []
    for seed in sorted(set(part["seed"].tolist())):
        own = where(part, seed=seed)
        plain = own["method"] == "plain"
        limit = float(own["target_val_error"][plain][0]) + TOLERANCE + 1e-9
        open_to = plain | ((own["method"] == method) & (own["target_val_error"] <= limit))
        best = int(np.argmax(np.where(open_to, own["restraint"], -np.inf)))
        chosen.append({name: column[best : best + 1] for name, column in own.items()})
    return stacked(chosen)


def difference(part: Frame, method: str, other: str, column: str) -> BootstrapInterval:
    """Mean paired difference of two methods over seeds, at equal target accuracy; below 0 the first has less."""
    return mean_interval(at_equal_accuracy(part, method)[column] - at_equal_accuracy(part, other)[column])


def lowest(part: Frame, methods: Iterable[str], column: str) -> str:
    """The method whose mean at equal target accuracy is the lowest."""
    return min(methods, key=lambda method: float(at_equal_accuracy(part, method)[column].mean()))
