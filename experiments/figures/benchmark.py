"""Cost against sample size, from the benchmark's record."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..engine.records import Record
from .style import COLOURS, COLUMN, MARKERS, axes, figure


@figure("growth", "benchmark")
def growth(records: list[Record]) -> Figure:
    """Seconds against n, with one line for cost that grows like n and one like n^2."""
    rows = records[0]["metrics"]["growth"]
    drawn, ax = axes(1, 1, width=1.5 * COLUMN, height=3.4)
    names = list(dict.fromkeys(row["estimator"] for row in rows))
    for i, name in enumerate(names):
        own = [row for row in rows if row["estimator"] == name]
        ax.loglog([row["n"] for row in own], [row["seconds"] for row in own], color=COLOURS[i % len(COLOURS)],
                  marker=MARKERS[i % len(MARKERS)], markersize=3, linewidth=1,
                  linestyle="-" if i < len(COLOURS) else "--", label=name)  # fmt: skip
    sizes = sorted({row["n"] for row in rows})
    for power in (1, 2):
        ax.loglog(sizes, [2e-4 * (n / sizes[0]) ** power for n in sizes], color="grey", linewidth=0.6, linestyle=":")
        ax.annotate(f"n^{power}" if power > 1 else "n", (sizes[-1], 2e-4 * (sizes[-1] / sizes[0]) ** power),
                    fontsize=7, color="grey", ha="right", va="bottom")  # fmt: skip
    ax.set(xlabel="samples on either side, n", ylabel="seconds")
    ax.legend(fontsize=6, loc="upper left", bbox_to_anchor=(1.01, 1))
    return drawn
