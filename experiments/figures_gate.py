"""The deployment gate, from records: scores against the change, and how well they separate harm."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve, roc_curve

from .figure_style import COLOURS, COLUMN, MARKERS, axes
from .gate_scores import SCORES, subsets
from .records import Record

SHOWN = ("trace_w", "trace_mmd", "output_distance", "negative_msp_source", "cot", "anchor_disagreement")
TAU = 0.13
"""The paper's threshold."""


def scores(records: list[Record]) -> Figure:
    """Each score against the change of the anchor's 0-1 risk; filled: plain fine-tunes, open: controls."""
    _, frame = subsets(records)[-1]
    figure, grid = axes(3, 2, width=2 * COLUMN, height=2.0)
    for ax, name in zip(grid.flat, SHOWN, strict=True):
        for plain, style in ((True, {"color": COLOURS[0]}), (False, {"facecolors": "none", "edgecolors": COLOURS[1]})):
            chosen = (frame["kind"] == "plain") == plain
            ax.scatter(frame[name][chosen], 100 * frame["error_change"][chosen], s=8, linewidths=0.7, **style)
        ax.axhline(100 * TAU, color="black", linewidth=0.6, linestyle=":")
        ax.set(xlabel=SCORES[name], ylabel=r"$\Delta R$ [p.p. of top-1]")
    return figure


def curves(records: list[Record]) -> Figure:
    """ROC and precision-recall of harm above the threshold nearest the paper's at which both kinds occur."""
    found = subsets(records)
    figure, grid = axes(2, len(found), width=2 * COLUMN, height=2.3, squeeze=False)
    for row, (title, frame) in zip(grid, found, strict=True):
        tau = _threshold(frame["error_change"])
        harmful = frame["error_change"] > tau
        for name, colour, marker in zip(SHOWN, COLOURS, MARKERS, strict=False):
            false, true, _ = roc_curve(harmful, frame[name])
            precision, recall, _ = precision_recall_curve(harmful, frame[name])
            for ax, x, y in ((row[0], false, true), (row[1], recall, precision)):
                ax.plot(x, y, color=colour, marker=marker, markersize=2, linewidth=0.9, label=SCORES[name])
        row[0].set(title=f"{title}, harm above {tau:.2f}", xlabel="false alarms", ylabel="harm found")
        row[1].set(xlabel="harm found (recall)", ylabel="alarms that are right (precision)")
    grid[0][0].legend()
    return figure


def _threshold(change: np.ndarray) -> float:
    """The paper's threshold, or the median change where it leaves one kind only."""
    return TAU if 0 < (change > TAU).mean() < 1 else float(np.median(change))
