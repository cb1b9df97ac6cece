"""Active selection by rounds, from records."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from ..analysis.active import completed
from ..analysis.frame import active_frame, groups, where
from ..engine.records import Record
from .style import COLOURS, COLUMN, DOTTED, MARKERS, axes, figure, note

SHOWN = {
    "distance": ("Sinkhorn divergence\n(squared cost) to the source", 1.0),
    "mmd": ("MMD to the source", 1.0),
    "output_distance": ("output discrepancy [logits]", 1.0),
    "error_change": (r"$\Delta R$ [p.p. of top-1 error]", 100.0),
    "risk_change": (r"$\Delta R$ [nats]", 1.0),
    "target_error": ("target error [%]", 100.0),
}


@figure("active-rounds", "active")
def rounds(records: list[Record]) -> Figure:
    """Means over seeds with one standard deviation, one line a policy; above 0, a risk change is harm.

    Dashed, beside the distances: as many held-out images of the source as there are labels.
    """
    frame = completed(active_frame(records))
    figure, grid = axes(3, 2, width=2 * COLUMN, height=2.0)
    for ax, (name, (label, scale)) in zip(grid.flat, SHOWN.items(), strict=True):
        for (data, policy), colour, marker in zip(
            sorted(groups(frame, "data", "policy")), COLOURS, MARKERS, strict=False
        ):
            part = where(frame, data=data, policy=policy)
            labeled = sorted(set(part["labeled"].tolist()))
            values = [scale * where(part, labeled=count)[name] for count in labeled]
            means, spreads = (np.array([f(v) for v in values]) for f in (np.mean, np.std))
            ax.plot(labeled, means, color=colour, marker=marker, markersize=3, label=f"{policy} ({data})")
            ax.fill_between(labeled, means - spreads, means + spreads, color=colour, alpha=0.15, linewidth=0)
        if f"held_out_{name}" in frame:
            labeled = sorted(set(frame["labeled"].tolist()))
            floor = [where(frame, labeled=count)[f"held_out_{name}"].mean() for count in labeled]
            ax.plot(labeled, floor, "--", color="black", linewidth=0.8, label="as many held-out images of the source")
        ax.set(xlabel="labels", ylabel=label)
        if "change" in name:
            ax.axhline(0, **DOTTED)
    handles = grid.flat[0].get_legend_handles_labels()[0]
    handles += [note("one standard deviation over seeds"), note("no change", **DOTTED)]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure
