"""Every score once: TRACE-Proxy with its calibration, the gate scores, the bounds and their terms, the anchor scores.

`SCORES` says of each what it reads, its formula, what tables call it, what it means and its units. A formula takes the
numbers of a diagnostic, the ends of their intervals or columns of stored records alike (`trace.diagnostic`):
``SCORES["trace_w"].formula(diagnostic.columns())``. One more entry is one more score of the gate, of its tables and of
`trace-shift gate`.

TRACE-W and TRACE-MMD add a model change, in units of the logits, and a shift factor. Only the proxy rescales that
factor (``app:proxy-and-cal``); the gate scores take it as it is (``app:gate-scores``), so they depend on the units of
the features.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from statistics import median
from typing import Any, Literal, NamedTuple

from .diagnostic import FORMS, Form, Values, bound_core, bound_full, emp_shift, model_change, scaled
from .statements import CHANGE, DIRECT, Constants, bound_difference, bound_direct

SINKHORN_SLACK = 1e-3
"""A debiased Sinkhorn divergence this far below 0 is a numerical zero; it counts as 0."""

MIN_CANDIDATES = 3
"""Fewest development candidates; the paper takes 3 to 5."""


class Score(NamedTuple):
    """One score, for numbers and for columns."""

    kind: Literal["anchor", "slice", "labelled", "gate", "proxy", "bound", "term", "baseline"]
    """What it is for: "anchor" reads the anchor's inputs alone, "slice" their worst part, "labelled" their labels too;
    "gate" predicts harm, "proxy" ranks with a calibrated scale, "bound" and "term" are the bounds on |Delta R| and what
    they are made of, "baseline" is a rival."""
    label: str
    """In tables and figures."""
    units: Literal["share", "error", "logits", "loss", "nats", "features", "norm"]
    """Of the value; "loss" is that of the diagnostic's loss, nats for cross-entropy; "error" a predicted error rate."""
    parts: tuple[str, ...]
    """What the formula reads, by name."""
    formula: Callable[[Values], Any]
    meaning: str = ""
    """In words, for the verdicts of a gate; empty where no gate decides by it."""
    sign: Literal[1, -1] = 1
    """1 where higher is more harm."""
    signed: bool = False
    """Whether it can be negative."""
    with_labels: str = "risk_change"
    """Which score of labels can tell whether what this one sees without them is harm or help."""

    def harm(self, values: Values) -> Any:
        """The value with its sign set so that higher predicts more harm."""
        return self.sign * self.formula(values)


def _with_shift(scale: str, distance: str) -> Callable[[Values], Any]:
    """``M_l2 + scale max(distance, 0)``, on held-out target rows: those that trained Q~ flatter it."""
    return lambda v: v["held_out_distance"] + scaled(v[scale], v[distance])


def _proxy(distance: str) -> Callable[[Values], Any]:
    """``M_l2 + c_h L_x^(q) Distance`` (``app:proxy-and-cal``), a ranking score and not a bound."""
    return lambda v: v["output_distance"] + scaled(v["c_h"] * v["sensitivity_target"], v[distance])


def _bound(total: Callable[[Values, Form], Any], form: Form) -> Callable[[Values], Any]:
    """A bound from the parts of its terms."""
    return lambda v: total({**v, "model_change": model_change(v), f"emp_shift_{form}": emp_shift(v, form)}, form)


_CHANGE = ("lipschitz_loss", "output_distance")
_CORE = ("gap_source", "gap_target", *_CHANGE)
_SHIFT: dict[Form, tuple[str, ...]] = {
    "ot": ("sensitivity_source", "sensitivity_target", "transport", "c_h"),
    "mmd": ("rkhs_norm", "mmd"),
    "hybrid": ("sensitivity_source", "transport", "c_h", "rkhs_norm", "mmd"),
}
_NAMES: dict[Form, tuple[str, str]] = {"ot": ("OT", "transport"), "mmd": ("MMD", "MMD"), "hybrid": ("hybrid", "hybrid")}


_SUFFIX: dict[Constants, str] = {"seen": "", "certified": "_certified"}
_FROM: dict[Constants, str] = {"seen": ", steepest seen", "certified": ", certified"}


def _read(
    kind: Literal["anchor", "slice", "labelled"],
    name: str,
    label: str,
    units: Literal["share", "loss"],
    meaning: str,
    *,
    signed: bool = False,
    with_labels: str = "risk_change",
) -> dict[str, Score]:
    """A score that is one number of the diagnostic."""
    score = Score(kind, label, units, (name,), itemgetter(name), meaning, signed=signed, with_labels=with_labels)
    return {name: score}


