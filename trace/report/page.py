"""The report as one HTML file that needs nothing else: no network, no script, no font, no style sheet.

Words and elements are those of ``page.html.j2``, which escapes all that it is given; looks are those of ``page.css``.
"""

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined

from ..escaping import printable
from ..gate.policy import WORST_FIRST, AnchorVerdict, Verdict, shown
from ..stats.conformal import PastUpdate
from ..version import own_version
from .brief import diagnosis, telling_terms
from .case import NEIGHBOURS, Example, Prediction, ReportCase, report_case
from .changes import SHOWN, drift_rows, slice_rows
from .charts import drift_bars, dumbbells, embedding_scatter, intervals, past_scatter, waterfall
from .text import anchor_rows, bound_rows, column_kinds, promise, term_rows
from .verdict import what_was_seen
from .words import (
    TERMS,
    comparison,
    core_bars,
    drawn_form,
    estimate_rows,
    field_of,
    full_bars,
    number,
    percent,
    readings,
    sentences,
    statement_rows,
    term,
    unbroken,
    vacuous_statements,
)

__all__ = ["Example", "Prediction", "ReportCase", "report_case", "to_html"]

_SHOWN_PAST = 12


def to_html(
    cases: Sequence[ReportCase],
    *,
    verdict: Verdict | None = None,
    past: Sequence[PastUpdate] = (),
    harm_above: float = 0.0,
    title: str,
    about: Mapping[str, str],
) -> str:
    """The whole page. The same input gives the same text: what changes from run to run belongs into ``about``.

    Args:
        cases: one per anchor; may be empty if there is a verdict.
        verdict: what the gate says; without one the page opens with each anchor's largest term.
        past: earlier updates whose outcome is known, on the score of the policy's required rule.
        harm_above: the rise of the risk that is still no harm.
        about: what to say about the run, in this order: command, models, data, date.

    Raises:
        ValueError: for neither case nor verdict, or two cases of one name.
    """
    if not cases and verdict is None:
        raise ValueError("there is nothing to report: pass at least one case or a verdict")
    if len({case.anchor for case in cases}) != len(cases):
        raise ValueError("two cases have the same anchor: give every anchor its own name")
    judged = _worst_first(verdict) if verdict else []
    place = {v.anchor: i for i, v in enumerate(judged)}
    ordered = sorted(cases, key=lambda case: place.get(case.anchor, len(place)))
    page = (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            verdict=verdict,
            seen=_seen(verdict, cases),
            judged=judged,
            verdict_chart=intervals(judged[:1], f"Score of {judged[0].anchor} against the limit", name="verdict")
            if judged
            else "",
            score_charts=_score_charts(judged) if len(judged) > 1 else [],
            cases=[_material(case, f"anchor-{i}") for i, case in enumerate(ordered)],
            neighbours=NEIGHBOURS,
            history=_history(past, _required(verdict, judged), harm_above) if past else None,
            facts=[["item", "value"], *({**about, **_versions()}.items())],
            settings=_settings(ordered),
        )
    )
    return printable(page)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(str(__package__), ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    shared = (number, percent, sentences, shown, term_rows, bound_rows, anchor_rows, estimate_rows, promise)
    environment.filters |= {function.__name__: function for function in (*shared, column_kinds, unbroken)}
    return environment


def _seen(verdict: Verdict | None, cases: Sequence[ReportCase]) -> list[str]:
    """What was seen on the anchor that decides, a sentence each; nothing where its diagnostic is not at hand."""
    found = [case.diagnostic for case in cases if verdict is not None and case.anchor == verdict.worst]
    return what_was_seen(verdict, found[0]) if verdict is not None and found else []


def _worst_first(verdict: Verdict) -> list[AnchorVerdict]:
    def key(v: AnchorVerdict) -> tuple[bool, int, float]:
        excess = v.upper - v.threshold
        return v.anchor != verdict.worst, WORST_FIRST.index(v.decision), math.inf if math.isnan(excess) else -excess

    return sorted(verdict.anchors, key=key)


def _score_charts(judged: Sequence[AnchorVerdict]) -> list[tuple[str, str]]:
    """All anchors in a picture per score."""
    by_score = {score: [v for v in judged if v.score == score] for score in dict.fromkeys(v.score for v in judged)}
    return [
        (score, intervals(group, "All anchors", name=f"score-{i}", labels=[f"{v.anchor}: {v.decision}" for v in group]))
        for i, (score, group) in enumerate(by_score.items())
    ]


def _material(case: ReportCase, name: str) -> dict[str, Any]:
    """What the page shows about one anchor."""
    d = case.diagnostic
    form, change, most = drawn_form(d), abs(d.risk_change), d.evidence.loss_range
    terms = {**d.core_terms(form), **d.remainders(form)}
    labelled = bool(case.classes) and not math.isnan(case.classes[0].before)
    missing = [key for key, value in terms.items() if math.isnan(value)]
    shares = [[event.replace("_", " "), number(share)] for event, share in d.budget._asdict().items()]
    return {
        **case._asdict(),
        "diagnosis": diagnosis(d),
        "form": form,
        "comparison": comparison(d, form),
        "has_core": not math.isnan(d.bound_core(form)),
        "has_full": not math.isnan(d.bound_full(form)),
        "core_chart": waterfall(
            core_bars(d, form), "From the terms to the core bound", name=f"{name}-core", change=change, most=most
        ),
        "full_chart": waterfall(
            full_bars(d, form), "From the core bound to the full bound", name=f"{name}-full", change=change, most=most
        ),
        "loss_range": most,
        "telling": [TERMS[key].name for key in telling_terms(d)],
        "vacuous": [term(key, form).name for key, value in terms.items() if value >= most],
        "vacuous_sums": [
            word for word, total in (("core", d.bound_core(form)), ("full", d.bound_full(form))) if total >= most
        ],
        "statements": statement_rows(d),
        "vacuous_statements": vacuous_statements(d),
        "class_rows": slice_rows(case.classes, "class" if labelled else "class that the old model predicts"),
        "group_rows": slice_rows(case.groups, "group"),
        "recall_chart": dumbbells(
            case.classes[:SHOWN], "Recall of every class, before and after", name=f"{name}-recall"
        )
        if labelled
        else "",
        "drift_rows": drift_rows(case.drift),
        "drift_chart": drift_bars(case.drift[:SHOWN], "Drift by column", name=f"{name}-drift") if case.drift else "",
        "labelled": d.evidence.labelled,
        "embedding_chart": case.embedding
        and embedding_scatter(case.embedding, "Features of source and target", name=f"{name}-embedding"),
        "missing": [(key, d.reasons.get(field_of(key, form), "could not be computed")) for key in missing],
        "readings": readings(d, form),
        "remainders": [(term(key, form), value) for key, value in d.remainders(form).items()],
        "sizes": [["sample", "rows"], *([sample.replace("_", " "), str(n)] for sample, n in d.evidence.sizes.items())],
        "budget": [["event", "may fail with probability"], *shares, ["any of them", number(d.budget.total)]],
    }


def _required(verdict: Verdict | None, judged: Sequence[AnchorVerdict]) -> AnchorVerdict | None:
    """What past updates are compared with: the required rule of the anchor that decides, also where a guard decides."""
    if verdict is None or not judged:
        return None
    rules = (v for v in verdict.rules if v.anchor == judged[0].anchor and v.role == "required")
    return next(rules, judged[0])


def _history(past: Sequence[PastUpdate], new: AnchorVerdict | None, harm_above: float) -> dict[str, Any]:
    """The score against updates whose outcome is known, and those closest to it."""
    known = [p for p in past if math.isfinite(p.score) and math.isfinite(p.risk_change)]
    sides = []
    if new is not None and math.isfinite(new.threshold):
        for side, above in (("at or below", False), ("above", True)):
            group = [p for p in known if (p.score > new.threshold) == above]
            sides.append((side, len(group), sum(p.risk_change > harm_above for p in group)))
    scored = new is not None and math.isfinite(new.value)
    at = new.value if new is not None and scored else max((p.score for p in known), default=0.0)
    near = sorted(known, key=lambda p: (abs(p.score - at), p.name))[:_SHOWN_PAST]
    rows = [[p.name, number(p.score), number(p.risk_change, sign=True)] for p in sorted(near, key=lambda p: p.score)]
    which = "closest in score" if scored else "with the largest scores"
    title = "Scores of past updates against their risk change"
    return {
        "known": len(known),
        "unknown": len(past) - len(known),
        "sides": sides,
        "chart": past_scatter(past, new, title, name="past", harm_above=harm_above),
        "rows": [["update", "score", "risk change"], *rows],
        "caption": "All of them" if len(near) == len(known) else f"The {len(near)} {which}",
    }


def _settings(cases: Sequence[ReportCase]) -> list[tuple[list[list[str]], str]]:
    """A table for all anchors with the same settings, with its caption."""
    found = {case.anchor: case.diagnostic.settings for case in cases}
    shared = {settings: [anchor for anchor in found if found[anchor] == settings] for settings in found.values()}
    return [
        (
            [["setting", "value"], *([name, _setting(value)] for name, value in asdict(settings).items())],
            "Settings" if len(anchors) == len(cases) else f"Settings of {', '.join(anchors)}",
        )
        for settings, anchors in shared.items()
    ]


def _setting(value: object) -> str:
    return "by default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _versions() -> dict[str, str]:
    return {"trace": own_version(), "python": platform.python_version(), "torch": torch.__version__}
