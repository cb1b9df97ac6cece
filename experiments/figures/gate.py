"""The deployment gate, from records: every score against the change, and how well it ranks and separates harm."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series
from sklearn.metrics import precision_recall_curve, roc_curve

from ..analysis.gate import SCORES, both_kinds, correlation, gate_frame, harmful, replicated, subsets
from ..analysis.paper import GATE_TAU
from ..analysis.replications import over_data_sets
from ..engine.records import Record
from .style import COLOURS, COLUMN, DOTTED, MARKERS, axes, figure, legend, line_of, note

DRAWN = ("trace_w", "trace_mmd", "held_out_distance", "negative_msp_source", "cot", "anchor_disagreement")
"""Scores with a panel of their own; all of them stand in the forest."""
RANDOM: dict[str, Any] = {"color": "0.6", "linewidth": 1.0, "label": "alarms at random"}


@figure("gate-scores", "gate")
def scores(records: list[Record]) -> Figure:
    """Each score against the change of the anchor's 0-1 risk, two rows a data set; open: what is no plain fine-tune."""
    frame = gate_frame(records)
    blocks = list(frame.groupby("data", sort=False))
    kinds = sorted(set(frame["kind"]), key=lambda kind: (kind != "plain", kind))
    figure, grid = axes(3, 2 * len(blocks), width=2 * COLUMN, height=2.1)
    for (data, part), panels in zip(blocks, grid.reshape(len(blocks), -1), strict=True):
        panels[0].set_title(data, loc="left")
        for ax, name in zip(panels, DRAWN, strict=True):
            _scatter(ax, part, name, kinds)
    legend(figure, grid.flat[0], note(f"harm above {GATE_TAU}", **DOTTED))
    return figure


def _scatter(ax: Axes, part: DataFrame, name: str, kinds: list[str]) -> None:
    for kind, colour, marker in zip(kinds, COLOURS, MARKERS, strict=False):
        own = part[part["kind"] == kind]
        look: dict[str, Any] = {"color": colour} if kind == "plain" else {"facecolors": "none", "edgecolors": colour}
        ax.scatter(own[name], 100 * own["error_change"], s=9, marker=marker, linewidths=0.7, label=kind, **look)
    ax.axhline(100 * GATE_TAU, **DOTTED)
    ax.set(xlabel=SCORES[name], ylabel=r"$\Delta R$ [p.p. of top-1]")


@figure("gate-curves", "gate")
def curves(records: list[Record]) -> Figure:
    """ROC and precision-recall of harm above the paper's threshold, or the median where it leaves one kind only."""
    found = subsets(records)
    figure, grid = axes(2, len(found), width=2 * COLUMN, height=2.4, squeeze=False)
    for row, (title, frame) in zip(grid, found, strict=True):
        tau = GATE_TAU if both_kinds(frame, GATE_TAU) else float(frame["error_change"].median())
        harm = harmful(frame, tau)
        for name in DRAWN if both_kinds(frame, tau) else ():
            false, true, _ = roc_curve(harm, frame[name])
            precision, recall, _ = precision_recall_curve(harm, frame[name])
            for ax, x, y in ((row[0], false, true), (row[1], recall, precision)):
                ax.plot(100 * x, 100 * y, **{"linewidth": 1.1, "label": SCORES[name], **line_of(name)})
        row[0].plot([0, 100], [0, 100], **RANDOM)
        row[1].axhline(100 * harm.mean(), **RANDOM)
        row[0].set(title=f"{title}, harm above {tau:.2f}", xlabel="false alarms [%]", ylabel="harm found [%]")
        row[1].set(xlabel="harm found [%]", ylabel="right alarms [%]", ylim=(0, 103))
    legend(figure, grid[0][0], ncols=4)
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
        intervals = [correlation(frame, score) for score in SCORES]
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


@figure("gate-replications", "gate", across=True)
def gate_replications(records: list[Record]) -> Figure:
    """Spearman's rho of every score with the signed change, a column for each replication; best on average first."""
    frame = gate_frame(records)
    cells = replicated(frame[frame["kind"] == "plain"])
    if not cells:
        drawn, ax = axes(width=COLUMN, height=1.0)
        ax.set_axis_off()
        ax.text(0.5, 0.5, "no plain fine-tune among these records", ha="center", va="center")
        return drawn
    rho = Series({place: own["rho"].estimate for place, own in cells.items()}).unstack(level=0)
    sets = Series({title: own["data_set"] for (title, _), own in cells.items()})
    mean = rho.apply(lambda row: over_data_sets(row, sets).estimate, axis=1)
    rho = rho.assign(mean=mean).sort_values("mean", ascending=False).rename(columns={"mean": "mean of data sets"})
    drawn, ax = axes(width=0.52 * rho.shape[1] + 2.2, height=0.21 * len(rho) + 1.9)
    shades = ax.imshow(rho, cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
    for (y, x), value in np.ndenumerate(rho.to_numpy()):
        if np.isfinite(value):
            ax.text(x, y, f"{value:.2f}", ha="center", va="center", fontsize=6, color="w" if abs(value) > 0.6 else "k")
    ax.axvline(rho.shape[1] - 1.5, color="k", linewidth=1.0)
    ax.set(xticks=range(rho.shape[1]), yticks=range(len(rho)), yticklabels=list(rho.index))
    ax.set_xticklabels([title.replace(", ", "\n") for title in rho.columns], rotation=90)
    drawn.colorbar(shades, label=r"Spearman's $\rho$ with signed $\Delta R$", pad=0.02)
    return drawn
