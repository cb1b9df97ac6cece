"""The tables of the synthetic worlds, from records: `rank-power`, `glance`, `coverage`."""

from __future__ import annotations

import numpy as np

from trace.scores import labels

from ..analysis.cells import MISSING, interval
from ..analysis.frame import Frame, evaluated, groups, size, synthetic_frame, where
from ..analysis.paper import RANK_POWER
from ..analysis.synthetic import covers, over_seeds, rank_correlation
from ..engine.records import Record
from .table import Table, table

SCORES = {
    **labels("proxy_ot", "proxy_mmd", "trace_w", "trace_mmd", "bound_ot"),
    **labels("output_distance", "distance", "mmd", alone=True),
    **labels("anchor_disagreement", "anchor_worst_label"),
    "severity": "severity itself",
}
"""What is ranked against |Delta R|; the last is no score, but what the sweep turns."""

BOUNDS = {
    **labels("bound_ot", "bound_mmd", "bound_hybrid", "bound_full_ot", "bound_full_mmd"),
    **labels("model_change", "emp_shift_ot", "emp_shift_mmd", "gaps", alone=True),
    "anchor_worst_label": "anchor bound, as estimated",
    "anchor_upper": "anchor bound, upper end",
}


@table("rank-power", "synthetic")
def rank_power(records: list[Record]) -> Table:
    """One row per world, model, variant and score."""
    frame = evaluated(synthetic_frame(records))
    rows = []
    for world, model, variant in sorted(groups(frame, "world", "model", "variant")):
        part = where(frame, world=world, model=model, variant=variant)
        for score, name in SCORES.items():
            published = RANK_POWER.get((world, score)) if variant == "labels travel" else None
            ours = MISSING if np.isnan(part[score]).any() else interval(rank_correlation(part, score))
            rows.append([world, model, variant, name, f"{published:.3f}" if published else "", ours, str(size(part))])
    caption = (
        "Spearman's rho of each score with |Delta R| (clipped cross-entropy) over all severities, sample sizes, weight "
        f"decays and seeds, with a {over_seeds(frame)}. c_h comes from candidates of another seed."
    )
    return Table(caption, ["world", "model", "variant", "score", "paper", "ours", "pairs"], rows)


@table("glance", "synthetic")
def glance(records: list[Record]) -> Table:
    """One line a setting: how proxy and rivals rank |Delta R|, how tight the bound is, how often harm is done."""
    frame = evaluated(synthetic_frame(records))
    rivals = {name: SCORES[name] for name in ("output_distance", "severity", "anchor_worst_label")}
    rows = []
    for world, model, variant in sorted(groups(frame, "world", "model", "variant")):
        part = where(frame, world=world, model=model, variant=variant)
        published = RANK_POWER.get((world, "proxy_ot")) if variant == "labels travel" else None
        rhos = [f"{rank_correlation(part, name).estimate:.2f}" for name in rivals]
        held, ratio = covers(part, "bound_ot")
        proxy = MISSING if np.isnan(part["proxy_ot"]).any() else interval(rank_correlation(part, "proxy_ot"), "{:.2f}")
        rows.append([world, model, variant, f"{published:.2f}" if published else "", proxy, *rhos,
                     f"{100 * held:.0f}%, {ratio:.0f}", f"{100 * (part['risk_change'] > 0).mean():.0f}%"])  # fmt: skip
    caption = (
        f"Spearman's rho with |Delta R| ({over_seeds(frame)}), how often the OT bound holds with its median ratio to "
        "|Delta R|, and the share of updates that raise the anchor's risk."
    )
    header = ["world", "model", "variant", "TRACE-Proxy, paper", "TRACE-Proxy, ours", *rivals.values(),
              "bound holds, ratio", "harmful"]  # fmt: skip
    return Table(caption, header, rows)


@table("coverage", "synthetic")
def coverage(records: list[Record]) -> Table:
    """How often each bound, and each of its terms alone, is at least |Delta R|, and how loosely."""
    frame = evaluated(synthetic_frame(records))
    rows = []
    for world, model, variant in sorted(groups(frame, "world", "model", "variant")):
        part = where(frame, world=world, model=model, variant=variant)
        for bound, name in BOUNDS.items():
            held, ratio = covers(part, bound)
            check = CHECKS[bound](part) if bound in CHECKS else ""
            rows.append([world, model, variant, name, f"{100 * held:.1f}%", f"{ratio:.3g}", check, str(size(part))])
    caption = (
        "Share of pairs with |Delta R| at most the bound, and the median of bound / |Delta R|. A bound that holds "
        "always and is far above 1 says little: compare with its terms alone and with the anchor bounds. Estimate: "
        "of the OT shift the median distance, its floor (the same between halves of the source, without any shift but "
        "with half the points, so a little high) and the share of pairs below it; of the MMD shift the share of pairs "
        "whose kernel ridge is on the edge of its grid, so that the norm depends on the grid."
    )
    header = ["world", "model", "variant", "bound", "holds", "median tightness", "estimate", "pairs"]
    return Table(caption, header, rows)


def above_floor(frame: Frame) -> str:
    """The median OT distance beside what it is without any shift."""
    distance, floor = frame["distance"], frame["floor"]
    return f"{np.median(distance):.3g}, floor {np.median(floor):.3g}, below in {100 * (distance < floor).mean():.0f}%"


def at_edge(frame: Frame) -> str:
    """How often the grid of ridges ended before the best one."""
    return f"edge in {100 * frame['rkhs_at_edge'].mean():.1f}%"


CHECKS = {"emp_shift_ot": above_floor, "emp_shift_mmd": at_edge}
"""What tells whether a term's estimate can be trusted."""
