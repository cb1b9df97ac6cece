"""Numbers as people read them, and a Diagnostic in sentences, for those who have not read the paper."""

import math
import re
from collections.abc import Iterable

from ..diagnostic import Diagnostic

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INTERVAL = re.compile(r"\[[^\s\]]+, [^\s\]]+\]")


def printable(text: str) -> str:
    """The text with U+FFFD for control characters and halves of surrogate pairs, which file names hold.

    >>> printable("a\\x00b")
    'a\ufffdb'
    """
    return _CONTROL.sub("\ufffd", text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def number(value: float, *, sign: bool = False) -> str:
    """Four significant digits; NaN is "n/a"."""
    if math.isnan(value):
        return "n/a"
    return f"{value:{'+' if sign else ''}.4g}"


def percent(share: float) -> str:
    """A share in whole percent; NaN is "n/a"."""
    return "n/a" if math.isnan(share) else f"{share:.0%}"


def unbroken(cell: str) -> str:
    """The cell with every interval on one line."""
    return _INTERVAL.sub(lambda interval: interval[0].replace(" ", "\u00a0"), cell)


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
