"""A Diagnostic in sentences, for people who have not read the paper."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from ..diagnostic import Diagnostic, Form


class Term(NamedTuple):
    """A term of the bound for people."""

    name: str
    says: str
    """What it is, a sentence."""
    advice: str
    """What lowers it, a sentence."""


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
}
"""By the keys of `Diagnostic.core_terms`."""

_POPULATION = "What the distance between the training samples may hide of that between their populations."
REMAINDERS: dict[tuple[str, Form], Term] = {
    **dict.fromkeys(
        (("label_noise", "ot"), ("label_noise", "mmd"), ("label_noise", "hybrid")),
        Term(
            "label noise",
            "What the sampling of both training samples leaves open.",
            "Four times the rows halve it; a smaller clip of the logits or a larger delta lowers it too.",
        ),
    ),
    **dict.fromkeys(
        (("validation_error", "ot"), ("validation_error", "mmd"), ("validation_error", "hybrid")),
        Term(
            "validation error",
            "What the sizes of both validation splits leave open.",
            "Four times the rows halve it; a smaller clip of the logits or a larger eta lowers it too.",
        ),
    ),
    ("population", "ot"): Term(
        "population",
        _POPULATION,
        "It falls like n^(-1/d) in d > 2 dimensions: more rows hardly help, features of few dimensions do.",
    ),
    **dict.fromkeys(
        (("population", "mmd"), ("population", "hybrid")),
        Term(
            "population",
            _POPULATION,
            "Four times the rows halve it, in any dimension; a larger delta lowers it too.",
        ),
    ),
}
"""By the keys of `Diagnostic.remainders`, in each form."""

WORDS = {
    "forms": "ot measures the shift by optimal transport, mmd by a kernel, hybrid by both: three bounds on one change.",
    "core and full": "Without and with the remainders; only the full bound comes with a probability.",
}


def glossary(form: Form) -> dict[str, str]:
    """What the words of the report mean, and what to do about a large term; remainders as in this form."""
    terms = [*TERMS.values(), *(term for (_, own), term in REMAINDERS.items() if own == form)]
    return {**{term.name: f"{term.says} {term.advice}" for term in terms}, **WORDS}


def in_words(d: Diagnostic) -> list[str]:
    """What the numbers say, a sentence each."""
    return [sentence for sentence in (_change(d), _bound(d), _disagreement(d), _shift(d)) if sentence]


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
    if math.isnan(found.standard_error):
        return f"The true change comes from {found.num_samples} labelled rows{error}."
    sure = "more" if abs(found.value) > 2 * found.standard_error else "no more"
    return (
        f"The true change comes from {found.num_samples} labelled rows with a standard error of "
        f"{found.standard_error:.2g}: {sure} than chance explains{error}."
    )


def _bound(d: Diagnostic) -> str:
    allowed = [
        f"{d.bound_core(form):.4g} ({form}; {_with_remainders(d.bound_full(form))})"
        for form in ("ot", "mmd")
        if not math.isnan(d.bound_core(form))
    ]
    if not allowed:
        return "There is no bound on the change: a term is missing in every form (see below)."
    return f"The terms allow a change of up to {' or '.join(allowed)} in either direction."


def _with_remainders(full: float) -> str:
    return "remainders not known" if math.isnan(full) else f"{full:.4g} with all remainders"


def _disagreement(d: Diagnostic) -> str:
    anchor = d.evidence.anchor
    if math.isnan(anchor.disagreement.value):
        return ""
    share = anchor.disagreement.value
    return (
        f"The models disagree on {share:.2%} of {anchor.num_samples} anchor inputs, so there the error rate changes by "
        "no more than that."
    )


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
