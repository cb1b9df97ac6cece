"""The pictures of the page as SVG that stands inside HTML: drawn by matplotlib, coloured by the style sheet.

Every colour is a custom property of ``page.css``, so that one picture serves light, dark and paper; shapes and words
say the same. Text stays text, ids begin with the picture's ``name``, and the same input gives the same bytes.
"""

import io
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..escaping import printable
from ..gate.policy import AnchorVerdict, shown
from ..stats.conformal import PastUpdate
from .changes import ColumnDrift, SliceChange
from .embedding import Embedding
from .words import Bar, number, percent

_WIDTH = 400
_PROPERTIES = ("ink", "soft", "paper", "line", "term", "remainder", "total", "source", "target", "accept", "reject")
_COLOUR = {name: f"#0000{i:02x}" for i, name in enumerate(_PROPERTIES, 1)}
"""What stands for a custom property of the style sheet while matplotlib draws; black it leaves out."""
_OUTCOME: dict[bool, dict[str, Any]] = {
    True: {
        "marker": "^",
        "linestyle": "none",
        "color": _COLOUR["target"],
        "markeredgecolor": _COLOUR["paper"],
        "markersize": 11,
    },
    False: {
        "marker": "o",
        "linestyle": "none",
        "color": _COLOUR["paper"],
        "markeredgecolor": _COLOUR["source"],
        "markeredgewidth": 2,
        "markersize": 9,
    },
}
"""How an update is drawn that did harm, and one that did not."""
_DRAWN = style.context(
    [
        "default",
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "trace",
            "text.parse_math": False,
            "font.family": "DejaVu Sans",
            "font.size": 12,
            "axes.grid": True,
            "axes.axisbelow": True,
            "axes.labelcolor": _COLOUR["soft"],
            "axes.unicode_minus": False,
            **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
            "grid.color": _COLOUR["line"],
            **{f"{axis}tick.labelcolor": _COLOUR["soft"] for axis in "xy"},
            **{f"{axis}tick.major.size": 0 for axis in "xy"},
            "legend.frameon": False,
            "legend.handletextpad": 0.4,
        },
    ]
)


@_DRAWN
def waterfall(
    bars: Sequence[Bar], title: str, *, name: str, change: float = math.nan, most: float = math.inf
) -> Markup:
    """Bars that start where the last one ended, and totals from 0; ``change`` is a dashed line across all of them.

    A missing term has no bar. A missing total is a dashed outline over what is known. ``most`` is what the loss allows:
    the picture ends a little beyond it, and what reaches so far is grey.
    """
    spans, at = [], 0.0
    for bar in bars:
        start = 0.0 if bar.kind == "total" else at
        at = start + bar.value if math.isfinite(bar.value) else at
        spans.append((start, at))
    known = [change] if math.isfinite(change) else []
    axes = _panel(34 * len(bars) + 4, left=8, top=20 if known else 4)
    reach = max([1e-12, *(end for _, end in spans), *known])
    axes.set(xlim=(0.0, min(reach, 1.1 * most)), ylim=(34 * len(bars) + 4, 0), yticks=[])
    if reach >= most:
        axes.axvspan(most, 1.1 * most, facecolor=_COLOUR["line"], alpha=0.5, linewidth=0, gid="beyond")
    axes.set_xlabel("in units of the loss")
    for i, (bar, (start, end)) in enumerate(zip(bars, spans, strict=True)):
        y = 34 * i + 24
        if i + 1 < len(bars) and end > 0:
            axes.plot([end, end], [y, y + 34], color=_COLOUR["soft"], linewidth=1)
        if math.isfinite(bar.value) and bar.value >= most:
            axes.barh(y, end - start, 13, start, color=_COLOUR["line"], edgecolor=_COLOUR["soft"], gid=f"vacuous-{i}")
        elif math.isfinite(bar.value):
            edge = _COLOUR["soft" if bar.kind == "remainder" else bar.kind]
            axes.barh(y, end - start, 13, start, color=_COLOUR[bar.kind], edgecolor=edge, gid=f"{bar.kind}-{i}")
        elif bar.kind == "total" and end > 0:
            axes.barh(y, end, 13, color="none", edgecolor=_COLOUR["soft"], linestyle="--", gid=f"missing-{i}")
        for x, side, words in ((0.0, "left", bar.label), (1.0, "right", number(bar.value))):
            weight, ink = "bold" if bar.kind == "total" else "normal", "soft" if bar.value >= most else "ink"
            beside = axes.get_yaxis_transform()
            axes.text(x, y - 11, words, ha=side, weight=weight, color=_COLOUR[ink], transform=beside, zorder=4)
    for value in known:
        axes.axvline(value, color=_COLOUR["target"], linewidth=2, linestyle="--", gid="change")
        _mark(axes, value, -6, f"true |change| {number(value)}")
    said = [f"{bar.label} {number(bar.value)}{', says nothing' * (bar.value >= most)}" for bar in bars]
    said += [f"true |change| {number(value)}" for value in known]
    return _svg(axes, name, title, "; ".join(said) + ".")


