"""A Diagnostic for people: plain text and Markdown."""

import math
import re
from collections.abc import Sequence

from ..diagnostic import FORMS, Diagnostic, Form
from .words import TERMS, glossary, in_words, number, percent, term

_LONG = 40
"""Characters from which on a column of text is kept from getting narrow."""
_NUMBER = re.compile(r"([+-]?(\d[\d.e+-]*%?|inf)|n/a)?")


def to_text(d: Diagnostic) -> str:
    """The attribution as aligned text for a terminal."""
    lines = ["TRACE diagnostic", headline(d), *in_words(d), ""]
    lines += [*aligned(term_rows(d)), "", *aligned(bound_rows(d)), ""]
    lines += ["on the anchor's own inputs:", *aligned(anchor_rows(d))]
    if d.reasons:
        lines += [
            "",
            "not available, or to be read with care:",
            *(f"  {name}: {why}" for name, why in sorted(d.reasons.items())),
        ]
    lines += ["", "what the words mean:", *(f"  {name}: {text}" for name, text in glossary(d, drawn_form(d)).items())]
    return "\n".join(line.rstrip() for line in [*lines, "", _footer(d)])


def to_markdown(d: Diagnostic) -> str:
    """The attribution as Markdown tables, e.g. for a pull request."""
    parts = ["## TRACE diagnostic", f"**{headline(d)}** {' '.join(in_words(d))}"]
    parts += [markdown_table(term_rows(d)), markdown_table(bound_rows(d))]
    parts += ["On the anchor's own inputs:", markdown_table(anchor_rows(d))]
    if d.reasons:
        parts.append(
            "Not available, or to be read with care:\n\n"
            + "\n".join(f"- `{name}`: {why}" for name, why in sorted(d.reasons.items()))
        )
    parts.append(
        "What the words mean:\n\n"
        + "\n".join(f"- *{name}*: {text}" for name, text in glossary(d, drawn_form(d)).items())
    )
    return "\n\n".join([*parts, _footer(d)])


def headline(d: Diagnostic) -> str:
    """One or two sentences: the true change if known, the largest term and what lowers it."""
    terms = {name: value for name, value in d.core_terms(drawn_form(d)).items() if not math.isnan(value)}
    if not terms:
        return "No term of the bound could be computed."
    largest = max(terms, key=lambda name: terms[name])
    change = "" if math.isnan(d.risk_change) else f"True change on the anchor: {number(d.risk_change, sign=True)}. "
    return f"{change}Largest term: {TERMS[largest].name} ({number(terms[largest])}). {TERMS[largest].advice}"


def drawn_form(d: Diagnostic) -> Form:
    """The first form whose core bound is available, else whose shift penalty is; "ot" without any."""
    known = [form for form in FORMS if math.isfinite(d.bound_core(form))]
    known += [form for form in FORMS if math.isfinite(d.shift_penalty(form))]
    return known[0] if known else "ot"


def term_rows(d: Diagnostic) -> list[list[str]]:
    """Every core term and remainder in every form, under a header."""
    form = drawn_form(d)
    rows = [["term", *FORMS, f"share ({form})"]]
    shares = d.attribution(form)
    for key in d.core_terms():
        rows.append([TERMS[key].name, *[number(d.core_terms(each)[key]) for each in FORMS], percent(shares[key])])
    for key in d.remainders():
        rows.append([term(key, form).name, *(number(d.remainders(each)[key]) for each in FORMS), ""])
    return rows


def bound_rows(d: Diagnostic) -> list[list[str]]:
    """Core and full bound and the tightness in every form, under a header."""
    return [
        ["bound", *FORMS],
        ["core", *(number(d.bound_core(form)) for form in FORMS)],
        ["full", *(number(d.bound_full(form)) for form in FORMS)],
        ["core / |change|", *(number(d.tightness(form)) for form in FORMS)],
    ]


def anchor_rows(d: Diagnostic) -> list[list[str]]:
    """The label-free terms on the anchor's own inputs with both intervals, under a header."""
    rows = [["term", "value", "Hoeffding", "Bernstein"]]
    anchor = d.evidence.anchor
    for name, bound in (
        ("worst label: |change| at most", anchor.worst_label),
        ("Lipschitz: |change| at most", anchor.lipschitz),
        ("disagreement: |error change| at most", anchor.disagreement),
        ("plug-in estimate of the change", anchor.plug_in),
    ):
        intervals = [f"[{number(i.lower)}, {number(i.upper)}]" for i in (bound.hoeffding, bound.bernstein)]
        rows.append([name, number(bound.value), *(intervals if not bound.reason else [bound.reason, ""])])
    return rows


def _footer(d: Diagnostic) -> str:
    e, shift = d.evidence, d.evidence.shift
    notes = [f"{d.settings.distance} {number(shift.transport.value)} ({shift.transport.cost.replace('_', ' ')} cost)"]
    if not shift.transport.converged:
        notes[0] += f", not converged: too small by up to {number(shift.transport.value_error)}"
    if shift.floor is not None:
        notes.append(f"without any shift it would be about {number(shift.floor.value)}")
    notes.append(f"MMD {number(shift.mmd.value)}" + (" (negative square, set to 0)" if shift.mmd.negative else ""))
    notes += [
        f"{name} sensitivity from pseudo-labels"
        for name, estimate in (("source", e.sensitivity_source), ("target", e.sensitivity_target))
        if estimate is not None and estimate.pseudo_labels
    ]
    notes.append("sizes: " + ", ".join(f"{name} {size}" for name, size in e.sizes.items()))
    return f"{'; '.join(notes)}. {promise(d)}".rstrip()


def promise(d: Diagnostic) -> str:
    """What the full bound would guarantee, in which forms and under which conditions; empty without a full bound.

    The mmd form leaves out the old model's sensitivity and guarantees nothing.
    """
    forms = [form for form in FORMS if form != "mmd" and math.isfinite(d.bound_full(form))]
    if not forms:
        return ""
    shares = ", ".join(f"{name.replace('_', ' ')} {share:g}" for name, share in d.budget._asdict().items())
    conditions = "the gradient quantiles are Lipschitz constants, c_h is right"
    conditions += ", the W1 constants are right" if "ot" in forms else ""
    conditions += ", the RKHS norm and the MMD constant are right" if "hybrid" in forms else ""
    conditions += ", the Sinkhorn divergence is at least W1" if d.settings.distance == "sinkhorn" else ""
    return (
        f"The full bound ({', '.join(forms)}) fails with probability at most {d.budget.total:g} ({shares}) provided "
        f"that {conditions}, and the samples are independent of the models."
    )


def aligned(rows: list[list[str]]) -> list[str]:
    """A table for a terminal, a line each, its columns one below the other."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def markdown_table(rows: list[list[str]]) -> str:
    """A table in Markdown, its header first."""
    header, *body = rows
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def column_kinds(rows: Sequence[Sequence[str]]) -> list[str | None]:
    """The class of every column below the header: "number", "long" or none.

    >>> column_kinds([["term", "value"], ["model change", "1.5"], ["gap", "n/a"]])
    [None, 'number']
    """
    columns = list(zip(*rows[1:], strict=True)) or [(" ",)] * len(rows[0])
    return [
        "number" if all(map(_NUMBER.fullmatch, column)) else "long" if max(map(len, column)) > _LONG else None
        for column in columns
    ]
