"""One cause at a time, from records."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from ..analysis.isolation import isolation_frame
from ..engine.records import Record
from .style import COLOURS, COLUMN, MARKERS, axes, figure

SHOWN = {
    "output_distance": "output distance",
    "distance": "OT distance",
    "emp_shift_ot": "OT shift penalty",
    "abs_risk_change": r"true $|\Delta R|$",
}


@figure("isolation", "isolation")
def isolation(records: list[Record]) -> Figure:
    """Model change, OT distance and true change, relative to their largest mean, as one knob is turned."""
    blocks = list(isolation_frame(records).groupby(["world", "vary"]))
    figure, grid = axes(2, math.ceil(len(blocks) / 2), width=2 * COLUMN, squeeze=False)
    for ax, ((world, vary), part) in zip(grid.flat, blocks, strict=False):
        means = part.groupby("knob")[list(SHOWN)].mean()
        shares = means / means.max()
        for (name, label), colour, marker in zip(SHOWN.items(), (*COLOURS[:3], "black"), MARKERS, strict=False):
            ax.plot(shares.index, shares[name], color=colour, marker=marker, markersize=3, label=label)
        if vary == "lr":
            ax.set_xscale("log")
        ax.set(title=world, ylabel="mean / largest mean", ylim=(0, 1.05))
        ax.set_xlabel("fine-tuning step size" if vary == "lr" else "severity")
    grid.flat[0].legend(loc="best")
    return figure