@_DRAWN
def dumbbells(changes: Sequence[SliceChange], title: str, *, name: str) -> Markup:
    """What share of each slice either model has right: an open circle before, a filled one after."""
    axes = _panel(31 * len(changes) + 4, left=12, legend=True)
    axes.set(xlim=(-0.02, 1.02), ylim=(31 * len(changes) + 4, 0), yticks=[])
    axes.xaxis.set_major_formatter(lambda x, _: percent(x))
    for i, each in enumerate(changes):
        y, colour = 31 * i + 23, _COLOUR["reject" if each.after < each.before else "source"]
        axes.plot([each.before, each.after], [y, y], color=colour, linewidth=3)
        axes.plot([each.before], [y], "o", color=_COLOUR["paper"], markeredgecolor=colour, markersize=8, gid=f"old-{i}")
        axes.plot([each.after], [y], "o", color=colour, markersize=8, gid=f"new-{i}")
        axes.text(0.0, y - 9, _short(each.name), transform=axes.get_yaxis_transform(), zorder=4)
    for label, fill in (("old model", "paper"), ("new model", "source")):
        axes.plot([], [], "o", color=_COLOUR[fill], markeredgecolor=_COLOUR["source"], markersize=8, label=label)
    said = [f"{each.name} from {percent(each.before)} to {percent(each.after)}" for each in changes]
    return _svg(axes, name, title, "; ".join(said) + ".")


@_DRAWN
def drift_bars(found: Sequence[ColumnDrift], title: str, *, name: str) -> Markup:
    """The distance of every column between source and target; pale where chance explains it."""
    axes = _panel(30 * len(found) + 4, left=12, top=4)
    axes.set(xlim=(0.0, 1.0), ylim=(30 * len(found) + 4, 0), yticks=[], xlabel="distance of the distributions, 0 to 1")
    for i, each in enumerate(found):
        kind = "term" if each.beyond_chance else "remainder"
        axes.barh(30 * i + 23, each.distance, 9, color=_COLOUR[kind], gid=f"{kind}-{i}")
        axes.text(0.0, 30 * i + 15, _short(each.name), transform=axes.get_yaxis_transform(), zorder=4)
    said = [f"{each.name} {each.distance:.2f}{', within chance' * (not each.beyond_chance)}" for each in found]
    return _svg(axes, name, title, "; ".join(said) + ".")


