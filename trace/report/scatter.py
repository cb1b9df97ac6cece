"""Scatter plots of the HTML report as SVG text: past updates, and both samples in two dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..gate.verdict import AnchorVerdict
from ..stats.conformal import PastUpdate
from .embedding import Embedding
from .markup import element, escape
from .svg import WIDTH, Scale, marked, path, picture, rect, span_of, text, ticks
from .text import number, percent

_LEFT, _RIGHT, _TOP = 52, WIDTH - 10, 22


def past_scatter(past: Sequence[PastUpdate], new: AnchorVerdict | None, title: str, harm_above: float = 0.0) -> str:
    """Past scores against their known risk change: filled triangles did harm, open circles did not.

    The new update, whose change is not known, is a band over its interval; the threshold is a dashed line.
    """
    drawn = [p for p in past if math.isfinite(p.score) and math.isfinite(p.risk_change)]
    bottom = 270
    x_values = [p.score for p in drawn] + ([new.lower, new.value, new.upper, new.threshold] if new else [])
    x = Scale(*span_of(x_values), _LEFT, _RIGHT)
    y = Scale(*span_of([0.0, harm_above, *(p.risk_change for p in drawn)]), bottom, _TOP)
    parts = _axes(x, y, bottom)
    parts.append(path(f"M{_LEFT} {y(harm_above)}H{_RIGHT}", "axis"))
    if new is not None:
        parts += _new_update(new, x, bottom)
    parts += [_outcome(p.name, p.risk_change > harm_above, x(p.score), y(p.risk_change)) for p in drawn]
    parts += [
        text(_LEFT - 46, 11, f"risk change (above {harm_above:g}: harm)", class_="soft"),
        text(_RIGHT, bottom + 34, f"score: {_words(new.score)}" if new else "score", "end", "soft"),
        _outcome("", True, _LEFT + 6, bottom + 50),
        text(_LEFT + 16, bottom + 54, "did harm"),
        _outcome("", False, _LEFT + 96, bottom + 50),
        text(_LEFT + 106, bottom + 54, "did no harm"),
    ]
    if new is not None:
        parts += [
            rect(_LEFT + 196, bottom + 43, 20, 13, "band"),
            text(_LEFT + 222, bottom + 54, "this update"),
        ]
    harmful = sum(p.risk_change > harm_above for p in drawn)
    words = f"{len(drawn)} past updates, {harmful} of which raised the anchor's risk by more than {harm_above:g}."
    if new is not None:
        words += f" This update scores {number(new.value)}, from {number(new.lower)} to {number(new.upper)}."
    return picture(bottom + 62, title, words, *parts)


def embedding_scatter(embedding: Embedding, title: str) -> str:
    """Source rows as dots and target rows as crosses, one unit being equally long on both axes."""
    points = [*embedding.source.tolist(), *embedding.target.tolist()]
    x_low, x_high = span_of([p[0] for p in points])
    y_low, y_high = span_of([p[1] for p in points])
    width = _RIGHT - _LEFT
    height = min(max(width * (y_high - y_low) / (x_high - x_low), 120), 320)
    unit = min(width / (x_high - x_low), height / (y_high - y_low))
    x = _around((x_low + x_high) / 2, width / unit, _LEFT, _RIGHT)
    bottom = _TOP + height
    y = _around((y_low + y_high) / 2, height / unit, bottom, _TOP)
    dots = "".join(f"M{x(a)} {y(b)}h0" for a, b in embedding.source.tolist())
    crosses = "".join(f"M{x(a) - 3:g} {y(b) - 3:g}l6 6m-6 0l6-6" for a, b in embedding.target.tolist())
    first, second = (f"axis {i}: {percent(share)} of the variance" for i, share in enumerate(embedding.explained, 1))
    key = bottom + 50
    parts = [
        *_axes(x, y, bottom),
        path(dots, "source"),
        path(crosses, "target"),
        text(_LEFT - 46, 11, second, class_="soft"),
        text(_RIGHT, bottom + 34, first, "end", "soft"),
        path(f"M{_LEFT + 6} {key}h0", "source"),
        text(_LEFT + 16, key + 4, f"source ({len(embedding.source)} points)"),
        path(f"M{_LEFT + 163} {key - 3}l6 6m-6 0l6-6", "target"),
        text(_LEFT + 176, key + 4, f"target ({len(embedding.target)} points)"),
    ]
    p, q = len(embedding.source), len(embedding.target)
    words = f"{p} source rows as dots and {q} target rows as crosses; {first}, {second}."
    return picture(bottom + 62, title, words, *parts)


def _axes(x: Scale, y: Scale, bottom: float) -> list[str]:
    across, up = ticks(x.low, x.high), ticks(y.low, y.high)
    parts = [path(f"M{x(t)} {_TOP}V{bottom:g}", "grid") for t in across]
    parts += [path(f"M{_LEFT} {y(t)}H{_RIGHT}", "grid") for t in up]
    parts += [marked(x(t), bottom + 16, number(t), "soft") for t in across]
    return parts + [text(_LEFT - 6, y(t) + 4, number(t), "end", "soft") for t in up]


def _around(middle: float, length: float, start: float, end: float) -> Scale:
    return Scale(middle - length / 2, middle + length / 2, start, end)


def _new_update(new: AnchorVerdict, x: Scale, bottom: float) -> list[str]:
    low, high = (_LEFT if math.isnan(new.lower) else x(new.lower)), (_RIGHT if math.isnan(new.upper) else x(new.upper))
    parts = [rect(low, _TOP, max(round(high - low, 1), 2), bottom - _TOP, "band")]
    if math.isfinite(new.value):
        parts.append(path(f"M{x(new.value)} {_TOP}V{bottom}", "axis"))
    if math.isfinite(new.threshold):
        edge = x(new.threshold)
        parts += [path(f"M{edge} {_TOP - 4}V{bottom}", "threshold")]
        words = f"threshold {number(new.threshold)}"
        parts.append(text(edge + 5, _TOP + 12, words) if edge < 270 else text(edge - 5, _TOP + 12, words, "end"))
    return parts


def _outcome(name: str, harmful: bool, x: float, y: float) -> str:
    label = element("title", escape(name)) if name else ""
    if harmful:
        return element("path", label, d=f"M{x:g} {y - 6:g}l5.5 10h-11z", class_="harmful")
    return element("circle", label, cx=f"{x:g}", cy=f"{y:g}", r=4.5, class_="harmless")


def _words(score: str) -> str:
    return score.replace("_", " ")
