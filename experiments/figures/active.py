"""Active selection by rounds, from records."""

from matplotlib.figure import Figure

from ..analysis.active import active_frame
from ..engine.records import Record
from .style import COLOURS, COLUMN, DOTTED, MARKERS, axes, band, figure, legend, note

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
    frame = active_frame(records)
    figure, grid = axes(3, 2, width=2 * COLUMN, height=2.0)
    for ax, (name, (label, scale)) in zip(grid.flat, SHOWN.items(), strict=True):
        policies = frame.groupby(["data", "policy"])
        for ((data, policy), part), colour, marker in zip(policies, COLOURS, MARKERS, strict=False):
            values = (scale * part[name]).groupby(part["labeled"])
            style = {"color": colour, "marker": marker, "markersize": 3}
            band(ax, values.mean(), values.std(ddof=0), alpha=0.15, label=f"{policy} ({data})", **style)
        if f"held_out_{name}" in frame:
            floor = frame.groupby("labeled")[f"held_out_{name}"].mean()
            ax.plot(floor, "--", color="black", linewidth=0.8, label="as many held-out images of the source")
        ax.set(xlabel="labels", ylabel=label)
        if "change" in name:
            ax.axhline(0, **DOTTED)
    notes = note("one standard deviation over seeds"), note("no change", **DOTTED)
    legend(figure, grid.flat[0], *notes, ncols=3)
    return figure