@_DRAWN
def intervals(anchors: Sequence[AnchorVerdict], title: str, *, name: str, labels: Sequence[str] = ()) -> Markup:
    """Intervals of one score on one scale, each against its limit: at or below it is the accepting side.

    Ends that are not finite are open. ``labels`` stand above the intervals, one for each.
    """
    score, row = anchors[0].score, 70 if labels else 52
    low, high = _span(x for v in anchors for x in (v.lower, v.value, v.upper, v.threshold))
    axes = _panel(row * len(anchors), top=0)
    axes.set(xlim=(low, high), ylim=(row * len(anchors), 0), yticks=[])
    axes.set_xlabel(score.replace("_", " "))
    axes.xaxis.set_major_formatter(lambda x, _: shown(x, score))
    axes.grid(visible=False)
    sides = axes.get_yaxis_transform()
    for i, (v, label) in enumerate(zip(anchors, labels or [""] * len(anchors), strict=True)):
        y = row * (i + 1) - 21
        edge = v.threshold if math.isfinite(v.threshold) else high
        axes.text(0.0, y - 36, _short(label), weight="bold", transform=sides)
        axes.barh(y, edge - low, 30, low, color=_COLOUR["accept"], alpha=0.13, gid=f"accept-{i}")
        axes.barh(y, high - edge, 30, edge, color=_COLOUR["reject"], alpha=0.13, gid=f"reject-{i}")
        axes.hlines(y, *_ends(v, low, high), color=_COLOUR["ink"], linewidth=3, gid=f"interval-{i}")
        closed = [x for x in (v.lower, v.upper) if math.isfinite(x)]
        axes.vlines(closed, y - 7, y + 7, color=_COLOUR["ink"], linewidth=3, gid=f"ends-{i}")
        axes.plot([v.value], [y], "o", color=_COLOUR["ink"], markersize=10, gid=f"value-{i}")
        if math.isfinite(v.threshold):
            axes.vlines(edge, y - 17, y + 17, color=_COLOUR["ink"], linewidth=2, linestyle="--", gid=f"limit-{i}")
            _mark(axes, edge, y - 19, f"limit {shown(edge, score)}")
            if edge - low > 0.3 * (high - low):
                axes.text(0.0, y - 19, "accept", color=_COLOUR["soft"], transform=sides)
            if high - edge > 0.3 * (high - low):
                axes.text(1.0, y - 19, "reject", ha="right", color=_COLOUR["soft"], transform=sides)
    said = [
        f"{label}: ".removeprefix(": ") + f"score {shown(v.value, score)}, interval from {shown(v.lower, score)} to "
        f"{shown(v.upper, score)}, limit {shown(v.threshold, score)}"
        for v, label in zip(anchors, labels or [""] * len(anchors), strict=True)
    ]
    return _svg(axes, name, title, "; ".join(said) + ".")


@_DRAWN
def past_scatter(
    past: Sequence[PastUpdate], new: AnchorVerdict | None, title: str, *, name: str, harm_above: float = 0.0
) -> Markup:
    """Past scores against their known risk change: filled triangles did harm, open circles did not.

    The new update, whose change is not known, is a band over its interval; the threshold is a dashed line.
    """
    drawn = [p for p in past if math.isfinite(p.score) and math.isfinite(p.risk_change)]
    low, high = _span([p.score for p in drawn] + ([new.lower, new.value, new.upper, new.threshold] if new else []))
    axes = _panel(248, left=58, legend=True)
    axes.set(xlim=(low, high), ylim=_span([0.0, harm_above, *(p.risk_change for p in drawn)]))
    axes.set_xlabel(f"score: {new.score.replace('_', ' ')}" if new else "score")
    axes.set_ylabel(f"risk change (above {harm_above:g}: harm)")
    axes.axhline(harm_above, color=_COLOUR["soft"], linewidth=1)
    axes.plot([], [], label="did harm", **_OUTCOME[True])
    axes.plot([], [], label="did no harm", **_OUTCOME[False])
    if new is not None:
        ends = _ends(new, low, high)
        axes.axvspan(*ends, facecolor=_COLOUR["ink"], alpha=0.1, linewidth=0, label="this update", gid="band")
        axes.axvline(new.value, color=_COLOUR["soft"], linewidth=1)
        if math.isfinite(new.threshold):
            axes.axvline(new.threshold, color=_COLOUR["ink"], linewidth=2, linestyle="--", gid="threshold")
            side, away = ("left", 5) if new.threshold < (low + high) / 2 else ("right", -5)
            axes.annotate(
                f"threshold {number(new.threshold)}",
                (new.threshold, 1.0),
                (away, -12),
                xycoords=axes.get_xaxis_transform(),
                textcoords="offset points",
                ha=side,
            )
    names = {f"{'harmful' if p.risk_change > harm_above else 'harmless'}-{i}": p for i, p in enumerate(drawn)}
    for gid, p in names.items():
        axes.plot([p.score], [p.risk_change], gid=gid, **_OUTCOME[p.risk_change > harm_above])
    harmful = sum(p.risk_change > harm_above for p in drawn)
    said = f"{len(drawn)} past updates, {harmful} of which raised the anchor's risk by more than {harm_above:g}."
    if new is not None:
        said += f" This update scores {number(new.value)}, from {number(new.lower)} to {number(new.upper)}."
    return _svg(axes, name, title, said, {gid: p.name for gid, p in names.items()})


