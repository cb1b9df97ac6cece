"""What the terms of a diagnostic say and what lowers them, and the estimates behind them, as plain text."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..diagnostic import Diagnostic, Form
from ..estimators.gradient_quantile import GradientQuantile
from ..estimators.validation_gap import Gap
from .svg import Bar
from .text import number
from .words import REMAINDERS, TERMS


class Reading(NamedTuple):
    """One term for people."""

    name: str
    value: float
    share: float
    says: str
    behind: str
    """The factors it is made of."""
    advice: str


def readings(d: Diagnostic, form: Form) -> list[Reading]:
    """The core terms that are available, strongest first."""
    shares, behind = d.attribution(form), _factors(d, form)
    found = [
        Reading(TERMS[key].name, value, shares[key], TERMS[key].says, behind[key], TERMS[key].advice)
        for key, value in d.core_terms(form).items()
        if not math.isnan(value)
    ]
    return sorted(found, key=lambda reading: -reading.value)


def remainder_readings(d: Diagnostic, form: Form) -> list[tuple[str, str]]:
    """Name and meaning of every remainder, with its value."""
    terms = {REMAINDERS[key, form]: value for key, value in d.remainders(form).items()}
    return [(term.name, f"{number(value)}. {term.says} {term.advice}") for term, value in terms.items()]


def core_bars(d: Diagnostic, form: Form) -> list[Bar]:
    """The waterfall from the terms to the core bound."""
    bars = [Bar(TERMS[key].name, value, "term") for key, value in d.core_terms(form).items()]
    return [*bars, Bar("core bound", d.bound_core(form), "total")]


def full_bars(d: Diagnostic, form: Form) -> list[Bar]:
    """The waterfall from the core bound over the remainders to the full bound."""
    bars = [Bar(REMAINDERS[key, form].name, value, "remainder") for key, value in d.remainders(form).items()]
    return [Bar("core bound", d.bound_core(form), "total"), *bars, Bar("full bound", d.bound_full(form), "total")]


def comparison(d: Diagnostic, form: Form) -> str:
    """The true change against the core bound, in one sentence; empty where it is not known."""
    e = d.evidence.risk_change
    if e is None:
        return ""
    change = f"The risk on the anchor really changed by {number(e.value, sign=True)}"
    change += f" (standard error {number(e.standard_error)}, {e.num_samples} test samples)"
    if not math.isnan(e.error_rate):
        change += f", the error rate by {number(e.error_rate, sign=True)}"
    bound = d.bound_core(form)
    if math.isnan(bound):
        return f"{change}."
    holds = "within" if abs(e.value) <= bound else "NOT within"
    ratio = d.tightness(form)
    return f"{change}: {holds} the core bound" + (f", which is {number(ratio)} times as large." if ratio >= 1 else ".")


def estimate_rows(d: Diagnostic) -> list[list[str]]:
    """Every estimate behind the terms, under a header."""
    e, t, m = d.evidence, d.evidence.shift.transport, d.evidence.shift.mmd
    rows = [["estimate", "value", "details"]]
    for name, q in (("old", e.sensitivity_source), ("new", e.sensitivity_target)):
        rows.append([f"sensitivity of the {name} model", *_quantile(q)])
    details = f"{t.cost.replace('_', ' ')} cost, {t.sample_sizes[0]} against {t.sample_sizes[1]} rows"
    details += "" if t.converged else f", not converged: too small by up to {number(t.value_error)}"
    rows.append([d.settings.distance, number(t.value), details])
    if e.shift.floor is not None:
        rows.append(["the same without any shift", number(e.shift.floor.value), "between halves of the source"])
    clipped = ", negative square set to 0" if m.negative else ""
    rows.append(["MMD", number(m.value), f"{m.kernel} kernel, bandwidth {number(m.bandwidth)}{clipped}"])
    if e.rkhs_norm is not None:
        edge = ", at the edge of its grid" if e.rkhs_norm.at_edge else ""
        rows.append(["RKHS norm of the risk", number(e.rkhs_norm.value), f"ridge {number(e.rkhs_norm.ridge)}{edge}"])
    spread = f"standard error {number(e.output_distance.standard_error)}"
    rows.append(["mean distance of the outputs", number(e.output_distance.value), spread])
    rows.append(["Lipschitz constant of the loss", number(e.lipschitz), "in the outputs"])
    return [*rows, ["bound of the loss", number(e.loss_bound), f"convention: {d.settings.loss_bound}"]]


def _factors(d: Diagnostic, form: Form) -> dict[str, str]:
    e, s = d.evidence, d.settings
    W = max(e.shift.transport.value, 0.0)
    L_Q, L_new = (math.nan if q is None else q.value for q in (e.sensitivity_source, e.sensitivity_target))
    B_new = math.nan if e.rkhs_norm is None else e.rkhs_norm.value
    by_norm = f"RKHS norm {number(B_new)} x MMD {number(e.shift.mmd.value)}"
    scaled = f"c_h {number(s.c_h)} x {s.distance} {number(W)}"
    shift = {
        "ot": f"(sensitivities {number(L_Q)} + {number(L_new)}) x {scaled}",
        "mmd": by_norm,
        "hybrid": f"sensitivity {number(L_Q)} x {scaled} + {by_norm}",
    }[form]
    if form != "mmd" and e.shift.floor is not None:
        shift += f"; without any shift the distance would be about {number(e.shift.floor.value)}"
    return {
        "gap_source": _risks(e.gap_source),
        "gap_target": _risks(e.gap_target),
        "model_change": f"Lipschitz constant {number(e.lipschitz)} x mean distance {number(e.output_distance.value)}",
        "emp_shift": shift,
    }


def _risks(gap: Gap | None) -> str:
    return "" if gap is None else f"risk {number(gap.train_risk)} in training, {number(gap.val_risk)} held out"


def _quantile(q: GradientQuantile | None) -> list[str]:
    if q is None:
        return ["n/a", "see the reasons below"]
    labels = ", pseudo-labels" if q.pseudo_labels else ""
    band = f"[{number(q.lower)}, {number(q.upper)}]"
    return [number(q.value), f"{q.q:g} quantile of {q.num_samples} gradient norms, {1 - q.eta:.0%} band {band}{labels}"]
