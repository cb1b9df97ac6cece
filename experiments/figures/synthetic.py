"""Figures of the synthetic worlds, from records."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from pandas import DataFrame, Series

from trace.scores import SCORES

from ..analysis.summary import covers
from ..analysis.synthetic import defined, plain_pairs, proxy_correlation, ratio_deciles
from ..engine.records import Record
from .style import COLOURS, COLUMN, DOTTED, MARKERS, axes, figure, legend, line_of, missing, note

TERMS = {
    "gap_source": "gap of Q",
    "gap_target": "gap of Q~",
    "model_change": "model change",
    "emp_shift_ot": "OT shift penalty",
}

STACKED = [COLOURS[4], COLOURS[5], COLOURS[0], COLOURS[1]]
"""Of the terms, from the bottom of the stack."""

TRUE = r"$|\Delta R|$ [nats]"
FLOOR = 1e-5
"""Smaller changes are drawn here: the test sample does not resolve them."""


BOUNDS = {
    "bound_ot": "bound, OT",
    "bound_mmd": "bound, MMD",
    "model_change": "model change alone",
    "anchor_worst_label": "anchor bound",
}
"""Of the figure of tightness."""

Portraits = dict[str, Any]
"""By severity, what `experiments.pairs.portrait` kept."""


def plain_worlds(records: list[Record]) -> list[tuple[str, DataFrame]]:
    """The evaluated pairs of every world, as its file has it, and model; the title says where labels come from."""
    keys = ["world", "model", "variant"]
    return [
        (f"{world}, {model}\n{labels}", part) for (world, model, labels), part in plain_pairs(records).groupby(keys)
    ]


@figure("score-scatter", "synthetic")
def score_scatter(records: list[Record]) -> Figure:
    """TRACE-Proxy (OT) against the true change, one panel a world that has it, coloured by severity."""
    panels = [(title, frame) for title, frame in plain_worlds(records) if defined(frame, "proxy_ot")]
    figure, grid = _panels(len(panels))
    score = SCORES["proxy_ot"]
    look: dict[str, Any] = {"s": 3, "cmap": "cividis", "linewidths": 0, "rasterized": True, "vmin": 0, "vmax": 2}
    for ax, (title, frame) in zip(grid, panels, strict=False):
        below = frame["abs_risk_change"] < FLOOR
        for part, marker in ((frame[~below], "o"), (frame[below], "v")):
            change = np.maximum(part["abs_risk_change"], FLOOR)
            dots = ax.scatter(part["proxy_ot"], change, c=part["severity"], marker=marker, clip_on=False, **look)
        if below.any():
            ax.text(
                0.02, 0.98, f"{below.sum()} below {FLOOR:g}, drawn there", transform=ax.transAxes, va="top", fontsize=6
            )
        ax.set(xscale="log", yscale="log", xlabel=f"{score.label} [{score.units}]", ylabel=TRUE)
        ax.set_title(f"{title}, " + rf"$\rho$ = {proxy_correlation(frame):.2f}")
        _ticks_of_few_decades(ax)
        if ax is grid[len(panels) - 1]:
            figure.colorbar(dots, ax=grid, label="severity", fraction=0.04)
    return figure


def _ticks_of_few_decades(ax: Axes) -> None:
    """Numbers between powers of ten, where an axis has hardly one of those."""
    low, high = ax.get_xlim()
    if math.log10(high / low) < 1.5:
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


@figure("attribution", "synthetic")
def attribution(records: list[Record]) -> Figure:
    """Mean terms of the bound stacked over severity, with the true change below them."""
    return _term_stacks(records, share=False)


@figure("attribution-shares", "synthetic")
def attribution_shares(records: list[Record]) -> Figure:
    """The same as shares of the bound, where the mild regime can be read."""
    return _term_stacks(records, share=True)


def _term_stacks(records: list[Record], *, share: bool) -> Figure:
    panels = plain_worlds(records)
    figure, grid = _panels(len(panels))
    for ax, (title, frame) in zip(grid, panels, strict=False):
        means = frame.groupby("severity")[[*TERMS, "bound_ot", "abs_risk_change"]].mean()
        shown = means.mul(100 / means["bound_ot"], axis=0) if share else means
        ax.stackplot(shown.index, shown[list(TERMS)].T, labels=list(TERMS.values()), colors=STACKED)
        ax.plot(shown["abs_risk_change"], color="black", marker=".", label=r"true $|\Delta R|$")
        ax.set(title=title, xlabel="severity", xlim=(shown.index[0], shown.index[-1]))
        ax.set_ylabel("share of the bound [%]" if share else "mean term [nats]")
        ax.margins(y=0)
    if panels:
        legend(figure, grid[0], title="means over all pairs")
    return figure


@figure("tightness", "synthetic")
def tightness(records: list[Record]) -> Figure:
    """Median bound over |Delta R| against severity, with the middle 80% of pairs."""
    panels = plain_worlds(records)
    figure, grid = _panels(len(panels))
    for ax, (title, frame) in zip(grid, panels, strict=False):
        for name, label in BOUNDS.items():
            ratio, style = ratio_deciles(frame, name), line_of(name)
            ax.plot(ratio[0.5], **{"markersize": 2.5, "linewidth": 1, "label": label, **style})
            ax.fill_between(ratio.index, ratio[0.1], ratio[0.9], color=style["color"], alpha=0.15, linewidth=0)
        ax.axhline(1, **DOTTED)
        ax.set(title=title, yscale="log", xlabel="severity", ylabel=r"bound / $|\Delta R|$")
    if panels:
        legend(figure, grid[0], note("middle 80% of pairs"), note("no slack", **DOTTED))
    return figure


@figure("sample-sizes", "synthetic")
def sample_sizes(records: list[Record]) -> Figure:
    """Rank correlation of the proxy (top) and median tightness of the bound (bottom) for every pair of sample sizes."""
    panels = [
        (title, frame) for title, frame in plain_worlds(records) if len(frame[["n", "n_target"]].drop_duplicates()) > 1
    ]
    figure, grid = axes(max(len(panels), 1), 2, width=2 * COLUMN, height=1.7, squeeze=False)
    quantities: list[tuple[str, Callable[[DataFrame], float], str]] = [
        (r"$\rho$ of TRACE-Proxy", proxy_correlation, "{:.2f}"),
        (r"median bound / $|\Delta R|$", lambda part: covers(part, "bound_ot")[1], "{:.0f}"),
    ]
    for row, (name, value, form) in zip(grid, quantities, strict=True):
        by_size = [frame.groupby(["n", "n_target"]) for _, frame in panels]
        maps = [Series({sizes: value(part) for sizes, part in groups}).unstack() for groups in by_size]
        top = max([1.0, *(float(np.nanmax(cells)) for cells in maps)])
        for ax, values in zip(row, maps, strict=False):
            drawn = _heat_map(ax, values, top, form)
            if ax is row[len(maps) - 1]:
                figure.colorbar(drawn, ax=list(row), label=name, fraction=0.04)
        row[0].set_ylabel("source sample size")
    for column, (title, _) in enumerate(panels):
        grid[0][column].set_title(title)
        grid[1][column].set_xlabel("target sample size")
    return figure


def _heat_map(ax: Axes, values: DataFrame, top: float, form: str) -> AxesImage:
    """Cells without pairs stay empty; one scale from 0 to ``top`` for all maps of a row."""
    cells = values.to_numpy()
    image = ax.imshow(cells, cmap="cividis", origin="lower", aspect="auto", vmin=0, vmax=top)
    for (i, j), cell in np.ndenumerate(cells):
        shown = "" if math.isnan(cell) else form.format(cell)
        ax.text(j, i, shown, ha="center", va="center", fontsize=6, color="white" if cell < top / 2 else "black")
    ax.set_xticks(range(cells.shape[1]), [f"{size:g}" for size in values.columns], fontsize=6)
    ax.set_yticks(range(len(cells)), [f"{size:g}" for size in values.index], fontsize=6)
    return image


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    """At most three panels a row, unused ones hidden; none at all are one that is missing."""
    columns = min(max(count, 1), 3)
    figure, grid = axes(columns, math.ceil(max(count, 1) / columns), width=2 * COLUMN, height=2.1, squeeze=False)
    flat = list(grid.flat)
    for ax in flat[max(count, 1) :]:
        ax.set_visible(False)
    if not count:
        missing(flat[0])
    return figure, flat


@figure("worlds", "synthetic")
def worlds(records: list[Record]) -> Figure:
    """Target points in colour, source points in grey, and where Q (solid) and Q~ (dashed) change their mind."""
    drawn: dict[str, Portraits] = {}
    for record in sorted(records, key=lambda r: r["config"]["n"]):
        for model, kept in record["metrics"].items():
            if "portraits" in kept:
                drawn.setdefault(f"{record['config']['world']},\n{model}", {}).update(kept["portraits"])
    severities = sorted({float(s) for portraits in drawn.values() for s in portraits})
    ratios = [_height(portraits) for _, portraits in sorted(drawn.items())] or [1.0]
    height = 1.2 * sum(ratios) / len(ratios) + 0.3
    figure, grid = axes(
        max(len(severities), 1),
        len(ratios),
        width=2 * COLUMN,
        height=height,
        squeeze=False,
        sharex="row",
        sharey="row",
        height_ratios=ratios,
    )
    for row, (title, portraits) in zip(grid, sorted(drawn.items()), strict=False):
        row[0].set_ylabel(f"{title}\n$x_2$", fontsize=6.5)
        for ax, severity in zip(row, severities, strict=True):
            _draw(ax, portraits.get(str(severity)))
    for ax, severity in zip(grid[0], severities, strict=False):
        ax.set_title(f"severity {severity:g}")
    for ax in grid[-1]:
        ax.set_xlabel("$x_1$")
    classes = max((_num_classes(p) for portraits in drawn.values() for p in portraits.values()), default=2)
    figure.legend(handles=_legend(classes), loc="outside lower center", ncols=5)
    return figure


def _height(portraits: Portraits) -> float:
    """Height over width of what a row shows."""
    spans = {key: [v for p in portraits.values() for v in (p[key][0], p[key][-1])] for key in ("x", "y")}
    return float((max(spans["y"]) - min(spans["y"])) / (max(spans["x"]) - min(spans["x"])))


def _draw(ax: Axes, portrait: Portraits | None) -> None:
    ax.set(xticks=[], yticks=[], aspect="equal")
    if portrait is None:
        missing(ax)
        return
    x, y = np.array(portrait["source"]["x"]).T
    ax.scatter(x, y, s=1.5, color="0.75", linewidths=0)
    points, labels = np.array(portrait["target"]["x"]), np.array(portrait["target"]["y"])
    for label in range(_num_classes(portrait)):
        x, y = points[labels == label].T
        ax.scatter(x, y, s=3, linewidths=0, **_look_of(label))
    for key, style in (("margins", "solid"), ("new_margins", "dashed")):
        line: dict[str, Any] = {"levels": [0], "colors": "black", "linewidths": 1, "linestyles": style}
        for margin in np.array(portrait[key]):
            if margin.min() < 0 < margin.max():
                ax.contour(portrait["x"], portrait["y"], margin, **line)


def _num_classes(portrait: Portraits) -> int:
    """The first class has no margin: its boundary is that of the others."""
    return 1 + len(portrait["margins"])


def _look_of(label: int) -> dict[str, Any]:
    return {"color": COLOURS[label % len(COLOURS)], "marker": MARKERS[label % len(MARKERS)]}


def _legend(num_classes: int) -> list[Line2D]:
    return [
        Line2D([], [], linestyle="", marker=".", color="0.75", label="source"),
        *(
            Line2D([], [], linestyle="", markersize=3, label=f"target, class {label}", **_look_of(label))
            for label in range(num_classes)
        ),
        Line2D([], [], color="black", linestyle="solid", label="boundary of Q"),
        Line2D([], [], color="black", linestyle="dashed", label="boundary of Q~"),
    ]