@_DRAWN
def embedding_scatter(embedding: Embedding, title: str, *, name: str) -> Markup:
    """Source rows as dots and target rows as crosses, one unit being equally long on both axes."""
    (left, right), (low, high) = (_span([*embedding.source[:, i], *embedding.target[:, i]]) for i in (0, 1))
    axes = _panel(min(max(322 * (high - low) / (right - left), 120), 320), left=58, legend=True)
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.08)
    first, second = (f"axis {i}: {percent(share)} of the variance" for i, share in enumerate(embedding.explained, 1))
    axes.set(xlabel=first, ylabel=second)
    p, q = len(embedding.source), len(embedding.target)
    for rows, kind, marker, size, edge in (
        (embedding.source, "source", "o", 5.5, 0.0),
        (embedding.target, "target", "x", 6, 1.6),
    ):
        label = f"{kind} ({len(rows)} points)"
        axes.plot(
            *rows.T,
            marker,
            color=_COLOUR[kind],
            alpha=0.7,
            markersize=size,
            markeredgewidth=edge,
            label=label,
            gid=kind,
        )
    return _svg(axes, name, title, f"{p} source rows as dots and {q} target rows as crosses; {first}, {second}.")


def _panel(height: float, *, left: float = 26, top: float = 8, legend: bool = False) -> Axes:
    """Axes of a height in points, with room around them for what is written there."""
    bottom = 66 if legend else 36
    whole = top + height + bottom
    figure = Figure(figsize=(_WIDTH / 72, whole / 72))
    axes = figure.add_axes((left / _WIDTH, bottom / whole, (_WIDTH - left - 26) / _WIDTH, height / whole))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(lambda x, _: number(x))
    return axes


def _mark(axes: Axes, x: float, y: float, words: str) -> None:
    """A label at ``x`` that stays within the picture."""
    low, high = axes.get_xlim()
    share = (x - low) / (high - low)
    axes.text(x, y, words, ha="left" if share < 0.2 else "right" if share > 0.8 else "center", zorder=4)


def _span(values: Iterable[float]) -> tuple[float, float]:
    """A range around all finite values, with a little room; ``(0, 1)`` without any."""
    if not (finite := [float(v) for v in values if math.isfinite(v)]):
        return 0.0, 1.0
    low, high = min(finite), max(finite)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 0.1
    return low - room, high + room


def _ends(v: AnchorVerdict, low: float, high: float) -> tuple[float, float]:
    """The interval as far as the axis goes."""
    return (v.lower if math.isfinite(v.lower) else low), (v.upper if math.isfinite(v.upper) else high)


def _short(label: str, most: int = 44) -> str:
    """The label on one line, with its middle left out where the picture has no room for it."""
    label, half = " ".join(printable(label).split()), (most - 1) // 2
    return label if len(label) <= most else f"{label[:half]}\u2026{label[-half:]}"


def _svg(axes: Axes, name: str, title: str, description: str, tooltips: Mapping[str, str] | None = None) -> Markup:
    """The picture with the words that stand for it; ``tooltips`` are those of its parts, by their ``gid``."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    if axes.get_legend_handles_labels()[0]:
        whole = figure.transFigure
        axes.legend(ncols=3, borderaxespad=0.2, loc="lower left", bbox_to_anchor=(0.02, 0.0), bbox_transform=whole)
    file = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the browser has other fonts
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    _, _, drawing = file.getvalue().partition("</defs>")  # a style sheet, which would be that of the whole page
    drawing = re.sub(r"<[^>]*>", lambda tag: _of_the_page(tag[0], name), drawing)
    for gid, words in (tooltips or {}).items():
        group = f'<g id="{name}-{gid}">'
        drawing = drawing.replace(group, f"{group}<title>{escape(words)}</title>")
    width, height = 72 * figure.get_size_inches()
    opening = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        'viewBox="0 0 {:g} {:g}"><title>{}</title><desc>{}</desc>'
    )
    return Markup(printable(opening.format(width, height, title, description) + Markup(drawing)))


def _of_the_page(tag: str, name: str) -> str:
    """A tag with the page's colours and font, and ids that no other picture has."""
    tag = re.sub("#0000([0-9a-f]{2})", lambda found: f"var(--{_PROPERTIES[int(found[1], 16) - 1]})", tag)
    tag = re.sub(r"(\.\d\d)\d+", r"\1", tag)
    return re.sub(r'(\bid="|"#|url\(#)', rf"\1{name}-", tag).replace("'DejaVu Sans'", "var(--font)")
