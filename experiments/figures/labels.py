"""The figure `labels`: what a decision costs as the margin shrinks and as disagreement grows, from records."""

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ..analysis.labels import METHODS, kept, labels_frame, typical
from ..engine.records import Record
from .style import COLOURS, COLUMN, MARKERS, axes, figure, legend

STYLES: dict[str, dict[str, Any]] = {
    "file": {"color": COLOURS[0], "marker": MARKERS[0]},
    "population": {"color": COLOURS[2], "marker": MARKERS[1]},
    "betting": {"color": COLOURS[1], "marker": MARKERS[2]},
    "bernstein": {"color": COLOURS[3], "marker": MARKERS[3]},
    "hoeffding": {"color": COLOURS[4], "marker": MARKERS[4]},
    "ppi": {"color": "0.45", "marker": "x", "linestyle": ":"},
    "active_testing": {"color": "0.45", "marker": "+", "linestyle": "--"},
}
BESIDE = 0.05
"""The margin at which disagreement is varied."""


@figure("labels", "labels")
def labels(records: list[Record]) -> Figure:
    """Medians of the typical candidate against the margin, and of each candidate against its disagreement."""
    frame = labels_frame(records)
    losses = list(dict.fromkeys(frame["loss"]))
    drawn, grid = axes(2, len(losses), width=2 * COLUMN, height=2.4, squeeze=False)
    for (by_margin, by_disagreement), loss in zip(grid, losses, strict=True):
        part = frame[frame["loss"] == loss]
        for method, style in STYLES.items():
            line = {"markersize": 3.5, "linewidth": 0.9, "label": _title(frame, method), **style}
            _against_margin(by_margin, part[part["method"] == method], line)
            _against_disagreement(by_disagreement, part[part["method"] == method], line)
        unit = "share of rows" if loss == "zero-one" else "nats"
        by_margin.set(title=loss, xscale="log", yscale="log", xlabel=f"margin [{unit}]", ylabel="labels (median)")
        by_disagreement.set(
            title=f"{loss}, margin {BESIDE:g}", yscale="log", xlabel="disagreement [%]", ylabel="labels (median)"
        )
    legend(drawn, grid[0][0], loc="outside lower center", ncols=4)
    return drawn


def _title(frame: DataFrame, method: str) -> str:
    settings = frame[frame["method"] == method].groupby(["data", "loss", "side"])
    broken = any(not kept(own) for _, own in settings)
    return f"{METHODS[method]} (promise broken)" if broken else METHODS[method]


def _against_margin(ax: Axes, part: DataFrame, line: dict[str, Any]) -> None:
    found = {margin: typical(own, "median") for margin, own in part.groupby("margin")}
    decided = {margin: cost for margin, cost in found.items() if math.isfinite(cost) and cost > 0}
    ax.plot(list(decided), list(decided.values()), **line)


def _against_disagreement(ax: Axes, part: DataFrame, line: dict[str, Any]) -> None:
    beside = part[part["margin"] == BESIDE].groupby(["data", "candidate"])
    found = beside.agg(disagreement=("disagreement", "first"), cost=("median", "mean")).sort_values("disagreement")
    decided = found[(found["cost"] > 0) & (found["cost"] < math.inf)]
    ax.plot(100 * decided["disagreement"], decided["cost"], **{**line, "linestyle": "none"})
