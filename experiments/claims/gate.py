"""What the paper says about the deployment gate (`app:domainnet-gate`), judged by the records of `gate`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from pandas import DataFrame, Series

from trace.stats.metrics import auprc, auroc

from ..analysis.cells import interval
from ..analysis.gate import (
    SCORES,
    alarm,
    area,
    both_kinds,
    correlation,
    harmful,
    lead,
    resample,
    resolvable,
    subsets,
)
from ..analysis.paper import GATE, GATE_RHO, GATE_TAU
from ..analysis.summary import covers
from ..engine.records import Record
from .ledger import Finding, Verdict, grade, unfinished
from .standin import Rule, on_both, on_stand_in

LABEL = "app:domainnet-gate"
NEAR = 0.02
"""How far below the printed number a rank correlation or an area still counts as met."""

short = functools.partial(interval, form="{:.2f}")


class Updates(NamedTuple):
    """The plain fine-tunes, and all updates; they are the same where no controls were run."""

    plain: DataFrame
    everything: DataFrame

    @property
    def controlled(self) -> bool:
        return len(self.everything) > len(self.plain)


def rule(judge: Callable[[Updates], Finding]) -> Rule:
    """A rule on the updates of one data set; its intervals are over seeds, so one seed decides nothing."""

    def judge_updates(records: list[Record]) -> Finding:
        (_, plain), *others = subsets(records)
        if plain["seed"].nunique() < 2:
            return unfinished("gate", "two seeds with plain fine-tunes")
        return judge(Updates(plain, others[0][1] if others else plain))

    return judge_updates


@on_both(
    "gate_rank_correlation",
    "gate",
    "tab:gate-tau-main",
    "The gate score is an exceptionally strong predictor of deployment risk.",
    published="rho = 0.944 over 20 candidates",
)
@rule
def rank_correlation(updates: Updates) -> Finding:
    found, change = (correlation(updates.plain, score) for score in ("trace_w", "output_distance"))
    best = max(SCORES, key=lambda score: correlation(updates.plain, score).estimate)
    highest = short(correlation(updates.plain, best))
    return Finding(
        measured=f"TRACE-W rho {short(found)} with signed Delta R",
        runs=len(updates.plain),
        verdict=grade(found.estimate >= GATE_RHO["trace"] - NEAR, found.lower > 0),
        why=f"Model change alone has {short(change)}; the highest is {SCORES[best]} with {highest}.",
    )


@on_both(
    "gate_outperforms_msp",
    "gate",
    LABEL,
    "The gate score outperforms -MSP in rank correlation with harm.",
    published="rho 0.944 against -0.874",
)
@rule
def outperforms_msp(updates: Updates) -> Finding:
    """Against the better of both signs, since the paper's own numbers need one and the other."""
    frame = updates.plain
    rhos = {score: correlation(frame, score) for score in ("negative_msp_source", "msp_source")}
    leads = {score: lead(frame, "trace_w", score) for score in rhos}
    better = max(rhos, key=lambda score: rhos[score].estimate)
    return Finding(
        measured="; ".join(f"TRACE-W minus {SCORES[score]} {interval(gap, '{:+.2f}')}" for score, gap in leads.items()),
        runs=len(frame),
        verdict=grade(leads[better].lower > 0, leads[better].estimate > 0),
        why=f"In rho, paired; judged by {SCORES[better]}, the better sign here, with {short(rhos[better])}.",
    )


def separates(tau: float) -> Rule:
    (printed,) = [row for row in GATE if row.tau == tau]

    @rule
    def judge(updates: Updates) -> Finding:
        frame = updates.plain
        if not both_kinds(frame, tau):
            share = f"{100 * harmful(frame, tau).mean():.0f}% of the updates are harmful at tau = {tau:.2f}"
            return Finding(share, len(frame), "not run here", "An area needs harmful and harmless updates.")
        areas = [area(frame, "trace_w", tau, metric) for metric in (auroc, auprc)]
        met = areas[0].estimate >= printed.auroc_trace - NEAR and areas[1].estimate >= printed.auprc_trace - NEAR
        msp = [area(frame, score, tau) for score in ("negative_msp_source", "msp_source")]
        share = f"{100 * harmful(frame, tau).mean():.0f}% harmful"
        return Finding(
            measured=f"AUROC {short(areas[0])}, AUPRC {short(areas[1])}, {share}",
            runs=len(frame),
            verdict=grade(met, areas[0].lower > 0.5),
            why=(
                f"AUROC of model change alone {short(area(frame, 'output_distance', tau))}, of -MSP {short(msp[0])}, "
                f"of +MSP {short(msp[1])}, of anchor disagreement {short(area(frame, 'anchor_disagreement', tau))}."
            ),
        )

    return judge