SCORES: dict[str, Score] = {
    **_read(
        "anchor",
        "anchor_disagreement",
        "anchor disagreement",
        "share",
        "share of predictions on the anchor that change",
        with_labels="error_change",
    ),
    **_read(
        "anchor",
        "anchor_worst_label",
        "anchor bound",
        "loss",
        "largest change of the anchor's risk under any labels",
    ),
    **_read(
        "anchor",
        "anchor_lipschitz",
        "anchor output distance",
        "loss",
        "Lipschitz bound on the change of the anchor's risk",
    ),
    **_read(
        "anchor",
        "anchor_plug_in",
        "anchor plug-in",
        "loss",
        "change of the anchor's risk if the old model's beliefs are right",
        signed=True,
    ),
    **_read(
        "anchor",
        "anchor_error_plug_in",
        "anchor error plug-in",
        "share",
        "rise of the anchor's error rate if the old model's beliefs are right",
        with_labels="error_change",
    ),
    **_read(
        "slice",
        "class_disagreement",
        "class disagreement",
        "share",
        "largest share of predictions that change in any class that the old model predicts",
        with_labels="recall_drop",
    ),
    **_read(
        "slice",
        "group_disagreement",
        "group disagreement",
        "share",
        "largest share of predictions that change in any group (--group)",
        with_labels="group_error_rise",
    ),
    **_read("labelled", "error_change", "error change", "share", "change of the anchor's error rate", signed=True),
    **_read("labelled", "risk_change", "risk change", "loss", "change of the anchor's risk", signed=True),
    **_read("labelled", "recall_drop", "fall of recall", "share", "largest fall of recall in any class", signed=True),
    **_read(
        "labelled",
        "group_error_rise",
        "group error rise",
        "share",
        "largest rise of the error rate in any group (--group)",
        signed=True,
    ),
    **_read(
        "labelled",
        "tail_loss_rise",
        "tail of the loss change",
        "loss",
        "mean rise of the loss over the worst 5% of anchor rows",
        signed=True,
    ),
    "trace_w": Score(
        "gate",
        "TRACE-W",
        "logits",
        ("held_out_distance", "sensitivity_target", "transport"),
        _with_shift("sensitivity_target", "transport"),
        "gate score TRACE-W",
    ),
    "trace_mmd": Score(
        "gate",
        "TRACE-MMD",
        "logits",
        ("held_out_distance", "rkhs_norm", "mmd"),
        _with_shift("rkhs_norm", "mmd"),
        "gate score TRACE-MMD",
    ),
    "held_out_distance": Score(
        "gate",
        "model change",
        "logits",
        ("held_out_distance",),
        itemgetter("held_out_distance"),
        "mean distance M_l2 between the models' outputs on held-out target rows",
    ),
    "output_distance": Score("term", "model change", "logits", ("output_distance",), itemgetter("output_distance")),
    "model_change": Score("term", "model change", "loss", _CHANGE, model_change),
    **{
        f"bound_{form}": Score(
            "bound",
            f"bound, {_NAMES[form][0]}",
            "loss",
            (*_CORE, *_SHIFT[form]),
            _bound(bound_core, form),
            f"TRACE bound, {_NAMES[form][1]} form",
        )
        for form in FORMS
    },
    **{
        f"bound_full_{form}": Score(
            "bound",
            f"bound with remainders, {_NAMES[form][0]}",
            "loss",
            (*_CORE, *_SHIFT[form], "label_noise", "validation_error", f"population_{'ot' if form == 'ot' else 'mmd'}"),
            _bound(bound_full, form),
        )
        for form in FORMS
    },
    **{
        f"bound_direct{_SUFFIX[kind]}": Score(
            "bound",
            f"two-term bound{_FROM[kind]}",
            "loss",
            ("lipschitz_loss", "held_out_distance", *DIRECT[kind], "wasserstein1_input"),
            partial(bound_direct, constants=kind),
        )
        for kind in _SUFFIX
    },
    **{
        f"bound_difference{_SUFFIX[kind]}": Score(
            "bound",
            f"bound of the difference{_FROM[kind]}",
            "loss",
            ("capped_change", "lipschitz_loss", CHANGE[kind], "wasserstein1_input"),
            partial(bound_difference, constants=kind),
        )
        for kind in _SUFFIX
    },
    **{
        f"emp_shift_{form}": Score(
            "term", f"{_NAMES[form][0]} shift", "loss", _SHIFT[form], partial(emp_shift, form=form)
        )
        for form in FORMS
    },
    "gaps": Score("term", "gaps", "loss", _CORE[:2], lambda v: v["gap_source"] + v["gap_target"]),
    "distance": Score("term", "OT distance", "features", ("transport",), lambda v: scaled(1.0, v["transport"])),
    "mmd": Score("term", "MMD", "features", ("mmd",), itemgetter("mmd")),
    **{
        name: Score(
            "proxy",
            f"TRACE-Proxy, {label}",
            "logits",
            ("output_distance", "sensitivity_target", distance, "c_h"),
            _proxy(distance),
        )
        for name, label, distance in (("proxy_ot", "OT", "transport"), ("proxy_mmd", "MMD", "mmd"))
    },
}

