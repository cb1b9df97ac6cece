"""A Diagnostic for people: plain text and Markdown."""

import math
import re
from collections.abc import Sequence

from ..diagnostic import FORMS, Diagnostic
from ..escaping import markdown_text, one_line
from ..estimators.anchor import AnchorTerm
from .brief import diagnosis
from .words import drawn_form, glossary, in_words, number, percent, term

_LONG = 40
"""Characters from which on a column of text is kept from getting narrow."""
_NUMBER = re.compile(r"([+-]?(\d[\d.e+-]*%?|inf)|n/a)?")


def to_text(d: Diagnostic) -> str:
    """The attribution as aligned text for a terminal."""
    lines = ["TRACE diagnostic", *(one_line(line) for line in diagnosis(d)), *in_words(d), ""]
    lines += [*aligned(term_rows(d)), "", *aligned(bound_rows(d)), ""]
    lines += ["on the anchor's own inputs:", *aligned(anchor_rows(d))]
    if d.reasons:
        lines += [
            "",
            "not available, or to be read with care:",
            *(f"  {name}: {one_line(why)}" for name, why in sorted(d.reasons.items())),
        ]
    lines += ["", "what the words mean:", *(f"  {name}: {text}" for name, text in glossary(d, drawn_form(d)).items())]
    return "\n".join(line.rstrip() for line in [*lines, "", _footer(d)])


def to_markdown(d: Diagnostic) -> str:
    """The attribution as Markdown tables, e.g. for a pull request."""
    first, *others = diagnosis(d)
    parts = ["## TRACE diagnostic", f"**{markdown_text(first)}**", "\n".join(f"- {markdown_text(o)}" for o in others)]
    parts = [part for part in [*parts, " ".join(in_words(d))] if part]
    parts += [markdown_table(term_rows(d)), markdown_table(bound_rows(d))]
    parts += ["On the anchor's own inputs:", markdown_table(anchor_rows(d))]
    if d.reasons:
        parts.append(
            "Not available, or to be read with care:\n\n"
            + "\n".join(f"- `{name}`: {markdown_text(why)}" for name, why in sorted(d.reasons.items()))
        )
    parts.append(
        "What the words mean:\n\n"
        + "\n".join(f"- *{name}*: {text}" for name, text in glossary(d, drawn_form(d)).items())
    )
    return "\n\n".join([*parts, _footer(d)])


def term_rows(d: Diagnostic) -> list[list[str]]:
    """Every core term and remainder in every form, under a header."""
    form = drawn_form(d)
    shares = {key: percent(share) for key, share in d.attribution(form).items()}
    by_form = [{**d.core_terms(each), **d.remainders(each)} for each in FORMS]
    body = [
        [term(key, form).name, *(number(terms[key]) for terms in by_form), shares.get(key, "")] for key in by_form[0]
    ]
    return [["term", *FORMS, f"share ({form})"], *body]


def bound_rows(d: Diagnostic) -> list[list[str]]:
    """Core and full bound and the tightness in every form, under a header."""
    return [
        ["bound", *FORMS],
        ["core", *(number(d.bound_core(form)) for form in FORMS)],
        ["full", *(number(d.bound_full(form)) for form in FORMS)],
        ["core / |change|", *(number(d.tightness(form)) for form in FORMS)],
    ]


def anchor_rows(d: Diagnostic) -> list[list[str]]:
    """Terms on the anchor's own inputs, and what labels show there, with the interval that the gate uses."""
    anchor, labelled, ends = d.evidence.anchor, d.evidence.labelled, d.intervals()

    def row(name: str, score: str, term: AnchorTerm) -> list[str]:
        interval = f"[{number(ends[score].lower)}, {number(ends[score].upper)}]" if score in ends else term.reason
        return [name, number(term.value), interval]

    rows = [
        ["term", "value", f"{1 - d.settings.delta:.0%} interval, for all n"],
        row("worst label: |change| at most", "anchor_worst_label", anchor.worst_label),
        row("Lipschitz: |change| at most", "anchor_lipschitz", anchor.lipschitz),
        row("disagreement: |error change| at most", "anchor_disagreement", anchor.disagreement),
        row("plug-in estimate of the change", "anchor_plug_in", anchor.plug_in),
        row("plug-in estimate of the error's rise", "anchor_error_plug_in", anchor.error_plug_in),
    ]
    if labelled is not None:
        rows += [
            row("change of the risk, by labels", "risk_change", labelled.risk),
            row("change of the error rate, by labels", "error_change", labelled.error),
        ]
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
    return "\n".join("| " + " | ".join(markdown_text(cell) for cell in row) + " |" for row in lines)


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
