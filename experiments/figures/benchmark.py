"""Cost against sample size, from the benchmark's record."""

from matplotlib.figure import Figure
from pandas import DataFrame

from ..engine.records import Record
from .style import COLOURS, COLUMN, MARKERS, axes, figure


@figure("growth", "benchmark")
def growth(records: list[Record]) -> Figure:
    """Seconds against n, with one line for cost that grows like n and one like n^2."""
    frame = DataFrame(records[0]["metrics"]["growth"])
    drawn, ax = axes(1, 1, width=1.5 * COLUMN, height=3.4)
    for i, (name, own) in enumerate(frame.groupby("estimator", sort=False)):
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "markersize": 3}
        ax.loglog(own["n"], own["seconds"], "-" if i < len(COLOURS) else "--", linewidth=1, label=name, **style)
    sizes = sorted(set(frame["n"]))
    for power in (1, 2):
        seconds = [2e-4 * (n / sizes[0]) ** power for n in sizes]
        ax.loglog(sizes, seconds, color="grey", linewidth=0.6, linestyle=":")
        label = rf"$n^{power}$" if power > 1 else "$n$"
        ax.annotate(label, (sizes[-1], seconds[-1]), (3, 0), textcoords="offset points", color="grey", va="center")
    ax.set(xlabel="samples on either side, n", ylabel="seconds")
    ax.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1.01, 1))
    return drawn