GATE_SCORES = {name: score for name, score in SCORES.items() if score.meaning}
"""What a `trace.Policy` can decide by."""


def labels(*names: str, alone: bool = False) -> dict[str, str]:
    """What tables call some scores; ``alone`` where terms stand beside the sums that they belong to."""
    return {name: SCORES[name].label + (" alone" if alone else "") for name in names}


class Candidate(NamedTuple):
    """One updated model, measured without labels. ``sensitivity * distance`` is its shift factor."""

    name: str
    output_distance: float
    """M_l2, the model change."""
    sensitivity: float
    """L_x^(q), the gradient quantile; with either distance."""
    distance: float
    """Sinkhorn divergence or MMD, one kind for all candidates."""


class Calibration(NamedTuple):
    """The frozen scale of the proxy's shift factor."""

    c_h: float
    names: tuple[str, ...]
    """Development candidates, which no evaluation may use again."""


def calibrate_c_h(development: Sequence[Candidate], *, evaluation: Sequence[str]) -> Calibration:
    """``c_h = median(M_l2) / median(L_x^(q) Distance)`` over development candidates (``app:proxy-and-cal``).

    Unsupervised, once per pair of domains, then frozen.

    Args:
        development: at least 3 candidates with different names; the paper takes 3 to 5.
        evaluation: names of all candidates that the proxy will rank. None may stand in ``development``.

    Raises:
        ValueError: for too few or repeated candidates, an overlap with ``evaluation``, an invalid measurement, or a
            median that is zero or not finite, so that the ratio has no meaning.

    >>> models = [Candidate("a", 1.0, 2.0, 0.1), Candidate("b", 2.0, 2.0, 0.2), Candidate("c", 9.0, 2.0, 0.9)]
    >>> calibrate_c_h(models, evaluation=["d", "e"])
    Calibration(c_h=5.0, names=('a', 'b', 'c'))
    """
    names = tuple(candidate.name for candidate in development)
    _check_disjoint(names, evaluation)
    changes = [_nonnegative(c.output_distance, f"output_distance of {c.name!r}") for c in development]
    shifts = [
        scaled(
            _nonnegative(c.sensitivity, f"sensitivity of {c.name!r}"),
            _nonnegative(c.distance, f"distance of {c.name!r}", slack=SINKHORN_SLACK),
        )
        for c in development
    ]
    change = _positive_median(changes, "output_distance", "take candidates whose outputs differ from the first model's")
    shift = _positive_median(shifts, "sensitivity * distance", "take candidates with a shift above the numerical zero")
    return Calibration(float(change / shift), names)


def _nonnegative(value: float, name: str, *, slack: float = 0.0) -> float:
    if not math.isfinite(value):
        raise ValueError(
            f"{name} is {float(value)}: leave out what its estimator could not measure, or measure it again"
        )
    if value < -slack:
        raise ValueError(
            f"{name} must be at least {-slack or 0:g}, got {float(value):g}: check its estimator's convergence"
        )
    return float(value)


def _check_disjoint(names: tuple[str, ...], evaluation: Sequence[str]) -> None:
    if isinstance(evaluation, str):
        raise ValueError(f"evaluation must be a sequence of names, got the string {evaluation!r}: use [{evaluation!r}]")
    if len(names) < MIN_CANDIDATES:
        raise ValueError(f"development has {len(names)} candidates, at least {MIN_CANDIDATES} are needed: add some")
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f"development names {', '.join(repeated)} more than once: give each candidate its own name")
    if shared := sorted(set(names) & set(evaluation)):
        raise ValueError(
            f"development and evaluation share {', '.join(shared)}: calibrate on candidates that are not ranked"
        )


def _positive_median(values: list[float], name: str, remedy: str) -> float:
    middle = median(values)
    if not (math.isfinite(middle) and middle > 0):
        raise ValueError(f"the median of {name} over development is {middle:g}, so c_h is undefined: {remedy}")
    return middle
