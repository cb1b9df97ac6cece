"""The deployment gate, from records: every score against the change, and how well it ranks and separates harm."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve, roc_curve

from ..analysis.frame import Frame, gate_frame, groups, where
from ..analysis.gate import SCORES, both_kinds, ranked, subsets
from ..analysis.paper import GATE_TAU
from ..engine.records import Record
from .style import COLOURS, COLUMN, DOTTED, MARKERS, axes, figure, note

STYLES: dict[str, dict[str, Any]] = {
    "trace_w": {"color": COLOURS[0]},
    "trace_mmd": {"color": COLOURS[1], "linestyle": "--"},
    "output_distance": {"color": COLOURS[2], "linestyle": "-."},
    "negative_msp_source": {"color": COLOURS[3], "linestyle": (0, (5, 1))},
    "cot": {"color": COLOURS[4], "linestyle": (0, (3, 1, 1, 1))},
    "anchor_disagreement": {"color": COLOURS[5], "linewidth": 2.2},
}
"""Of the scores that are drawn."""
RANDOM: dict[str, Any] = {"color": "0.6", "linewidth": 1.0, "label": "alarms at random"}


@figure("gate-scores", "gate")
def scores(records: list[Record]) -> Figure:
    """Each score against the change of the anchor's 0-1 risk, two rows a data set; open: what is no plain fine-tune."""
    frame = gate_frame(records)
    blocks = [(data, where(frame, data=data)) for (data,) in groups(frame, "data")]
    kinds = sorted(set(frame["kind"].tolist()), key=lambda kind: (kind != "plain", kind))
    figure, grid = axes(3, 2 * len(blocks), width=2 * COLUMN, height=2.1)
    for (data, part), panels in zip(blocks, grid.reshape(len(blocks), -1), strict=True):
        panels[0].set_title(data, loc="left")
        for ax, name in zip(panels, STYLES, strict=True):
            _scatter(ax, part, name, kinds)
    handles = [*grid.flat[0].get_legend_handles_labels()[0], note(f"harm above {GATE_TAU}", **DOTTED)]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _scatter(ax: Axes, part: Frame, name: str, kinds: list[str]) -> None:
    for kind, colour, marker in zip(kinds, COLOURS, MARKERS, strict=False):
        chosen = part["kind"] == kind
        filled: dict[str, Any] = {"color": colour}
        hollow: dict[str, Any] = {"facecolors": "none", "edgecolors": colour}
        ax.scatter(part[name][chosen], 100 * part["error_change"][chosen], s=9, marker=marker, linewidths=0.7,
                   label=kind, **(filled if kind == "plain" else hollow))  # fmt: skip
    ax.axhline(100 * GATE_TAU, **DOTTED)
    ax.set(xlabel=SCORES[name], ylabel=r"$\Delta R$ [p.p. of top-1]")


@figure("gate-curves", "gate")
def curves(records: list[Record]) -> Figure:
    """ROC and precision-recall of harm above the paper's threshold, or the median where it leaves one kind only."""
    found = subsets(records)
    figure, grid = axes(2, len(found), width=2 * COLUMN, height=2.4, squeeze=False)
    for row, (title, frame) in zip(grid, found, strict=True):
        tau = GATE_TAU if both_kinds(frame, GATE_TAU) else float(np.median(frame["error_change"]))
        harmful = frame["error_change"] > tau
        for name, style in STYLES.items():
            false, true, _ = roc_curve(harmful, frame[name])
            precision, recall, _ = precision_recall_curve(harmful, frame[name])
            for ax, x, y in ((row[0], false, true), (row[1], recall, precision)):
                ax.plot(100 * x, 100 * y, **{"linewidth": 1.1, "label": SCORES[name], **style})
        row[0].plot([0, 100], [0, 100], **RANDOM)
        row[1].axhline(100 * harmful.mean(), **RANDOM)
        row[0].set(title=f"{title}, harm above {tau:.2f}", xlabel="false alarms [%]", ylabel="harm found [%]")
        row[1].set(xlabel="harm found [%]", ylabel="right alarms [%]", ylim=(0, 103))
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4)
    return figure


@figure("gate-forest", "gate")
def forest(records: list[Record]) -> Figure:
    """Spearman's rho of every score with the signed change, with its interval over seeds and candidates."""
    found = subsets(records)
    figure, ax = axes(width=COLUMN, height=3.9)
    places = np.arange(len(SCORES))[::-1]
    for number, (title, frame) in enumerate(found):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        at = places + 0.32 * ((len(found) - 1) / 2 - number) / max(1, len(found) - 1)
        intervals = [ranked(frame, score) for score in SCORES]
        for place, rho in zip(at, intervals, strict=True):
            ax.plot([rho.lower, rho.upper], [place] * 2, color=colour, linewidth=1.0)
        ax.plot([rho.estimate for rho in intervals], at, marker, color=colour, markersize=3.5, label=title)
    ax.axvline(0, **DOTTED)
    ax.set(
        yticks=places,
        yticklabels=list(SCORES.values()),
        xlim=(-1, 1),
        xlabel=r"Spearman's $\rho$ with signed $\Delta R$",
    )
    figure.legend(loc="outside upper center", ncols=2)
    return figure
