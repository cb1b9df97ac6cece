"""The drawn worlds at each severity, with both models' decision boundaries, from records."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..engine.records import Record
from .style import COLOURS, COLUMN, MARKERS, axes, figure, missing

Portraits = dict[str, Any]
"""By severity, what `experiments.pairs.portrait` kept."""


@figure("worlds", "synthetic")
def worlds(records: list[Record]) -> Figure:
    """Target points in colour, source points in grey, and where Q (solid) and Q~ (dashed) change their mind."""
    drawn: dict[str, Portraits] = {}
    for record in sorted(records, key=lambda r: r["config"]["n"]):
        for model, kept in record["metrics"].items():
            if "portraits" in kept:
                drawn.setdefault(f"{record['config']['world']},\n{model}", {}).update(kept["portraits"])
    severities = sorted({float(s) for portraits in drawn.values() for s in portraits})
    shape = max(len(severities), 1), max(len(drawn), 1)
    ratios = [_height(portraits) for _, portraits in sorted(drawn.items())] or [1.0]
    height = 1.2 * sum(ratios) / len(ratios) + 0.3
    figure, grid = axes(*shape, width=2 * COLUMN, height=height, squeeze=False, sharex="row", sharey="row",
                        height_ratios=ratios)  # fmt: skip
    for row, (title, portraits) in zip(grid, sorted(drawn.items()), strict=False):
        row[0].set_ylabel(f"{title}\n$x_2$", fontsize=6.5)
        for ax, severity in zip(row, severities, strict=True):
            _draw(ax, portraits.get(str(severity)))
    for ax, severity in zip(grid[0], severities, strict=False):
        ax.set_title(f"severity {severity:g}")
    for ax in grid[-1]:
        ax.set_xlabel("$x_1$")
    figure.legend(handles=_legend(), loc="outside lower center", ncols=5)
    return figure


def _height(portraits: Portraits) -> float:
    """Height over width of what a row shows."""
    spans = {key: [v for p in portraits.values() for v in (p[key][0], p[key][-1])] for key in ("x", "y")}
    return float((max(spans["y"]) - min(spans["y"])) / (max(spans["x"]) - min(spans["x"])))


def _draw(ax: Axes, portrait: Portraits | None) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_aspect("equal")
    if portrait is None:
        missing(ax)
        return
    source = np.array(portrait["source"]["x"])
    ax.scatter(source[:, 0], source[:, 1], s=1.5, color="0.75", linewidths=0)
    points, labels = np.array(portrait["target"]["x"]), np.array(portrait["target"]["y"])
    for label in (0, 1):
        x, y = points[labels == label].T
        ax.scatter(x, y, s=3, color=COLOURS[label], marker=MARKERS[label], linewidths=0)
    for key, style in (("score", "solid"), ("new_score", "dashed")):
        ax.contour(portrait["x"], portrait["y"], portrait[key], levels=[0], colors="black", linewidths=1,
                   linestyles=style)  # fmt: skip


def _legend() -> list[Line2D]:
    dots = [Line2D([], [], linestyle="", marker=MARKERS[k], color=COLOURS[k], markersize=3, label=f"target, class {k}")
            for k in (0, 1)]  # fmt: skip
    source = Line2D([], [], linestyle="", marker=".", color="0.75", label="source")
    old = Line2D([], [], color="black", linestyle="solid", label="boundary of Q")
    new = Line2D([], [], color="black", linestyle="dashed", label="boundary of Q~")
    return [source, *dots, old, new]
