"""The report's part about one anchor: attribution, readings, its own inputs, embedding, examples, estimates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..diagnostic import Diagnostic, Form
from .case import NEIGHBOURS, Example, Prediction, ReportCase
from .markup import element, escape, items, markup_table, paragraph, table
from .scatter import embedding_scatter
from .svg import waterfall
from .terms import comparison, core_bars, estimate_rows, full_bars, readings, remainder_readings
from .text import anchor_rows, bound_rows, drawn_form, number, percent, promise, term_rows
from .words import sentences

_FORM_WORDS: dict[Form, str] = {
    "ot": "transport distance (ot)",
    "mmd": "MMD (mmd)",
    "hybrid": "transport distance for the old and MMD for the new model (hybrid)",
}

_BESIDE = "Beside it, either model's class with its probability."


def figure(svg: str, caption: str) -> str:
    """A drawing and what it shows."""
    return element("figure", svg, element("figcaption", escape(caption)))


def heading(text: str, level: int = 3, **attributes: object) -> str:
    """An escaped heading."""
    return element(f"h{level}", escape(text), **attributes)


def keep(*content: str) -> str:
    """A section that paper does not divide."""
    return element("section", *content, class_="keep")


def case_sections(case: ReportCase, past: str) -> str:
    """Everything about one anchor; ``past`` is put between the anchor's own inputs and the embedding."""
    d = case.diagnostic
    return "".join(
        [attribution(d), meaning(d), own_inputs(d), past, where(case), *examples(case), estimates(d), reasons(d)]
        + ([heading("Notes"), remarks(case.notes)] if case.notes else [])
    )


def remarks(notes: Iterable[str]) -> str:
    """What was decided or noticed on the way, a sentence each."""
    return element("ul", *(element("li", escape(sentence)) for sentence in sentences(notes)))


def attribution(d: Diagnostic) -> str:
    """Both waterfalls, and beside them the numbers of every form."""
    form = drawn_form(d)
    change = abs(d.risk_change)
    words = f"Shift penalty from the {_FORM_WORDS[form]}. Each bar starts where the last one ended."
    if math.isnan(d.bound_core(form)):
        words += " A term is not available, so there is no bound: the dashed outline is the sum of what is known."
    core = figure(waterfall(core_bars(d, form), "From the terms to the core bound", change=change), words)
    more = "The statistical remainders on top of the core bound, on a scale of their own."
    if math.isnan(d.bound_full(form)):
        more += " Not all is available, so there is no full bound: the dashed outline is the sum of what is known."
    full = figure(waterfall(full_bars(d, form), "From the core bound to the full bound", change=change), more)
    missing = [(key.replace("_", " "), why) for key, why in _unavailable(d, form).items()]
    numbers = [
        table(term_rows(d), "Terms in units of the loss, in three forms that differ in the shift penalty"),
        table(bound_rows(d), "Their sums"),
    ]
    seen = comparison(d, form)
    sides = element("div", element("div", core, full), element("div", *numbers), class_="pair")
    body = keep(heading("What the bound is made of"), paragraph(seen) if seen else "", sides)
    return body + (keep(paragraph("Not available:"), items(missing)) if missing else "")


def _unavailable(d: Diagnostic, form: Form) -> dict[str, str]:
    """Reasons of the drawn terms that are missing."""
    terms = {**d.core_terms(form), **d.remainders(form)}
    keys = {"emp_shift": f"emp_shift_{form}", "population": "population_ot" if form == "ot" else "population_mmd"}
    missing = [key for key, value in terms.items() if math.isnan(value)]
    return {key: d.reasons.get(keys.get(key, key), "could not be computed") for key in missing}


def meaning(d: Diagnostic) -> str:
    """What each term says and what to do about it, strongest first."""
    form = drawn_form(d)
    entries = [
        element(
            "li",
            element("b", escape(f"{r.name}: {number(r.value)}")),
            escape("" if math.isnan(r.share) else f", {percent(r.share)} of the core bound"),
            paragraph(" ".join([r.says, f"Here: {r.behind}." if r.behind else ""]).strip()),
            paragraph(r.advice),
        )
        for r in readings(d, form)
    ]
    body = element("ol", *entries, class_="readings") if entries else paragraph("No term could be computed.")
    rest = paragraph("The remainders are the price of finite samples, not of the update:")
    return heading("What to do about it, strongest first") + body + keep(rest, items(remainder_readings(d, form)))


