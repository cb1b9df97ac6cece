"""What the terms of the gate scores do across candidates (`app:gate-scores`), judged by the records of `gate`."""

from __future__ import annotations

import numpy as np

from trace.bootstrap import BootstrapInterval, two_way_bootstrap
from trace.metrics import spearman

from .claims_gate import LABEL, Updates, rule, shown
from .claims_vision import on_both
from .frame import Frame, groups, size, where
from .gate_scores import SCORES, ranked
from .ledger import Finding, graded
from .tables_synthetic import covers


@rule
def distances_constant(updates: Updates) -> Finding:
    spreads = {name: max(_spread(where(updates.plain, seed=seed)[name]) for (seed,) in groups(updates.plain, "seed"))
               for name in ("distance", "mmd", "sensitivity_target", "rkhs_norm")}  # fmt: skip
    measured = f"largest over smallest within a seed: OT x{spreads['distance']:.2f}, MMD x{spreads['mmd']:.2f}"
    constant = max(spreads["distance"], spreads["mmd"]) < 1.1
    why = (
        "Q's features are frozen and all candidates share the samples; what multiplies the distance is not constant: "
        f"gradient quantile x{spreads['sensitivity_target']:.1f}, RKHS norm x{spreads['rkhs_norm']:.1f}."
    )
    return Finding(measured, size(updates.plain), "reproduced" if constant else "not reproduced", why)


def _spread(values: np.ndarray) -> float:
    """Largest over smallest; 1 where all are 0."""
    low, high = float(values.min()), float(values.max())
    return 1.0 if high == low else high / low if low > 0 else float("inf")


@rule
def reduces_to_output_distance(updates: Updates) -> Finding:
    found = {SCORES[score]: _agreement(updates.plain, updates.plain[score], "output_distance")
             for score in ("trace_w", "trace_mmd")}  # fmt: skip
    lows = [rho.estimate for rho in found.values()]
    listed = ", ".join(f"{name} {shown(rho)}" for name, rho in found.items())
    why = "The distance is constant, but TRACE-W multiplies it by Q~'s gradient quantile and TRACE-MMD by a norm."
    return Finding(f"rho with the output distance: {listed}", size(updates.plain),
                   graded(min(lows) >= 0.99, min(lows) >= 0.9), why)  # fmt: skip


@rule
def gaps_do_not_matter(updates: Updates) -> Finding:
    frame = updates.plain
    found = _agreement(frame, frame["trace_w"] + frame["gaps"], "trace_w")
    change = ranked(frame | {"with_gaps": frame["trace_w"] + frame["gaps"]}, "with_gaps")
    why = f"With the gaps added, rho with harm is {shown(change)} instead of {shown(ranked(frame, 'trace_w'))}."
    verdict = graded(found.estimate >= 0.99, found.estimate >= 0.9)
    return Finding(f"rho of TRACE-W with and without gaps {shown(found, '{:.3f}')}", size(frame), verdict, why)


def _agreement(frame: Frame, values: np.ndarray, other: str) -> BootstrapInterval:
    return two_way_bootstrap(spearman, frame["seed"], frame["name"], values, frame[other],
                             generator=np.random.default_rng(0), num_resamples=500)  # fmt: skip


@rule
def bound_holds(updates: Updates) -> Finding:
    held, loose = covers(updates.everything, "bound_ot")
    alone, looseness = covers(updates.everything, "anchor_worst_label")
    why = (
        f"It is {loose:.0f} times |Delta R| in the median; the label-free bound on the anchor's own inputs is "
        f"{looseness:.1f} times and holds in {100 * alone:.1f}%."
    )
    verdict = graded(held == 1, held > 0.95)
    return Finding(f"{100 * held:.1f}% of updates", size(updates.everything), verdict, why)


CLAIMS = [
    *on_both(
        "gate_distances_constant", "gate", LABEL, "W1 and single-bandwidth MMD are nearly constant across candidates.",
        published="nearly constant", rule=distances_constant),
    *on_both(
        "gate_is_output_distance", "gate", "app:gate-scores",
        "With a nearly constant distance both gate scores reduce to the output distance.",
        published="effectively the output distance", rule=reduces_to_output_distance),
    *on_both(
        "gate_gaps_do_not_matter", "gate", "app:gate-scores",
        "Leaving out the generalization gaps does not affect the ranking.", published="does not affect ranking",
        rule=gaps_do_not_matter),
    *on_both(
        "vision_updates_are_bounded", "gate", "abstract", "At the deployment gate the bound is valid.",
        published="valid", rule=bound_holds),
]  # fmt: skip