@on_both(
    "gate_harmful_share",
    "gate",
    LABEL,
    "At tau = 0.13 more than half of the candidates are harmful.",
    published="55% of 20",
)
@rule
def harmful_share(updates: Updates) -> Finding:
    frame = updates.plain
    found = resample(frame, np.mean, 100.0 * harmful(frame, GATE_TAU), num_resamples=2000)
    return Finding(
        measured=f"{interval(found, '{:.0f}')}% above {GATE_TAU}",
        runs=len(frame),
        verdict=grade(found.estimate > 50, found.upper > 50),
        why=(
            "The share is that of the step sizes one tries, which were spaced beforehand: it says nothing about a "
            "score."
        ),
    )


@on_both(
    "gate_label_efficient",
    "gate",
    "abstract",
    "The gate needs no fresh labels on the anchor domain and is reliable.",
    published="AUROC 1.000 at tau = 0.13",
)
@rule
def reliable_without_labels(updates: Updates) -> Finding:
    """Also where the target does not show the harm, or shows one that is none."""
    if not both_kinds(updates.plain, GATE_TAU):
        return Finding("one kind of update only", len(updates.plain), "not run here", "An area needs both kinds.")
    plain, everything = (area(frame, "trace_w", GATE_TAU) for frame in updates)
    anchor = area(updates.everything, "anchor_disagreement", GATE_TAU)
    measured = f"AUROC at {GATE_TAU} {short(plain)} on fine-tunes"
    verdict: Verdict = grade(plain.lower > 0.9, plain.lower > 0.5)
    why = "It needs labels of the target's held-out split for the gradient quantile, none of the anchor."
    if updates.controlled:
        measured += f", {short(everything)} with controls"
        verdict = grade(min(plain.lower, everything.lower) > 0.9, plain.lower > 0.5)
        why = f"Anchor disagreement, which needs no labels either, has {short(anchor)} with controls."
        blind = updates.everything["kind"] == "blind harm"
        if blind.any():
            places = [100 * alarm(updates.everything, name)[blind].mean() for name in ("error_change", "trace_w")]
            why = (
                f"Harm that the target does not show stands at {places[0]:.0f}% of all updates by harm and at "
                f"{places[1]:.0f}% by TRACE-W; anchor disagreement needs no labels either and has {short(anchor)}."
            )
    return Finding(measured, len(updates.everything), verdict, why)


@on_stand_in(
    "gate_best_score",
    "gate",
    "tab:gate-tau-main",
    "no label-free score gates better than TRACE-W.",
    published="compared with -MSP alone",
)
@rule
def gates_best(updates: Updates) -> Finding:
    """Whether any label-free score is resolvably better than TRACE-W, on fine-tunes or with controls."""
    frames = {"fine-tunes": updates.plain} | ({"with controls": updates.everything} if updates.controlled else {})
    parts, better = [], {}
    for name, frame in frames.items():
        rhos = {score: correlation(frame, score) for score in SCORES}
        order = sorted(SCORES, key=lambda score: -rhos[score].estimate)
        parts.append(
            f"{name}: best by rho {SCORES[order[0]]} {short(rhos[order[0]])}, TRACE-W {short(rhos['trace_w'])} is "
            f"number {1 + order.index('trace_w')} of {len(order)}"
        )
        leads = {score: lead(frame, score, "trace_w") for score in SCORES if score != "trace_w"}
        better[name] = [SCORES[s] for s, found in leads.items() if resolvable(found) and found.estimate > 0]
    why = "Resolvably better in rho, paired: " + "; ".join(f"{n}, {', '.join(b) or 'none'}" for n, b in better.items())
    return Finding(
        measured="; ".join(parts),
        runs=len(updates.everything),
        verdict=grade(not any(better.values()), not all(better.values())),
        why=f"{why}.",
    )


