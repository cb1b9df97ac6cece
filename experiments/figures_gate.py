"""The deployment gate, from records: every score against the change, and how well it ranks and separates harm."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve, roc_curve

from .figure_style import COLOURS, COLUMN, MARKERS, axes
from .gate_scores import SCORES, both_kinds, ranked, subsets
from .published import GATE_TAU
from .records import Record

SHOWN = ("trace_w", "trace_mmd", "output_distance", "negative_msp_source", "cot", "anchor_disagreement")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))


def scores(records: list[Record]) -> Figure:
    """Each score against the change of the anchor's 0-1 risk; filled: plain fine-tunes, open: controls by kind."""
    _, frame = subsets(records)[-1]
    figure, grid = axes(3, 2, width=2 * COLUMN, height=2.1)
    kinds = sorted(set(frame["kind"].tolist()), key=lambda kind: (kind != "plain", kind))
    for ax, name in zip(grid.flat, SHOWN, strict=True):
        for kind, colour, marker in zip(kinds, COLOURS, MARKERS, strict=False):
            chosen = frame["kind"] == kind
            filled, hollow = {"color": colour}, {"facecolors": "none", "edgecolors": colour}
            ax.scatter(frame[name][chosen], 100 * frame["error_change"][chosen], s=9, marker=marker, linewidths=0.7,
                       label=kind, **(filled if kind == "plain" else hollow))  # fmt: skip
        ax.axhline(100 * GATE_TAU, color="black", linewidth=0.6, linestyle=":")
        ax.set(xlabel=SCORES[name], ylabel=r"$\Delta R$ [p.p. of top-1]")
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(kinds))
    return figure


def curves(records: list[Record]) -> Figure:
    """ROC and precision-recall of harm above the paper's threshold, or the median where it leaves one kind only."""
    found = subsets(records)
    figure, grid = axes(2, len(found), width=2 * COLUMN, height=2.4, squeeze=False)
    for row, (title, frame) in zip(grid, found, strict=True):
        tau = GATE_TAU if both_kinds(frame, GATE_TAU) else float(np.median(frame["error_change"]))
        harmful = frame["error_change"] > tau
        for name, colour, line in zip(SHOWN, COLOURS, LINES, strict=False):
            false, true, _ = roc_curve(harmful, frame[name])
            precision, recall, _ = precision_recall_curve(harmful, frame[name])
            for ax, x, y in ((row[0], false, true), (row[1], recall, precision)):
                ax.plot(100 * x, 100 * y, color=colour, linestyle=line, linewidth=1.1, label=SCORES[name])
        row[0].set(title=f"{title}, harm above {tau:.2f}", xlabel="false alarms [%]", ylabel="harm found [%]")
        row[1].axhline(100 * harmful.mean(), color="black", linewidth=0.6, linestyle=":")
        row[1].set(title="dotted: alarms at random", xlabel="harm found [%]", ylabel="right alarms [%]", ylim=(0, 103))
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


def forest(records: list[Record]) -> Figure:
    """Spearman's rho of every score with the signed change, with its interval over seeds and candidates."""
    found = subsets(records)
    figure, ax = axes(width=COLUMN, height=3.9)
    places = np.arange(len(SCORES))[::-1]
    for (title, frame), colour, marker, offset in zip(found, COLOURS, MARKERS, (0.16, -0.16), strict=False):
        intervals = [ranked(frame, score) for score in SCORES]
        for place, rho in zip(places, intervals, strict=True):
            ax.plot([rho.lower, rho.upper], [place + offset] * 2, color=colour, linewidth=1.0)
        ax.plot([rho.estimate for rho in intervals], places + offset, marker, color=colour, markersize=3.5, label=title)
    ax.axvline(0, color="black", linewidth=0.6, linestyle=":")
    ax.set(
        yticks=places,
        yticklabels=list(SCORES.values()),
        xlim=(-1, 1),
        xlabel=r"Spearman's $\rho$ with signed $\Delta R$",
    )
    figure.legend(loc="outside upper center", ncols=2)
    return figure
