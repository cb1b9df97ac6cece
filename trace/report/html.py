"""The report as one HTML file that needs nothing else: no network, no script, no font, no style sheet."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import metadata

import torch

from ..gate.policy import shown
from ..gate.verdict import AnchorVerdict, Decision, Verdict
from ..settings import Settings
from ..stats.conformal import PastUpdate
from .case import Example, Prediction, ReportCase, report_case
from .markup import element, escape, items, markup_table, paragraph, table
from .scatter import past_scatter
from .sections import case_sections, figure, heading, keep, remarks
from .style import STYLE
from .svg import Range, intervals
from .text import headline, number

__all__ = ["Example", "Prediction", "ReportCase", "report_case", "to_html"]

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_SIGN: dict[Decision, str] = {"accept": "\u2713", "reject": "\u2715", "inconclusive": "?"}
_RANK: dict[Decision, int] = {"reject": 0, "inconclusive": 1, "accept": 2}
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
        past: earlier updates whose outcome is known, on the score of the deciding anchor.
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
    history = _history(past, judged[0] if judged else None, harm_above) if past else ""
    body = [_verdict(verdict, judged, ordered) if verdict else _headlines(ordered)]
    for i, case in enumerate(ordered):
        name = f"Anchor: {case.anchor}" if len(ordered) > 1 or case.anchor else "Anchor"
        body.append(heading(name, 2, **({"class_": "page-break"} if i else {})))
        body.append(case_sections(case, history if i == 0 else ""))
    body.append("" if ordered or not history else heading("Past updates", 2) + history)
    body.append(_settings(ordered, about))
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<link rel="icon" href="data:,">',
        element("title", escape(title)),
        element("style", STYLE),
    ]
    top = element("header", paragraph("TRACE report", class_="kicker"), heading(title, 1), class_="page")
    page = element("html", element("head", *head), element("body", top, element("main", *body)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _worst_first(verdict: Verdict) -> list[AnchorVerdict]:
    def key(v: AnchorVerdict) -> tuple[bool, int, float]:
        excess = v.upper - v.threshold
        return v.anchor != verdict.worst, _RANK[v.decision], math.inf if math.isnan(excess) else -excess

    return sorted(verdict.anchors, key=key)


def _verdict(verdict: Verdict, judged: Sequence[AnchorVerdict], cases: Sequence[ReportCase]) -> str:
    """The decision with the interval that decides, then a line per anchor."""
    badge = element("span", escape(f"{_SIGN[verdict.decision]} {verdict.decision}"), class_="badge")
    parts = [element("h2", "Verdict: ", badge)]
    for worst in judged[:1]:
        lead = f"Anchor {worst.anchor} decides. " if len(judged) > 1 else ""
        svg = intervals([_range(worst, "")], f"Score of {worst.anchor} against the limit", _units(worst.score))
        parts += [paragraph(lead + worst.reason), figure(svg, _numbers(worst))]
        parts += [paragraph(headline(case.diagnostic)) for case in cases if case.anchor == worst.anchor]
    parts += [paragraph(verdict.promise)] if verdict.promise else []
    box = element("section", *parts, class_=f"verdict {verdict.decision}")
    notes = [note for v in judged for note in v.notes]
    taken = heading("What the verdict takes for granted", 2) + remarks(notes) if notes else ""
    return box + (_all_anchors(judged) if len(judged) > 1 else "") + taken


def _range(v: AnchorVerdict, label: str) -> Range:
    return Range(label, v.lower, v.value, v.upper, v.threshold)


def _units(score: str) -> Callable[[float], str]:
    return partial(shown, score=score)


def _numbers(v: AnchorVerdict) -> str:
    value, lower, upper, limit = (shown(x, v.score) for x in (v.value, v.lower, v.upper, v.threshold))
    return f"{v.score.replace('_', ' ')} {value}, interval [{lower}, {upper}], limit {limit}."


def _all_anchors(judged: Sequence[AnchorVerdict]) -> str:
    """A line per anchor, worst first, and a picture per score."""
    rows = [["anchor", "decision", "score", "value", "interval", "limit", "needed", "why"]]
    for v in judged:
        badge = element("span", escape(f"{_SIGN[v.decision]} {v.decision}"), class_=f"badge {v.decision}")
        limits = f"[{shown(v.lower, v.score)},\u00a0{shown(v.upper, v.score)}]"
        cells = [v.score.replace("_", " "), shown(v.value, v.score), limits, shown(v.threshold, v.score)]
        cells += ["" if v.needed is None else str(v.needed), v.reason]
        rows.append([element("bdi", escape(v.anchor)), badge, *map(escape, cells)])
    pictures = [
        figure(
            intervals(
                [_range(v, f"{v.anchor}: {v.decision}") for v in judged if v.score == score],
                "All anchors",
                _units(score),
            ),
            score.replace("_", " "),
        )
        for score in dict.fromkeys(v.score for v in judged)
    ]
    return heading("All anchors", 2) + markup_table(rows, "Worst first") + "".join(pictures)


def _headlines(cases: Sequence[ReportCase]) -> str:
    """Without a verdict: what each anchor's diagnostic says first."""
    if len(cases) == 1:
        said = paragraph(headline(cases[0].diagnostic))
    else:
        said = items([(case.anchor, headline(case.diagnostic)) for case in cases])
    note = paragraph("No gate was asked, so this is a diagnosis and no decision.", class_="note")
    return element("section", element("h2", "Diagnosis"), said, note, class_="verdict headline")


