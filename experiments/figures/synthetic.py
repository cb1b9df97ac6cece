"""Figures of the synthetic worlds, from records."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from trace.scores import SCORES, labels
from trace.stats.metrics import spearman

from ..analysis.frame import Frame, evaluated, groups, isolation_frame, size, synthetic_frame, where
from ..analysis.synthetic import covers
from ..engine.records import Record
from .style import COLOURS, COLUMN, DOTTED, MARKERS, axes, figure, missing, note

TERMS = {
    "gap_source": "gap of Q",
    "gap_target": "gap of Q~",
    "model_change": "model change",
    "emp_shift_ot": "OT shift penalty",
}

TRUE = r"$|\Delta R|$ [nats]"
FLOOR = 1e-5
"""Smaller changes are drawn here: the test sample does not resolve them."""


def plain_worlds(records: list[Record]) -> list[tuple[str, Frame]]:
    """The evaluated pairs of every world, as its file has it, and model."""
    frame = where(evaluated(synthetic_frame(records)), plain=True)
    kinds = sorted(groups(frame, "world", "model"))
    return [(f"{world}, {model}", where(frame, world=world, model=model)) for world, model in kinds]


@figure("score-scatter", "synthetic")
def score_scatter(records: list[Record]) -> Figure:
    """TRACE-Proxy (OT) against the true change, one panel a world that has it, coloured by severity."""
    panels = [(title, frame) for title, frame in plain_worlds(records) if not np.isnan(frame["proxy_ot"]).any()]
    figure, grid = _panels(len(panels))
    for ax, (title, frame) in zip(grid, panels, strict=False):
        dots = ax.scatter(
            frame["proxy_ot"], np.maximum(frame["abs_risk_change"], FLOOR), c=frame["severity"], s=3, cmap="cividis",
            linewidths=0, rasterized=True, vmin=0, vmax=2,
        )  # fmt: skip
        ax.set(xscale="log", yscale="log", title=f"{title}, " + rf"$\rho$ = {_proxy_rho(frame):.2f}")
        _ticks_of_few_decades(ax)
        ax.set_xlabel(f"{SCORES['proxy_ot'].label} [{SCORES['proxy_ot'].units}]")
        ax.set_ylabel(TRUE)
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


def _proxy_rho(frame: Frame) -> float:
    """NaN where c_h is missing."""
    defined = not np.isnan(frame["proxy_ot"]).any()
    return spearman(frame["proxy_ot"], frame["abs_risk_change"]).value if defined else math.nan


@figure("attribution", "synthetic")
def attribution(records: list[Record]) -> Figure:
    """Mean terms of the bound stacked over severity, with the true change below them."""
    return _stacked(records, share=False)


@figure("attribution-shares", "synthetic")
def attribution_shares(records: list[Record]) -> Figure:
    """The same as shares of the bound, where the mild regime can be read."""
    return _stacked(records, share=True)


def _stacked(records: list[Record], *, share: bool) -> Figure:
    panels = plain_worlds(records)
    figure, grid = _panels(len(panels))
    for ax, (title, frame) in zip(grid, panels, strict=False):
        severity, means = _by_severity(frame, [*TERMS, "bound_ot", "abs_risk_change"])
        scale = 100 / means["bound_ot"] if share else np.ones(len(severity))
        ax.stackplot(severity, *(means[name] * scale for name in TERMS), labels=list(TERMS.values()),
                     colors=[COLOURS[4], COLOURS[5], COLOURS[0], COLOURS[1]])  # fmt: skip
        ax.plot(severity, means["abs_risk_change"] * scale, color="black", marker=".", label=r"true $|\Delta R|$")
        ax.set(title=title, xlabel="severity", xlim=(severity[0], severity[-1]))
        ax.set_ylabel("share of the bound [%]" if share else "mean term [nats]")
        ax.margins(y=0)
    if panels:
        handles, labels = grid[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels),
                      title="means over all pairs; labels travel with the points that move")  # fmt: skip
    return figure


@figure("tightness", "synthetic")
def tightness(records: list[Record]) -> Figure:
    """Median bound over |Delta R| against severity, with the middle 80% of pairs."""
    panels = plain_worlds(records)
    figure, grid = _panels(len(panels))
    bounds = {
        **labels("bound_ot", "bound_mmd"),
        **labels("model_change", alone=True),
        **labels("anchor_worst_label"),
    }
    for ax, (title, frame) in zip(grid, panels, strict=False):
        for (name, label), colour, marker in zip(bounds.items(), COLOURS, MARKERS, strict=False):
            severity, quantiles = _ratio_quantiles(frame, name)
            ax.plot(severity, quantiles[1], color=colour, marker=marker, markersize=2.5, linewidth=1, label=label)
            ax.fill_between(severity, quantiles[0], quantiles[2], color=colour, alpha=0.15, linewidth=0)
        ax.axhline(1, **DOTTED)
        ax.set(title=title, yscale="log", xlabel="severity", ylabel=r"bound / $|\Delta R|$")
    if panels:
        handles = [*grid[0].get_legend_handles_labels()[0], note("middle 80% of pairs"), note("no slack", **DOTTED)]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


@figure("sample-sizes", "synthetic")
def sample_sizes(records: list[Record]) -> Figure:
    """Rank correlation of the proxy (top) and median tightness of the bound (bottom) for every pair of sample sizes."""
    panels = [(title, frame) for title, frame in plain_worlds(records) if len(groups(frame, "n", "n_target")) > 1]
    figure, grid = axes(max(len(panels), 1), 2, width=2 * COLUMN, height=1.7, squeeze=False)
    for column, (title, frame) in enumerate(panels):
        _heat_map(grid[0][column], frame, _proxy_rho, "{:.2f}")
        _heat_map(grid[1][column], frame, lambda part: covers(part, "bound_ot")[1], "{:.0f}")
        grid[0][column].set_title(title.replace(", ", ",\n"))
        grid[1][column].set_xlabel("target sample size")
    grid[0][0].set_ylabel(r"$\rho$ of TRACE-Proxy" + "\nsource sample size")
    grid[1][0].set_ylabel(r"median bound / $|\Delta R|$" + "\nsource sample size")
    return figure


def _heat_map(ax: Axes, frame: Frame, value: Callable[[Frame], float], form: str) -> None:
    """Cells without pairs stay empty."""
    n, n_target = (sorted(set(frame[name].tolist())) for name in ("n", "n_target"))
    parts = [[where(frame, n=a, n_target=b) for b in n_target] for a in n]
    cells = np.array([[value(part) if size(part) else math.nan for part in row] for row in parts])
    top = max([1.0, *cells[~np.isnan(cells)].tolist()])
    ax.imshow(cells, cmap="cividis", origin="lower", aspect="auto", vmin=0, vmax=top)
    for (i, j), cell in np.ndenumerate(cells):
        shown = "" if math.isnan(cell) else form.format(cell)
        ax.text(j, i, shown, ha="center", va="center", fontsize=6, color="white" if cell < top / 2 else "black")
    ax.set_xticks(range(len(n_target)), [f"{v:g}" for v in n_target], fontsize=6)
    ax.set_yticks(range(len(n)), [f"{v:g}" for v in n], fontsize=6)


@figure("isolation", "isolation")
def isolation(records: list[Record]) -> Figure:
    """Model change, OT distance and true change, relative to their largest mean, as one knob is turned."""
    frame = isolation_frame(records)
    blocks = sorted(groups(frame, "world", "vary"))
    figure, grid = axes(2, math.ceil(max(len(blocks), 1) / 2), width=2 * COLUMN, squeeze=False)
    shown = {"output_distance": "output distance", "distance": "OT distance", "emp_shift_ot": "OT shift penalty",
             "abs_risk_change": r"true $|\Delta R|$"}  # fmt: skip
    for ax, (world, vary) in zip(grid.flat, blocks, strict=False):
        part = where(frame, world=world, vary=vary)
        knob = "finetune_lr" if vary == "lr" else "severity"
        values = sorted(set(part[knob].tolist()))
        for (name, label), colour, marker in zip(shown.items(), (*COLOURS[:3], "black"), MARKERS, strict=False):
            means = np.array([where(part, **{knob: value})[name].mean() for value in values])
            ax.plot(values, means / means.max(), color=colour, marker=marker, markersize=3, label=label)
        if vary == "lr":
            ax.set_xscale("log")
        ax.set(title=world, ylabel="mean / largest mean", ylim=(0, 1.05))
        ax.set_xlabel("fine-tuning step size" if vary == "lr" else "severity")
    grid.flat[0].legend(loc="best")
    return figure


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


def _by_severity(frame: Frame, names: list[str]) -> tuple[list[float], Frame]:
    severities = sorted(set(frame["severity"].tolist()))
    parts = [where(frame, severity=severity) for severity in severities]
    return severities, {name: np.array([part[name].mean() for part in parts]) for name in names}


def _ratio_quantiles(frame: Frame, bound: str) -> tuple[list[float], NDArray[np.float64]]:
    """Deciles 1, 5 and 9 of bound / |Delta R| at each severity, ``[3, k]``."""
    severities = sorted(set(frame["severity"].tolist()))
    parts = [where(frame, severity=severity) for severity in severities]
    ratios = [part[bound] / np.maximum(part["abs_risk_change"], 1e-12) for part in parts]
    return severities, np.array([np.quantile(ratio, (0.1, 0.5, 0.9)) for ratio in ratios]).T
