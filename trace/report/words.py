"""The words of a report, for those who have not read the paper: numbers as people read them, a Diagnostic in sentences,
and its terms: one table of what each says and what lowers it, and what is read off with it.
"""

import math
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from ..diagnostic import FORMS, Diagnostic, Form
from ..estimators.gradient_quantile import GradientQuantile
from ..estimators.validation_gap import Gap

_INTERVAL = re.compile(r"\[[^\s\]]+, [^\s\]]+\]")


def number(value: float, *, sign: bool = False) -> str:
    """Four significant digits; NaN is "n/a"."""
    return "n/a" if math.isnan(value) else f"{value:{'+' if sign else ''}.4g}"


def percent(share: float) -> str:
    """A share in whole percent; NaN is "n/a"."""
    return "n/a" if math.isnan(share) else f"{share:.0%}"


def unbroken(cell: str) -> str:
    """The cell with every interval on one line."""
    return _INTERVAL.sub(lambda interval: interval[0].replace(" ", "\u00a0"), cell)


def in_words(d: Diagnostic) -> list[str]:
    """What the numbers say, a sentence each."""
    return [sentence for sentence in (_change(d), _bound(d), _shift(d)) if sentence]


def continued(sentence: str) -> str:
    """A sentence behind a colon."""
    return sentence[:1].lower() + sentence[1:]


def drawn_form(d: Diagnostic) -> Form:
    """The first form whose core bound is available, else whose shift penalty is; "ot" without any."""
    known = [form for form in FORMS if math.isfinite(d.bound_core(form))]
    known += [form for form in FORMS if math.isfinite(d.shift_penalty(form))]
    return known[0] if known else "ot"


def sentences(notes: Iterable[str]) -> list[str]:
    """Notes as whole sentences, each once.

    >>> sentences(["rows are held out", "rows are held out", "Choose it with --set epsilon=..."])
    ['Rows are held out.', 'Choose it with --set epsilon=...']
    """
    return [note[:1].upper() + note[1:] + ("" if note.endswith(".") else ".") for note in dict.fromkeys(notes)]


def _change(d: Diagnostic) -> str:
    found = d.evidence.risk_change
    if found is None:
        return "The true change of the anchor's risk is not known: that takes a labelled anchor test sample."
    error = "" if math.isnan(found.error_rate) else f"; the error rate changed by {100 * found.error_rate:+.2g} points"
    rows = f"{found.num_samples} labelled rows"
    if math.isnan(found.standard_error):
        return f"True change on the anchor, from {rows}: {number(found.value, sign=True)}{error}."
    spread = f"{number(found.value, sign=True)}, with a standard error of {found.standard_error:.2g} from {rows}"
    if abs(found.value) > 2 * found.standard_error:
        return f"True change on the anchor: {spread}, more than chance explains{error}."
    return f"True change on the anchor: no more than chance explains ({spread}{error})."


def _bound(d: Diagnostic) -> str:
    allowed = [
        f"{d.bound_core(form):.4g} ({form}; {_with_remainders(d.bound_full(form))})"
        for form in ("ot", "mmd")
        if not math.isnan(d.bound_core(form))
    ]
    if not allowed:
        return "There is no bound on the change: a term is missing in every form (see below)."
    vacuous = [s.name for s in d.statements() if s.vacuous and s.name in ("bound_ot", "bound_mmd")]
    said = f" More than {d.evidence.loss_range:.4g} says nothing, as the loss allows no more." if vacuous else ""
    return f"The terms allow a change of up to {' or '.join(allowed)} in either direction.{said}"


def _with_remainders(full: float) -> str:
    return "remainders not known" if math.isnan(full) else f"{full:.4g} with all remainders"


def _shift(d: Diagnostic) -> str:
    shift = d.evidence.shift
    if shift.floor is None:
        return ""
    distance, floor = shift.transport.value, shift.floor.value
    halves = f"two halves of the anchor's own ({distance:.4g} against {floor:.4g})"
    if distance <= floor:
        return (
            f"Anchor and target inputs lie no farther apart than {halves}: by this distance alone the penalty shows no "
            "shift."
        )
    mostly = ", so most of it comes from finite samples and not from a shift" if distance < 2 * floor else ""
    return f"Anchor and target inputs lie farther apart than {halves}{mostly}."


class Term(NamedTuple):
    """A term of the bound for people."""

    name: str
    says: str
    """What it is, a sentence."""
    advice: str
    """What lowers it, a sentence."""


