"""The `anchoring` records as one table of updates, and the update that each method takes at equal target accuracy."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas import DataFrame

from trace.stats.jackknife import StudentInterval

from ..engine.records import Record
from .frame import one_setting
from .summary import mean_interval

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


def anchoring_frame(records: Iterable[Record]) -> DataFrame:
    """All updates of the `anchoring` records; ``restraint`` is 0 for plain and grows as a method moves less.

    Raises:
        UserError: where a study and seed was run at two settings.
    """
    runs = [({"study": _title(r["config"]), "seed": r["config"]["seed"]}, r) for r in records]
    one_setting("anchoring", ((about, r["config"]) for about, r in runs))
    parts = [DataFrame({**r["metrics"]["columns"], "method": r["metrics"]["methods"], **about}) for about, r in runs]
    frame = pd.concat(parts, ignore_index=True)
    share = frame["method"].map({name: method.share for name, method in METHODS.items()})
    return frame.assign(
        restraint=np.where(share, 1 - frame["strength"], frame["strength"]),
        abs_risk_change=np.abs(frame["risk_change"]),
        abs_error_change=np.abs(frame["error_change"]),
    )


def _title(config: Record) -> str:
    if config["study"] == "moons_warp":
        return f"moons_warp, severity {config['severity']:g}"
    return f"{config['data']}, {config['source']} to {config['target']}"


def studies(frame: DataFrame) -> list[tuple[str, DataFrame]]:
    """Each study with its updates, Moons first."""
    return list(frame.groupby("study"))[::-1]


def replicated_studies(frame: DataFrame) -> list[tuple[str, DataFrame]]:
    """The studies with at least two seeds, of which an interval can be made."""
    return [(title, part) for title, part in studies(frame) if part["seed"].nunique() > 1]


def at_equal_accuracy(part: DataFrame, method: str) -> DataFrame:
    """One update a seed, in the order of the seeds: what a user would take who knows no label of the anchor.

    The most restrained one whose error on the target's validation split is at most `TOLERANCE` above the plain
    fine-tune's; where there is none, the plain fine-tune itself.
    """
    plain = part["method"] == "plain"
    limit = part["seed"].map(part[plain].set_index("seed")["target_val_error"]) + TOLERANCE + 1e-9
    eligible = part[plain | ((part["method"] == method) & (part["target_val_error"] <= limit))]
    return eligible.loc[eligible.groupby("seed")["restraint"].idxmax()].reset_index(drop=True)


def difference(part: DataFrame, method: str, other: str, column: str) -> StudentInterval:
    """Mean paired difference of two methods over seeds, at equal target accuracy; below 0 the first has less."""
    return mean_interval(at_equal_accuracy(part, method)[column] - at_equal_accuracy(part, other)[column])


def lower_penalties(part: DataFrame, other: str, column: str) -> list[str]:
    """The penalties that leave less of a column than another method, the interval being below 0."""
    return [kind for kind in PENALTIES if difference(part, kind, other, column).upper < 0]


def lowest(part: DataFrame, methods: Iterable[str], column: str) -> str:
    """The method whose mean at equal target accuracy is the lowest."""
    return min(methods, key=lambda method: float(at_equal_accuracy(part, method)[column].mean()))
