"""One cause at a time, from records."""

import math

from matplotlib.figure import Figure

from ..analysis.isolation import isolation_frame
from ..analysis.summary import mean_interval
from ..engine.records import Record
from .style import COLOURS, COLUMN, MARKERS, axes, figure, legend

KNOBS = {
    "lr": ("fine-tuning step size", "log"),
    "severity": ("severity", "linear"),
    "n": ("target sample size", "log"),
}
"""What is turned: its name and scale."""

SHOWN = {
    "output_distance": "output distance",
    "distance": "OT distance",
    "gap_target": "gap of Q~",
    "emp_shift_ot": "OT shift penalty",
    "abs_risk_change": r"true $|\Delta R|$",
}


@figure("isolation", "isolation")
def isolation(records: list[Record]) -> Figure:
    """Terms and true change, relative to their largest mean, as one knob is turned; bars are 95% intervals of means."""
    blocks = list(isolation_frame(records).groupby(["world", "vary"]))
    figure, grid = axes(2, math.ceil(len(blocks) / 2), width=2 * COLUMN, squeeze=False)
    for ax, ((world, vary), part) in zip(grid.flat, blocks, strict=False):
        for (name, label), colour, marker in zip(SHOWN.items(), (*COLOURS[:4], "black"), MARKERS, strict=False):
            if name == "gap_target" and vary != "n":
                continue
            found = part.groupby("knob")[name].agg(mean_interval)
            means, largest = found.map(lambda f: f.estimate), max(f.estimate for f in found)
            bars = [(f.estimate - f.lower) / largest for f in found]
            look = {"color": colour, "marker": marker, "markersize": 3, "linewidth": 1, "elinewidth": 0.6}
            ax.errorbar(found.index, means / largest, yerr=bars, capsize=1.5, label=label, **look)
        knob, scale = KNOBS[vary]
        ax.set(title=world, xlabel=knob, xscale=scale, ylabel="mean / largest mean", ylim=(0, None))
    legend(figure, grid.flat[0])
    return figure