def own_inputs(d: Diagnostic) -> str:
    """The label-free bounds on the anchor's inputs."""
    level = 1 - d.settings.delta
    words = (
        f"Both models run on {d.evidence.anchor.num_samples} inputs of the anchor, without labels: direct bounds on "
        f"the change there, which pay for no shift. Each interval holds alone at {level:.0%}."
    )
    care = paragraph(f"Read with care: {d.reasons['anchor']}.") if "anchor" in d.reasons else ""
    rows = table(anchor_rows(d), "Label-free terms with finite-sample intervals")
    return keep(heading("On the anchor's own inputs"), paragraph(words), care, rows)


def where(case: ReportCase) -> str:
    """Both samples' features in two dimensions."""
    if case.embedding is None:
        return ""
    e = case.embedding
    words = (
        f"Principal components of the features, fitted on {e.sizes[0]} source and {e.sizes[1]} target rows; the two "
        f"axes hold {percent(sum(e.explained))} of the variance. One unit is equally long on both."
    )
    return keep(heading("Where the inputs lie"), figure(embedding_scatter(e, "Features of source and target"), words))


def examples(case: ReportCase) -> list[str]:
    """Most-shifted and most-disagreeing rows."""
    parts = []
    if case.shifted:
        words = (
            f"Target inputs farthest from the source: mean feature distance to the {NEIGHBOURS} nearest source inputs. "
            f"A source input has {number(case.typical_distance)} in the median. {_BESIDE}"
        )
        rows = _example_table(case.shifted, "distance", "Most-shifted inputs of the target")
        parts.append(keep(heading("Most-shifted examples"), paragraph(words), rows))
    if case.disagreeing:
        words = (
            "Anchor inputs on which the models differ most: total variation between their predictive distributions, "
            f"from 0 to 1. The mean over all anchor inputs is {number(case.mean_disagreement)}. {_BESIDE}"
        )
        rows = _example_table(case.disagreeing, "total variation", "Inputs of the anchor with the largest disagreement")
        parts.append(keep(heading("Most-disagreeing examples"), paragraph(words), rows))
    return parts


def _example_table(found: Sequence[Example], measure: str, caption: str) -> str:
    images, labels = any(x.image for x in found), any(x.label for x in found)
    predicted = any(x.old for x in found)
    header = ["input", *(["image"] if images else []), measure, *(["old model", "new model"] if predicted else [])]
    rows = [header + (["true label"] if labels else [])]
    for x in found:
        cells = [element("bdi", escape(x.name)), *([_image(x)] if images else []), number(x.value)]
        if predicted:
            changed = x.old is not None and x.new is not None and x.old.label != x.new.label
            cells += [_prediction(x.old, False), _prediction(x.new, changed)]
        rows.append(cells + ([element("bdi", escape(x.label or "n/a"))] if labels else []))
    return element("div", markup_table(rows, caption), class_="examples")


def _prediction(p: Prediction | None, changed: bool) -> str:
    if p is None:
        return "n/a"
    words = f"{element('bdi', escape(p.label))} ({p.confidence:.1%})"
    return element("span", words + ", changed", class_="differs") if changed else words


def _image(x: Example) -> str:
    return f'<img src="{escape(x.image)}" alt="{escape(f"input {x.name}")}">' if x.image else "n/a"


def estimates(d: Diagnostic) -> str:
    """Estimates, sizes and the guarantee with its budget and conditions."""
    sizes = [["sample", "rows"], *([name.replace("_", " "), str(n)] for name, n in d.evidence.sizes.items())]
    shares = [[name.replace("_", " "), number(p)] for name, p in d.budget._asdict().items()]
    budget = [["event", "may fail with probability"], *shares, ["any of them", number(d.budget.total)]]
    said = promise(d) or "There is no full bound in the ot or hybrid form here, so nothing is guaranteed."
    sides = element("div", table(sizes, "Sizes"), table(budget, "Budget of the full bound"), class_="pair")
    return keep(heading("Estimates and guarantee"), table(estimate_rows(d), "Behind the terms"), sides, paragraph(said))


def reasons(d: Diagnostic) -> str:
    """What is not available, or to be read with care, and why."""
    if not d.reasons:
        return ""
    listed = items([(name.replace("_", " "), why) for name, why in sorted(d.reasons.items())])
    return heading("Not available, or to be read with care") + listed