_POPULATION = "What the distance between the training samples may hide of that between their populations."

TERMS = {
    "gap_source": Term(
        "source generalisation gap",
        "By how much the old model's risk differs between its training sample and held-out data.",
        "A large gap points to overfitting of the old model: regularise it, or collect more anchor data.",
    ),
    "gap_target": Term(
        "target generalisation gap",
        "By how much the new model's risk differs between its training sample and held-out data.",
        "A large gap points to overfitting of the new model: regularise the update (weight decay, early stopping, "
        "augmentation), or collect more target data.",
    ),
    "model_change": Term(
        "model change",
        "How far the two models' outputs lie apart on the target sample, in units of the loss.",
        "A large change points to unstable fine-tuning or aggressive hyperparameters: lower the learning rate, train "
        "for fewer epochs, freeze layers, or distil from the old model.",
    ),
    "emp_shift": Term(
        "covariate-shift penalty",
        "How far the inputs moved away from the anchor, times how strongly the losses react to the inputs.",
        "Train the update on data closer to the anchor, or mix anchor data into it; where the sensitivities are the "
        "large factor, smoother models help.",
    ),
    "label_noise": Term(
        "label noise",
        "What the sampling of both training samples leaves open.",
        "Four times the rows halve it; a smaller clip of the logits or a larger delta lowers it too.",
    ),
    "validation_error": Term(
        "validation error",
        "What the sizes of both validation splits leave open.",
        "Four times the rows halve it; a smaller clip of the logits or a larger eta lowers it too.",
    ),
    "population_ot": Term(
        "population",
        _POPULATION,
        "It falls like n^(-1/d) in d > 2 dimensions: more rows hardly help, features of few dimensions do.",
    ),
    "population_mmd": Term(
        "population",
        _POPULATION,
        "Four times the rows halve it, in any dimension; a larger delta lowers it too.",
    ),
}
"""By the keys of `Diagnostic.core_terms` and `Diagnostic.remainders`, or where the form matters by `field_of`."""

STATEMENTS = {
    "loss_range": "the range of the loss alone",
    "anchor_worst_label": "the worst labels that the anchor could have",
    "labelled": "labelled rows of the anchor",
    "bound_direct": "the two-term bound",
    "bound_difference": "the bound of the difference",
    **{f"bound_{form}": f"the paper's bound, {form}" for form in FORMS},
    **{f"bound_full_{form}": f"the paper's bound with all remainders, {form}" for form in FORMS},
}
"""Where a statement about the change of the risk comes from, by its name."""

WORDS = {
    "forms": "ot measures the shift by optimal transport, mmd by a kernel, hybrid by both: three bounds on one change.",
    "core and full": "Without and with the remainders; only the full bound comes with a probability.",
}


def field_of(key: str, form: Form) -> str:
    """The field of a `Diagnostic` that holds a term in one of the forms, which its ``reasons`` go by.

    >>> field_of("population", "hybrid"), field_of("label_noise", "hybrid")
    ('population_mmd', 'label_noise')
    """
    return {"emp_shift": f"emp_shift_{form}", "population": f"population_{'ot' if form == 'ot' else 'mmd'}"}.get(
        key, key
    )


def term(key: str, form: Form) -> Term:
    """A core term or a remainder in one of the forms."""
    return TERMS.get(field_of(key, form)) or TERMS[key]


def glossary(d: Diagnostic, form: Form) -> dict[str, str]:
    """What the words of the report mean, and what to do about a large term."""
    terms = [term(key, form) for key in {**d.core_terms(form), **d.remainders(form)}]
    return {**{each.name: f"{each.says} {each.advice}" for each in terms}, **WORDS}


class Reading(NamedTuple):
    """One term with its value."""

    term: Term
    value: float
    share: float
    """Of the core bound."""
    behind: str
    """The factors it is made of."""
    vacuous: bool
    """At or above what the loss allows: it says nothing."""


def readings(d: Diagnostic, form: Form) -> list[Reading]:
    """The core terms that are available, strongest first; those that say nothing last."""
    shares, behind, values = d.attribution(form), _factors(d, form), d.core_terms(form)
    known = [
        Reading(TERMS[key], value, shares[key], behind[key], value >= d.evidence.loss_range)
        for key, value in values.items()
        if not math.isnan(value)
    ]
    return sorted(known, key=lambda reading: (reading.vacuous, -reading.value))


