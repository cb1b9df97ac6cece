"""Gate scores with intervals: each is increasing in its parts, so their joint interval gives the score's ends.

The parts share the failure probability by a union bound. Higher predicts more harm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..checks import check_level
from ..diagnostic import Diagnostic
from ..scores import with_shift
from .parts import (
    Part,
    Record,
    SampleName,
    anchor_mean,
    entry,
    gap,
    mmd,
    model_change,
    number,
    output_distance,
    rkhs_norm,
    sensitivity,
    transport,
)

Values = Mapping[str, float]

_PARTS: dict[str, Callable[[Record, float], Part]] = {
    "disagreement": anchor_mean("disagreement"),
    "worst_label": anchor_mean("worst_label"),
    "lipschitz": anchor_mean("lipschitz"),
    "plug_in": anchor_mean("plug_in"),
    "output_distance": output_distance,
    "model_change": model_change,
    "gap_source": gap("gap_source", "anchor", "source_val"),
    "gap_target": gap("gap_target", "target", "target_val"),
    "sensitivity_source": sensitivity("sensitivity_source", "anchor"),
    "sensitivity_target": sensitivity("sensitivity_target", "target"),
    "transport": transport,
    "mmd": mmd,
    "rkhs_norm": rkhs_norm,
}
_GIVEN = {"rkhs_norm"}
"""Parts without an interval, which spend nothing."""
_HELD_OUT = {"disagreement", "worst_label", "lipschitz", "plug_in", "gap_source", "sensitivity_source"}
"""Parts whose interval needs anchor rows that no model was trained on."""
_GAPS = ("gap_source", "gap_target", "model_change")


class Score(NamedTuple):
    """How a gate score is put together."""

    parts: tuple[str, ...]
    combine: Callable[[Values, float], float]
    """Of the parts' values and c_h; increasing in each part."""
    meaning: str
    """What it is, for people."""
    percent: bool = False


def _alone(values: Values, _c_h: float) -> float:
    (value,) = values.values()
    return value


def _trace_w(v: Values, _c_h: float) -> float:
    return with_shift(v["output_distance"], v["sensitivity_target"], v["transport"])


def _trace_mmd(v: Values, _c_h: float) -> float:
    return with_shift(v["output_distance"], v["rkhs_norm"], v["mmd"])


def _bound_ot(v: Values, c_h: float) -> float:
    return with_shift(_first(v), c_h * (v["sensitivity_source"] + v["sensitivity_target"]), v["transport"])


def _bound_mmd(v: Values, _c_h: float) -> float:
    return with_shift(_first(v), v["rkhs_norm"], v["mmd"])


def _bound_hybrid(v: Values, c_h: float) -> float:
    return with_shift(_bound_mmd(v, c_h), c_h * v["sensitivity_source"], v["transport"])


def _first(v: Values) -> float:
    return sum(v[name] for name in _GAPS)


SCORES: dict[str, Score] = {
    "anchor_disagreement": Score(
        ("disagreement",), _alone, "share of predictions on the anchor that change", percent=True
    ),
    "anchor_worst_label": Score(("worst_label",), _alone, "largest change of the anchor's risk under any labels"),
    "anchor_lipschitz": Score(("lipschitz",), _alone, "Lipschitz bound on the change of the anchor's risk"),
    "anchor_plug_in": Score(("plug_in",), _alone, "change of the anchor's risk if the old model's beliefs are right"),
    "output_distance": Score(("output_distance",), _alone, "mean distance M_l2 between the models' outputs"),
    "model_change": Score(("model_change",), _alone, "model change L_ell M_l2 on the target"),
    "trace_w": Score(("output_distance", "sensitivity_target", "transport"), _trace_w, "gate score TRACE-W"),
    "trace_mmd": Score(("output_distance", "rkhs_norm", "mmd"), _trace_mmd, "gate score TRACE-MMD"),
    "bound_ot": Score(
        (*_GAPS, "sensitivity_source", "sensitivity_target", "transport"), _bound_ot, "TRACE bound, transport form"
    ),
    "bound_mmd": Score((*_GAPS, "rkhs_norm", "mmd"), _bound_mmd, "TRACE bound, MMD form"),
    "bound_hybrid": Score(
        (*_GAPS, "sensitivity_source", "transport", "rkhs_norm", "mmd"), _bound_hybrid, "TRACE bound, hybrid form"
    ),
}


class ScoreInterval(NamedTuple):
    """A score's value and the interval of what it would be on infinitely many samples."""

    value: float
    lower: float
    upper: float
    sample: SampleName
    """Whose size limits the width most."""
    size: int
    least: int
    """Fewest samples of it that give a finite interval."""
    open_below: bool
    """The lower end would not rise with more samples."""
    thinned: bool
    """Not all samples entered the widest part, and more would not either."""
    sizes: dict[SampleName, int]
    """The smallest sample of each kind that entered."""
    on_training: bool
    """A part was measured on the anchor's training rows, for which no interval holds."""
    reason: str
    """Why the value is NaN or an end is infinite; empty otherwise."""
    notes: tuple[str, ...]
    """What the interval takes for granted."""


def score_interval(diagnostic: Diagnostic | Record, score: str, *, delta: float = 0.05) -> ScoreInterval:
    """A score of `SCORES` with an interval that fails with probability at most ``delta``.

    ``diagnostic`` is a `Diagnostic`, or its record as `as_dict` or a JSON file gives it.

    Raises:
        ValueError: for an unknown score, a level outside (0, 1), or a record that lacks what the score needs.
    """
    if score not in SCORES:
        raise ValueError(f"score {score!r} is not known: use one of {', '.join(SCORES)}")
    check_level(delta, "delta")
    form = SCORES[score]
    record = diagnostic.as_dict() if isinstance(diagnostic, Diagnostic) else diagnostic
    uncertain = [name for name in form.parts if name not in _GIVEN]
    found = {name: _PARTS[name](record, delta / len(uncertain)) for name in form.parts}
    c_h = number(record, "settings", "c_h")

    def at(end: str, fixed: str = "") -> float:
        return form.combine({name: getattr(p, "value" if name == fixed else end) for name, p in found.items()}, c_h)

    value, lower, upper = (at(end) for end in ("value", "lower", "upper"))
    missing = [name for name, p in found.items() if math.isnan(p.value)]
    endless = [name for name, p in found.items() if math.isinf(p.upper)]
    widest = (missing or endless or [min(uncertain, key=lambda name: at("upper", name) - at("lower", name))])[0]
    blamed = found[widest]
    return ScoreInterval(
        value, lower, upper, blamed.sample, blamed.size, blamed.least,
        open_below=any(p.open_below for p in found.values()),
        thinned=blamed.thinned,
        sizes={kind: min(p.size for p in found.values() if p.sample == kind) for kind in _samples(found)},
        on_training="anchor" in entry(record, "reasons") and not _HELD_OUT.isdisjoint(found),
        reason="; ".join(f"{name}: {found[name].note}" for name in missing or endless),
        notes=_notes(found, missing or endless),
    )  # fmt: skip


def _samples(found: Mapping[str, Part]) -> list[SampleName]:
    return sorted({p.sample for p in found.values()})


def _notes(found: Mapping[str, Part], already: list[str]) -> tuple[str, ...]:
    notes = [p.note for name, p in found.items() if p.note and name not in already]
    if "target" in _samples(found):
        notes.append("the target inputs count as independent of both models")
    return tuple(notes)
