"""Tables of active selection from records: `trace-domainnet-main` and `-combined`, `active-terms`, `active-ranks`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trace.stats.bootstrap import BootstrapInterval

from ..analysis.active import POLICIES, SCORES, completed, ranked_means, ranked_rounds
from ..analysis.cells import MISSING, interval, spread
from ..analysis.frame import Frame, active_frame, groups, where
from ..analysis.paper import ACTIVE, ActiveRow
from ..engine.records import Record
from .table import Table, table

DISTANCE = {"w1min": "distance", "mmdmin": "mmd", "random": "distance"}
"""What a policy's Distance column shows: the OT divergence, or MMD."""

TERMS = {
    "distance": ("W, all labels", 1.0),
    "batch_distance": ("W, batch", 1.0),
    "held_out_distance": ("W, held-out source", 1.0),
    "floor": ("W, halves of source", 1.0),
    "mmd": ("MMD, all labels", 1.0),
    "sensitivity_target": ("gradient quantile of Q~", 1.0),
    "gaps": ("gaps", 1.0),
    "model_change": ("model change", 1.0),
    "emp_shift_ot": ("shift, OT", 1.0),
    "emp_shift_mmd": ("shift, MMD", 1.0),
    "bound_ot": ("B, OT", 1.0),
    "anchor_worst_label": ("anchor bound", 1.0),
    "anchor_disagreement": ("anchor disagreement [%]", 100.0),
    "risk_change": ("Delta R [nats]", 1.0),
    "signed_points": ("Delta R [p.p.]", 1.0),
    "target_error": ("target error [%]", 100.0),
}
"""Columns of `active-terms` with their scale."""


@table("trace-domainnet-combined", "active")
def combined(records: list[Record]) -> Table:
    """Every round of every policy: the paper's on DomainNet, ours on the data that was run."""
    frame = completed(active_frame(records))
    rows = []
    for policy in DISTANCE:
        for number in sorted({row.round for row in ACTIVE}):
            rows += [_published(row) for row in ACTIVE if (row.policy, row.round) == (policy, number)]
            rows += _ours(frame, policy, number)
    caption = (
        "Active selection. Published: DomainNet, real to painting. Ours: mean (standard deviation) over seeds on the "
        "data named. Distance is that of all labels so far to the source, OT for w1min and random, MMD for mmdmin. "
        "|Delta R| in percentage points of top-1 error; Proxy / |Delta R| is what the paper prints as B / |Delta R|, "
        "the last ratio is the bound without remainders over |Delta R| in clipped cross-entropy."
    )
    header = ["policy", "round", "labeled", "data", "Distance", "Out. Disc.", "TRACE-Proxy", "|Delta R| [p.p.]",
              "Proxy / |Delta R|", "B / |Delta R|", "target error [%]"]  # fmt: skip
    return Table(caption, header, rows)


@table("trace-domainnet-main", "active")
def main(records: list[Record]) -> Table:
    """The first and the last round, in the columns of the paper's main text and both readings of its ratio."""
    full = combined(records)
    ends = {"1", str(max(row.round for row in ACTIVE))}
    kept = [[row[0], *row[2:6], *row[7:10]] for row in full.rows if row[1] in ends]
    header = ["policy", "labeled", "data", "Distance", "Out. Disc.", "|Delta R| [p.p.]", "Proxy / |Delta R|",
              "B / |Delta R|"]  # fmt: skip
    return Table(full.caption, header, kept)


@table("active-terms", "active")
def terms(records: list[Record]) -> Table:
    """Everything that a round measures, on the data that was run."""
    frame = completed(active_frame(records))
    rows = []
    for data, policy, labeled in groups(frame, "data", "policy", "labeled"):
        part = where(frame, data=data, policy=policy, labeled=labeled)
        cells = [spread(scale * part[name]) for name, (_, scale) in TERMS.items()]
        rows.append([data, policy, f"{labeled:g}", *cells])
    caption = (
        "Active selection, all terms: mean (standard deviation) over seeds. W is the debiased Sinkhorn divergence to "
        "the source's training features: of all labels so far, of this round's batch, of as many held-out source "
        "images as there are labels (no shift at this size), and between halves of the source. B is the bound "
        "without remainders; Delta R is signed, above 0 is harm."
    )
    return Table(caption, ["data", "policy", "labeled", *(title for title, _ in TERMS.values())], rows)


@table("active-ranks", "active")
def ranks(records: list[Record]) -> Table:
    """How well every score ranks the rounds by the anchor's change."""
    frame = completed(active_frame(records))
    rows = []
    for (data,) in groups(frame, "data"):
        part = where(frame, data=data)
        for score, name in SCORES.items():
            found = [ranked_means(part, score), ranked_means(part, score, "signed_points"), ranked_rounds(part, score),
                     ranked_rounds(part, score, "signed_points")]  # fmt: skip
            rows.append([data, name, *map(_rho, found)])
    caption = (
        "Active selection: Spearman's rho of every score with the change of the anchor's 0-1 risk, over the means of "
        f"all rounds of {', '.join(POLICIES)} and over all rounds of all runs; 95% intervals over seeds."
    )
    header = ["data", "score", "means, |Delta R|", "means, signed", "all rounds, |Delta R|", "all rounds, signed"]
    return Table(caption, header, rows)


def _rho(found: BootstrapInterval) -> str:
    return MISSING if np.isnan(found.estimate) else interval(found, "{:.2f}")


def _published(row: ActiveRow) -> list[str]:
    return [row.policy, str(row.round), str(row.labeled), "domainnet, published", f"{row.distance:.4f}",
            f"{row.output_distance:.2f}", f"{row.proxy:.2f}", f"{row.risk_change:.2f}", f"{row.ratio:.2f}",
            "not printed", "not printed"]  # fmt: skip


def _ours(frame: Frame, policy: str, number: int) -> list[list[str]]:
    """One line for each data set that was run."""
    rows = []
    for (data,) in groups(where(frame, policy=policy), "data"):
        runs = where(frame, policy=policy, data=data)
        labeled = sorted(set(runs["labeled"].tolist()))
        if number > len(labeled):
            continue
        part = where(runs, labeled=labeled[number - 1])
        rows.append([policy, str(number), f"{labeled[number - 1]:g}", data, spread(part[DISTANCE[policy]]),
                     spread(part["output_distance"]), spread(part["proxy"]), spread(part["points"]),
                     ratio(part["proxy"], part["points"]), ratio(part["bound_ot"], part["abs_risk_change"]),
                     spread(100 * part["target_error"])])  # fmt: skip
    return rows or [[policy, str(number), *[MISSING] * 9]]


def ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> str:
    """Ratio of means: single seeds divide by nearly nothing."""
    below = float(denominator.mean())
    return f"{numerator.mean() / below:.3g}" if below > 0 and not np.isnan(numerator).any() else MISSING