def _history(past: Sequence[PastUpdate], new: AnchorVerdict | None, harm_above: float) -> str:
    """The score against updates whose outcome is known."""
    known = [p for p in past if math.isfinite(p.score) and math.isfinite(p.risk_change)]
    words = f"{len(known)} past updates with a known outcome."
    if len(known) < len(past):
        words += f" {len(past) - len(known)} more have none and are left out."
    if new is not None and math.isfinite(new.threshold):
        for side, group in (
            ("at or below", [p for p in known if p.score <= new.threshold]),
            ("above", [p for p in known if p.score > new.threshold]),
        ):
            harmful = sum(p.risk_change > harm_above for p in group)
            words += f" {len(group)} scored {side} the threshold, of which {harmful} did harm."
    near = new.value if new is not None and math.isfinite(new.value) else math.inf
    near_ones = sorted(known, key=lambda p: (-p.score if near == math.inf else abs(p.score - near), p.name))[
        :_SHOWN_PAST
    ]
    rows = [["update", "score", "risk change"]]
    rows += [
        [p.name, number(p.score), number(p.risk_change, sign=True)] for p in sorted(near_ones, key=lambda p: p.score)
    ]
    caption = (
        "All of them"
        if len(near_ones) == len(known)
        else f"The {len(near_ones)} " + ("with the largest scores" if near == math.inf else "closest in score")
    )
    drawing = figure(past_scatter(past, new, "Scores of past updates against their risk change", harm_above), words)
    return keep(heading("Against past updates"), element("div", drawing, table(rows, caption), class_="pair"))


def _settings(cases: Sequence[ReportCase], about: Mapping[str, str]) -> str:
    """About the run, settings, versions."""
    parts = [heading("Settings and versions", 2, class_="page-break")]
    facts = [["item", "value"], *([name, text] for name, text in {**about, **_versions()}.items())]
    tables = [table(facts, "About this report")]
    shared: dict[Settings, list[str]] = {}
    for case in cases:
        shared.setdefault(case.diagnostic.settings, []).append(case.anchor)
    for settings, anchors in shared.items():
        rows = [["setting", "value"], *([name, _setting(v)] for name, v in asdict(settings).items())]
        tables.append(table(rows, "Settings" if len(anchors) == len(cases) else f"Settings of {', '.join(anchors)}"))
    return "".join([*parts, element("div", *tables, class_="pair")])


def _setting(value: object) -> str:
    return "by default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _versions() -> dict[str, str]:
    try:
        own = metadata.version("trace-shift") if __name__.startswith("trace_shift") else "from its source tree"
    except metadata.PackageNotFoundError:
        own = "not installed as a package"
    return {"trace": own, "python": platform.python_version(), "torch": torch.__version__}
