"""The figure `anchoring`: target error against the anchor's risk change, one curve a method, from records."""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from ..analysis.anchoring import METHODS, anchoring_frame, studies
from ..engine.records import Record
from .style import COLOURS, COLUMN, DOTTED, MARKERS, axes, band, figure, legend, note

STYLES: dict[str, dict[str, Any]] = {
    "worst_label": {"color": COLOURS[0], "marker": MARKERS[0]},
    "lipschitz": {"color": COLOURS[5], "marker": MARKERS[2]},
    "plug_in": {"color": COLOURS[2], "marker": MARKERS[1]},
    "rehearsal": {"color": COLOURS[3], "marker": MARKERS[3]},
    "distillation": {"color": COLOURS[4], "marker": MARKERS[4]},
    "early_stop": {"color": "0.45", "marker": "x", "linestyle": ":"},
    "small_steps": {"color": "0.45", "marker": "+", "linestyle": "--"},
    "interpolation": {"color": "0.45", "marker": "|", "linestyle": "-"},
}
WINDOW = 10.0
"""Percentage points of target error beside the plain fine-tune that are shown where Q is more than twice as far off."""
SHOWN = {
    "risk_change": (r"$\Delta R$ on the anchor [nats]", 1.0),
    "error_change": (r"$\Delta$ error on the anchor [p.p.]", 100.0),
}


@figure("anchoring", "anchoring")
def anchoring(records: list[Record]) -> Figure:
    """Means over seeds with one standard deviation; every curve starts at the plain fine-tune and bends towards Q.

    Where Q is far off, what is near the plain fine-tune is shown, and where Q stands is written.
    """
    found = studies(anchoring_frame(records))
    figure, grid = axes(len(SHOWN), len(found), width=2 * COLUMN, height=2.5, squeeze=False)
    for row, (title, part) in zip(grid, found, strict=True):
        for ax, (column, (label, scale)) in zip(row, SHOWN.items(), strict=True):
            _trade_off(ax, part, column, scale)
            ax.set(title=title, xlabel="target error [%]", ylabel=label)
    notes = note("one standard deviation over seeds"), note("no change", **DOTTED)
    legend(figure, grid[0][0], *notes, loc="outside lower center", ncols=4)
    return figure


def _trade_off(ax: Axes, part: DataFrame, column: str, scale: float) -> None:
    plain = part[part["method"] == "plain"]
    least = math.inf
    for method, style in STYLES.items():
        steps = pd.concat([plain, part[part["method"] == method]]).groupby("restraint")
        values = scale * steps[column].agg(centre="mean", spread=lambda own: own.std(ddof=0))
        values.index = 100 * steps["target_error"].mean()
        least = min(least, values.index.min())
        line = {"markersize": 3, "linewidth": 0.9, "label": METHODS[method].title, **style}
        band(ax, values["centre"], values["spread"], alpha=0.1, **line)
    end = 100 * plain["target_error"].mean(), scale * plain[column].mean()
    ax.plot(*end, "*", color="black", markersize=8, label="plain fine-tune", zorder=5)
    before = 100 * plain["target_error_before"].mean()
    ax.plot(before, 0, "P", color="black", markersize=5, label="Q", zorder=5)
    ax.axhline(0, **DOTTED)
    if before - end[0] > 2 * WINDOW:
        ax.set_xlim(least - 0.05 * WINDOW, end[0] + WINDOW)
        ax.text(0.98, 0.94, f"Q is outside, at {before:.0f}% and 0", transform=ax.transAxes, ha="right", fontsize=6.5)