class Bar(NamedTuple):
    """One line of a waterfall."""

    label: str
    value: float
    """NaN where it is not available."""
    kind: Literal["term", "remainder", "total"]
    """A total starts at 0; the others where the last bar ended."""


def core_bars(d: Diagnostic, form: Form) -> list[Bar]:
    """The waterfall from the terms to the core bound."""
    bars = [Bar(TERMS[key].name, value, "term") for key, value in d.core_terms(form).items()]
    return [*bars, Bar("core bound", d.bound_core(form), "total")]


def full_bars(d: Diagnostic, form: Form) -> list[Bar]:
    """The waterfall from the core bound over the remainders to the full bound."""
    bars = [Bar(term(key, form).name, value, "remainder") for key, value in d.remainders(form).items()]
    return [Bar("core bound", d.bound_core(form), "total"), *bars, Bar("full bound", d.bound_full(form), "total")]


def comparison(d: Diagnostic, form: Form) -> str:
    """The true change against the core bound, in one sentence; empty where it is not known."""
    e = d.evidence.risk_change
    if e is None:
        return ""
    noise = "no more than chance explains, " if not abs(e.value) > 2 * e.standard_error else ""
    change = f"The risk on the anchor really changed by {noise}{number(e.value, sign=True)}"
    change += f" (standard error {number(e.standard_error)}, {e.num_samples} test samples)"
    if not math.isnan(e.error_rate):
        change += f", the error rate by {number(e.error_rate, sign=True)}"
    bound = d.bound_core(form)
    if math.isnan(bound):
        return f"{change}."
    holds = "within" if abs(e.value) <= bound else "NOT within"
    ratio = d.tightness(form)
    return f"{change}: {holds} the core bound" + (f", which is {number(ratio)} times as large." if ratio >= 1 else ".")


def statement_rows(d: Diagnostic) -> list[list[str]]:
    """What limits the change of the risk, under a header: what holds, the smallest first, then what is conditional."""
    known = sorted(d.statements(), key=lambda s: (not s.valid, s.value))
    rows = [
        [
            STATEMENTS[s.name],
            number(s.value),
            "always" if s.level == 1 else "n/a" if math.isnan(s.level) else f"{s.level:.0%}",
            s.needs if s.valid else "conditions that are not known to hold",
        ]
        for s in known
        if s.valid or not s.vacuous
    ]
    return [["by", "at most", "probability", "given that"], *rows]


def vacuous_statements(d: Diagnostic) -> list[str]:
    """Those that are more than the loss allows, with their values."""
    return [f"{STATEMENTS[s.name]} ({number(s.value)})" for s in d.statements() if s.vacuous and not s.valid]


def estimate_rows(d: Diagnostic) -> list[list[str]]:
    """Every estimate behind the terms, under a header."""
    e, t, m = d.evidence, d.evidence.shift.transport, d.evidence.shift.mmd
    compared = f"{t.cost.replace('_', ' ')} cost, {t.sample_sizes[0]} against {t.sample_sizes[1]} rows"
    short = "" if t.converged else f", not converged: too small by up to {number(t.value_error)}"
    clipped = ", negative square set to 0" if m.negative else ""
    spread = f"standard error {number(e.output_distance.standard_error)}"
    floor, norm = [], []
    if e.shift.floor is not None:
        floor = [["the same without any shift", number(e.shift.floor.value), "between halves of the source"]]
    if e.rkhs_norm is not None:
        edge = ", at the edge of its grid" if e.rkhs_norm.at_edge else ""
        norm = [["RKHS norm of the risk", number(e.rkhs_norm.value), f"ridge {number(e.rkhs_norm.ridge)}{edge}"]]
    return [
        ["estimate", "value", "details"],
        ["sensitivity of the old model", *_quantile(e.sensitivity_source)],
        ["sensitivity of the new model", *_quantile(e.sensitivity_target)],
        [d.settings.distance, number(t.value), compared + short],
        *floor,
        ["MMD", number(m.value), f"{m.kernel} kernel, bandwidth {number(m.bandwidth)}{clipped}"],
        *norm,
        ["mean distance of the outputs", number(e.output_distance.value), spread],
        ["Lipschitz constant of the loss", number(e.lipschitz), "in the outputs"],
        ["bound of the loss", number(e.loss_bound), f"convention: {d.settings.loss_bound}"],
    ]


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
