"""Figure `slopes`: every size of the ridge example against the shift, from stored records alone."""

import math
import statistics
from typing import Any

from matplotlib.figure import Figure

from ..analysis.ridge import closed_forms, diagnostics, samples, with_change
from ..engine.records import Record
from .style import COLOURS, axes, figure, missing

REFERENCE = {"lam": 1.0, "dim": 10, "angle": 45.0}
"""The problem that is drawn, or the nearest one with a change that was run."""

FLOOR = 1e-8
"""Lowest size shown."""


@figure("slopes", "ridge")
def slopes(records: list[Record]) -> Figure:
    """Above, the closed forms of one problem with lines of slope 1 and 2; below, models fitted to samples of it.

    The model change is shown as a penalty: times the quantile that stands in for L_ell. Without a record of a problem
    in which the risk changes, both panels are missing.
    """
    closed = with_change(closed_forms(records))
    figure, (above, below) = axes(1, 2, height=2.9)
    if not closed:
        missing(above)
        missing(below)
        return figure
    record = min(closed, key=lambda r: _distance(r["config"]))
    same = [r for r in samples(records) if _problem(r["config"]) == _problem(record["config"])]
    _population(above, record)
    _samples(below, record, same)
    c = record["config"]
    above.set_title(
        f"closed forms: $\\lambda$ = {c['lam']:g}, d = {c['dim']}, angle {c['angle']:g}°, noise {c['sigma']:g}"
    )
    below.set_title(
        f"$|\\Delta R|$ of fits to n = {same[0]['config']['n']}, seeds: {len(same)}"
        if same
        else "fits to samples: missing"
    )
    return figure


def _problem(config: Record) -> tuple[Any, ...]:
    return tuple(config[key] for key in REFERENCE)


def _distance(config: Record) -> float:
    sizes = sum(abs(math.log(max(config[key], 1e-9) / REFERENCE[key])) for key in ("lam", "dim"))
    return sizes + abs(config["angle"] - REFERENCE["angle"]) / 45


def _population(axis: Any, r: Record) -> None:
    m, c = r["shifts"], r["curves"]
    penalty, cauchy = (
        [slope * size for slope, size in zip(c["loss_slope"], c[name], strict=True)]
        for name in ("model_change", "model_change_bound")
    )
    lines = (
        ("core bound", c["bound"], COLOURS[6], "-"),
        ("shift penalty", c["shift_penalty"], COLOURS[0], "-"),
        ("model change", penalty, COLOURS[1], "-"),
        ("... by Cauchy-Schwarz", cauchy, COLOURS[4], "--"),
        ("$|\\Delta w|$ [weights]", c["weight_change"], COLOURS[2], ":"),
        ("exact COSP", c["cosp"], COLOURS[5], "-."),
        ("$|\\Delta R|$", [abs(change) for change in c["risk_change"]], COLOURS[3], "-"),
    )
    for label, size, colour, style in lines:
        axis.loglog(m, size, style, color=colour, label=label, linewidth=1.3)
    _reference(axis, m, c["bound"][0] * 12, 1)
    _reference(axis, m, abs(c["risk_change"][0]) / 6, 2)
    _finish(axis, 3)


def _samples(axis: Any, r: Record, same: list[Record]) -> None:
    m = r["shifts"]
    axis.loglog(m, [abs(x) for x in r["curves"]["risk_change"]], color=COLOURS[3], label="closed form")
    if same:
        for draws, label, colour, style in (
            ("fresh", "separate samples", COLOURS[1], "-"),
            ("shared", "one sample, moved by $\\mu$", COLOURS[0], "--"),
        ):
            middle = [
                statistics.median(map(abs, sizes)) for sizes in zip(*(s["refits"][draws] for s in same), strict=True)
            ]
            axis.loglog(same[0]["shifts"], middle, style, color=colour, label=label, linewidth=1.3)
        _reference(axis, m, middle[0] * 4, 1, until=0.01)
        rows = diagnostics(same)
        axis.loglog(rows["shift"], rows["bound_core"], "k+", markersize=5, label="core bound, diagnostic")
        measured = rows["risk_change"].abs()
        axis.loglog(rows["shift"], measured, "x", color=COLOURS[2], markersize=4, label="on a test sample")
    _reference(axis, m, abs(r["curves"]["risk_change"][0]) / 6, 2)
    _finish(axis, 2)


def _reference(axis: Any, m: list[float], start: float, order: int, *, until: float = 0.1) -> None:
    """A grey line of a given slope from the smallest shift on, named at its upper end."""
    end = start * (until / m[0]) ** order
    axis.loglog([m[0], until], [start, end], color="0.55", linewidth=0.8)
    side = {"xytext": (-2, 3), "ha": "right"} if order == 1 else {"xytext": (2, 2), "ha": "left", "va": "center"}
    axis.annotate(f"slope {order}", (until, end), textcoords="offset points", fontsize=6.5, color="0.4", **side)


def _finish(axis: Any, columns: int) -> None:
    axis.set(xlabel="$|\\mu|$  [input standard deviations]", ylabel="size  [units of the loss]", ylim=(FLOOR, None))
    axis.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=columns, columnspacing=1.0, handlelength=1.8)