for _row in GATE:
    on_both(
        f"gate_areas_at_{round(100 * _row.tau)}",
        "gate",
        "tab:gate-tau-app",
        f"The gate score separates harmful updates at tau = {_row.tau:.2f}.",
        published=f"AUROC {_row.auroc_trace:.3f}, AUPRC {_row.auprc_trace:.3f} "
        f"(-MSP {_row.auroc_msp:.3f}, {_row.auprc_msp:.3f})",
    )(separates(_row.tau))


@on_both(
    "gate_distances_constant",
    "gate",
    LABEL,
    "W1 and single-bandwidth MMD are nearly constant across candidates.",
    published="nearly constant",
)
@rule
def distances_constant(updates: Updates) -> Finding:
    seeds = updates.plain.groupby("seed")[["distance", "mmd", "sensitivity_target", "rkhs_norm"]]
    spreads = seeds.agg(_spread).max()
    constant = max(spreads["distance"], spreads["mmd"]) < 1.1
    return Finding(
        measured=f"largest over smallest within a seed: OT x{spreads['distance']:.2f}, MMD x{spreads['mmd']:.2f}",
        runs=len(updates.plain),
        verdict="reproduced" if constant else "not reproduced",
        why=(
            "Q's features are frozen and all candidates share the samples; what multiplies the distance is not "
            f"constant: gradient quantile x{spreads['sensitivity_target']:.1f}, RKHS norm x{spreads['rkhs_norm']:.1f}."
        ),
    )


def _spread(values: Series) -> float:
    """Largest over smallest; 1 where all are 0."""
    low, high = float(values.min()), float(values.max())
    return 1.0 if high == low else high / low if low > 0 else float("inf")


@on_both(
    "gate_is_output_distance",
    "gate",
    "app:gate-scores",
    "With a nearly constant distance both gate scores reduce to the output distance.",
    published="effectively the output distance",
)
@rule
def reduces_to_output_distance(updates: Updates) -> Finding:
    found = {score: correlation(updates.plain, score, "output_distance") for score in ("trace_w", "trace_mmd")}
    lowest = min(rho.estimate for rho in found.values())
    listed = ", ".join(f"{SCORES[score]} {short(rho)}" for score, rho in found.items())
    return Finding(
        measured=f"rho with the output distance: {listed}",
        runs=len(updates.plain),
        verdict=grade(lowest >= 0.99, lowest >= 0.9),
        why="The distance is constant, but TRACE-W multiplies it by Q~'s gradient quantile and TRACE-MMD by a norm.",
    )


@on_both(
    "gate_gaps_do_not_matter",
    "gate",
    "app:gate-scores",
    "Leaving out the generalization gaps does not affect the ranking.",
    published="does not affect ranking",
)
@rule
def gaps_do_not_matter(updates: Updates) -> Finding:
    frame = updates.plain.assign(with_gaps=updates.plain["trace_w"] + updates.plain["gaps"])
    found, change = correlation(frame, "with_gaps", "trace_w"), correlation(frame, "with_gaps")
    return Finding(
        measured=f"rho of TRACE-W with and without gaps {interval(found, '{:.3f}')}",
        runs=len(frame),
        verdict=grade(found.estimate >= 0.99, found.estimate >= 0.9),
        why=f"With the gaps added, rho with harm is {short(change)} instead of {short(correlation(frame, 'trace_w'))}.",
    )


@on_both(
    "vision_updates_are_bounded",
    "gate",
    "abstract",
    "At the deployment gate the bound is valid.",
    published="valid",
)
@rule
def bound_holds(updates: Updates) -> Finding:
    held, loose = covers(updates.everything, "bound_ot")
    alone, looseness = covers(updates.everything, "anchor_worst_label")
    return Finding(
        measured=f"{100 * held:.1f}% of updates",
        runs=len(updates.everything),
        verdict=grade(held == 1, held > 0.95),
        why=(
            f"It is {loose:.0f} times |Delta R| in the median; the label-free bound on the anchor's own inputs is "
            f"{looseness:.1f} times and holds in {100 * alone:.1f}%."
        ),
    )
