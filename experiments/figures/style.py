"""The look of every figure: one column wide, colour-blind safe, the same bytes from the same records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from cycler import cycler

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pandas import Series

from trace.io.writing import replacement

from ..engine.records import Record
from ..engine.registry import Registry

COLUMN = 3.4
"""Width of a column in inches."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette, strongest contrasts first."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

LINES: dict[str, dict[str, Any]] = {
    "trace_w": {"color": COLOURS[0]},
    "trace_mmd": {"color": COLOURS[1], "linestyle": "--"},
    "held_out_distance": {"color": COLOURS[2], "linestyle": "-."},
    "negative_msp_source": {"color": COLOURS[3], "linestyle": (0, (5, 1))},
    "cot": {"color": COLOURS[4], "linestyle": (0, (3, 1, 1, 1))},
    "anchor_disagreement": {"color": COLOURS[5], "linewidth": 2.2},
    "bound_ot": {"color": COLOURS[0], "marker": MARKERS[0]},
    "bound_mmd": {"color": COLOURS[1], "marker": MARKERS[1]},
    "model_change": {"color": COLOURS[2], "marker": MARKERS[2]},
    "anchor_worst_label": {"color": COLOURS[3], "marker": MARKERS[3]},
}
"""The line of a score or bound that has a look of its own."""


def line_of(score: str) -> dict[str, Any]:
    """How a score or bound is drawn, the same in every figure; one without a look of its own is thin and grey."""
    return LINES.get(score, {"color": "0.45", "linewidth": 0.8})


plt.rcParams.update(
    {
        "figure.dpi": 200,
        "savefig.bbox": "tight",
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 6.5,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "pdf.fonttype": 42,
        "axes.prop_cycle": cycler(color=COLOURS),
    }
)


figure: Registry[Callable[[list[Record]], Figure]] = Registry("experiments.figures")
"""``@figure("name", "experiment")`` over a function of that experiment's records."""
photographs: Registry[Callable[[list[Record]], Figure]] = Registry("experiments.figures")
"""The same for a figure that shows images of a data set: drawn where it is asked for, never part of the repository."""


def axes(
    columns: int = 1, rows: int = 1, *, width: float = COLUMN, height: float = 2.4, **options: Any
) -> tuple[Figure, Any]:
    """A figure ``width`` inches wide with a grid of axes, each row ``height`` inches high."""
    return plt.subplots(rows, columns, figsize=(width, height * rows), layout="constrained", **options)


def missing(ax: Axes) -> None:
    """Say in a panel that there are no records for it."""
    ax.text(0.5, 0.5, "missing", ha="center", transform=ax.transAxes)


def band(ax: Axes, centre: Series, reach: Series, *, alpha: float, **line: Any) -> None:
    """A line over the index of ``centre``, with a band of ``reach`` on either side."""
    ax.plot(centre.index, centre, **line)
    ax.fill_between(centre.index, centre - reach, centre + reach, color=line["color"], alpha=alpha, linewidth=0)


def note(label: str, **line: Any) -> Line2D | Patch:
    """A legend entry for what has none of its own: a grey band, or with ``line`` a line of that look."""
    return Line2D([], [], label=label, **line) if line else Patch(color="0.5", alpha=0.25, linewidth=0, label=label)


def legend(figure: Figure, ax: Axes, *notes: Artist, ncols: int = 0, **options: Any) -> None:
    """A legend above all panels, or at another ``loc``: what ``ax`` has, then ``notes``; without ``ncols`` in a row."""
    handles = [*ax.get_legend_handles_labels()[0], *notes]
    figure.legend(**{"handles": handles, "loc": "outside upper center", "ncols": ncols or len(handles), **options})


DOTTED: dict[str, Any] = {"color": "black", "linewidth": 0.6, "linestyle": ":"}
"""A line to compare with."""


def save(drawn: Figure, name: str, folder: Path) -> None:
    """``NAME.pdf`` and ``NAME.png``, without dates, whole or not at all."""
    undated: dict[str, dict[str, str | None]] = {
        "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
        "png": {"Software": None},
    }
    for suffix, metadata in undated.items():
        with replacement(folder / f"{name}.{suffix}") as aside:
            drawn.savefig(aside, format=suffix, metadata=metadata)
    plt.close(drawn)
