"""Pictures of the HTML report as SVG text. Colours are classes of the style sheet; shapes and words say the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from .markup import css_class, element, escape
from .text import number

WIDTH = 400
_LEFT, _RIGHT = 8, WIDTH - 8
_ROW, _BAR = 34, 13


class Bar(NamedTuple):
    """One line of a waterfall."""

    label: str
    value: float
    """NaN where it is not available."""
    kind: Literal["term", "remainder", "total"]
    """A total starts at 0; the others where the last bar ended."""


class Range(NamedTuple):
    """A score with its interval and threshold; infinite ends are open."""

    label: str
    """Empty for none."""
    lower: float
    value: float
    upper: float
    threshold: float


class Scale(NamedTuple):
    """Values ``[low, high]`` to pixels ``[start, end]``, linearly."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 1)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round values (steps of 1, 2 or 5 times a power of 10) within ``[low, high]``.

    >>> ticks(0, 0.9)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12 - math.floor(math.log10(step))) + 0.0 for i in range(first, last + 1)]


def picture(height: float, title: str, description: str, *content: str) -> str:
    """An SVG with the name and the words that stand for it."""
    return element(
        "svg",
        element("title", escape(title)),
        element("desc", escape(description)),
        *content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
    )


def text(x: float, y: float, words: str, anchor: str = "start", class_: str = "") -> str:
    """Escaped text at a point."""
    return element("text", escape(words), x=f"{x:g}", y=f"{y:g}", text_anchor=anchor, **css_class(class_))


def path(d: str, class_: str) -> str:
    """A path from its drawing commands."""
    return element("path", d=d, class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str) -> str:
    """A rectangle."""
    return element("rect", x=f"{x:g}", y=f"{y:g}", width=f"{width:g}", height=f"{height:g}", class_=class_)


def marked(x: float, y: float, words: str, class_: str = "") -> str:
    """A label at ``x`` that stays within the picture."""
    reach = 3.2 * len(words)
    if x - reach < _LEFT:
        return text(max(x - 4, 2), y, words, "start", class_)
    if x + reach > _RIGHT:
        return text(min(x + 4, WIDTH - 2), y, words, "end", class_)
    return text(x, y, words, "middle", class_)


def waterfall(bars: Sequence[Bar], title: str, *, change: float = math.nan) -> str:
    """Bars that start where the last one ended, and totals from 0; ``change`` is a dashed line across all of them.

    A missing term has no bar. A missing total is a dashed outline over what is known.
    """
    spans, at = [], 0.0
    for bar in bars:
        start = 0.0 if bar.kind == "total" else at
        at = start + bar.value if math.isfinite(bar.value) else at
        spans.append((start, at))
    known = [change] if math.isfinite(change) else []
    top = max([1e-12, *(end for _, end in spans), *known])
    scale = Scale(0.0, top, _LEFT, _RIGHT)
    head = 20 if known else 4
    foot = head + _ROW * len(bars)
    parts = [path(f"M{scale(t)} {head}V{foot + 4}", "grid") for t in ticks(0.0, top)]
    for i, (bar, (start, end)) in enumerate(zip(bars, spans, strict=True)):
        y = head + i * _ROW
        if i + 1 < len(bars) and end > 0:
            parts.append(path(f"M{scale(end)} {y + 17 + _BAR}v{_ROW - _BAR}", "axis"))
        parts.append(_bar(bar, scale(start), scale(end), y + 17))
    parts += [path(f"M{scale(v)} 15V{foot + 4}", "change") for v in known]
    for i, bar in enumerate(bars):
        y, strong = head + i * _ROW + 13, " strong" if bar.kind == "total" else ""
        parts += [text(_LEFT, y, bar.label, class_=f"label{strong}")]
        parts += [text(_RIGHT, y, number(bar.value), "end", f"label{strong}")]
    parts += [marked(scale(t), foot + 17, number(t), "soft") for t in ticks(0.0, top)]
    parts += [marked(scale(v), 11, f"true |change| {number(v)}") for v in known]
    words = [f"{bar.label} {number(bar.value)}" for bar in bars] + [f"true |change| {number(v)}" for v in known]
    return picture(foot + 22, title, "; ".join(words) + ".", *parts)


def _bar(bar: Bar, start: float, end: float, y: float) -> str:
    if math.isfinite(bar.value):
        return rect(start, y, max(round(end - start, 1), 1.0), _BAR, bar.kind)
    return rect(_LEFT, y, round(end - _LEFT, 1), _BAR, "missing") if bar.kind == "total" and end > _LEFT else ""


def span_of(values: Sequence[float]) -> tuple[float, float]:
    """A range around all finite values, with a little room; ``(0, 1)`` without any."""
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 0.1
    return low - room, high + room


def intervals(rows: Sequence[Range], title: str, shown: Callable[[float], str] = number) -> str:
    """Scores' intervals on one scale, each against its limit: at or below it is the accepting side.

    ``shown`` writes a score for people, such as in percent.
    """
    span = span_of([v for row in rows for v in row[1:]])
    scale = Scale(*span, _LEFT, _RIGHT)
    parts, y = [], 0
    for row in rows:
        parts += [text(_LEFT, y + 13, _short(row.label), class_="strong")] if row.label else []
        y += 18 if row.label else 0
        parts += _range(row, scale, y, shown)
        y += 52
    parts += [marked(scale(t), y + 10, shown(t), "soft") for t in ticks(*span)]
    words = [
        f"{row.label}: ".removeprefix(": ") + f"score {shown(row.value)}, interval from {shown(row.lower)} to "
        f"{shown(row.upper)}, limit {shown(row.threshold)}"
        for row in rows
    ]
    return picture(y + 16, title, "; ".join(words) + ".", *parts)


def _range(row: Range, scale: Scale, y: float, shown: Callable[[float], str]) -> list[str]:
    """One interval over its two zones, 46 high."""
    edge = scale(row.threshold) if math.isfinite(row.threshold) else _RIGHT
    low = scale(row.lower) if not math.isnan(row.lower) else _LEFT
    high = scale(row.upper) if not math.isnan(row.upper) else _RIGHT
    caps = "".join(f"M{x} {y + 24:g}v14" for x, v in ((low, row.lower), (high, row.upper)) if math.isfinite(v))
    parts = [
        rect(_LEFT, y + 16, round(edge - _LEFT, 1), 30, "zone-accept"),
        rect(edge, y + 16, round(_RIGHT - edge, 1), 30, "zone-reject"),
        path(f"M{low} {y + 31:g}H{high}{caps}", "span"),
    ]
    if math.isfinite(row.value):
        parts.append(element("circle", cx=scale(row.value), cy=f"{y + 31:g}", r=5, class_="dot"))
    if math.isfinite(row.threshold):
        words = f"limit {shown(row.threshold)}"
        parts += [path(f"M{edge} {y + 14:g}v34", "threshold"), marked(edge, y + 11, words)]
        if edge - _LEFT > 3.6 * len(words) + 60:
            parts.append(text(_LEFT, y + 11, "accept", class_="soft"))
        if _RIGHT - edge > 3.6 * len(words) + 60:
            parts.append(text(_RIGHT, y + 11, "reject", "end", "soft"))
    return parts


def _short(label: str, most: int = 48) -> str:
    """The label with its middle left out where the picture has no room for it."""
    half = (most - 1) // 2
    return label if len(label) <= most else f"{label[:half]}\u2026{label[-half:]}"
