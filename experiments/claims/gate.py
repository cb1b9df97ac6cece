"""What is measured for the claims about the deployment gate (`app:domainnet-gate`), from the records of `gate`."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame, Series

from trace.scores import SCORES as LIBRARY
from trace.stats.jackknife import StudentInterval
from trace.stats.metrics import auprc, auroc

from ..analysis.cells import interval
from ..analysis.gate import SCORES, alarm, area, both_kinds, ceiling, correlation, harmful, lead, subsets
from ..analysis.summary import covers, over_units
from ..engine.records import Record
from .ledger import LackingError, Measurement, measure, present
from .rule import Estimated

short = functools.partial(interval, form="{:.2f}")
MSP = ("negative_msp_source", "msp_source", "negative_msp_target", "msp_target")
"""The paper does not say on which inputs its baseline is taken, and its two numbers need two signs."""


@dataclass(frozen=True)
class Updates:
    """The plain fine-tunes, and all updates; they are the same where no controls were run."""

    plain: DataFrame
    everything: DataFrame

    @property
    def controlled(self) -> bool:
        return len(self.everything) > len(self.plain)


def updates(records: list[Record]) -> Updates:
    """The updates of one replication; the intervals are over seeds, so one seed decides nothing."""
    (_, plain), *others = subsets(records)
    if plain["seed"].nunique() < 2:
        raise LackingError("two seeds with plain fine-tunes")
    return Updates(*(_as_published(frame) for frame in (plain, others[0][1] if others else plain)))


def _as_published(frame: DataFrame) -> DataFrame:
    """The paper's gate scores take the output distance on S~, which Q~ was trained on; the library on held-out rows."""
    on_training_rows = {**frame, "held_out_distance": frame["output_distance"]}
    return frame.assign(**{name: LIBRARY[name].harm(on_training_rows) for name in ("trace_w", "trace_mmd")})


def _of_both_kinds(frame: DataFrame, *taus: float) -> None:
    for tau in taus:
        if not both_kinds(frame, tau):
            share = f"{100 * harmful(frame, tau).mean():.0f}% harmful at tau = {tau:g}: no area is defined"
            raise LackingError(f"harmful and harmless updates at tau = {tau:g}", share)


@measure(updates)
def gate_rank_correlation(found: Updates, score: str, target: str) -> Measurement:
    rho, change = (correlation(found.plain, name, target) for name in (score, "held_out_distance"))
    best = max(SCORES, key=lambda name: correlation(found.plain, name, target).estimate)
    highest = short(correlation(found.plain, best, target))
    return Measurement(
        f"{SCORES[score]} rho {short(rho)} with signed Delta R",
        len(found.plain),
        {"rho": rho},
        f"Model change alone has {short(change)}; the highest is {SCORES[best]} with {highest}.",
    )


@measure(updates)
def gate_reaches_the_ceiling(found: Updates, score: str, rho: float) -> Measurement:
    """How far rho lies above what is asked, or above the ceiling that noise sets, if that is less."""
    reached, top = correlation(found.plain, score), ceiling(found.plain)
    goal = min(rho, top)
    excess = Estimated(*(end - goal for end in (reached.estimate, reached.lower, reached.upper)))
    return Measurement(
        f"{SCORES[score]} rho {short(reached)}, asked {goal:.2f}",
        len(found.plain),
        {"excess": excess, "rho": reached},
        f"A score that knew the true change would reach {top:.2f}, by the agreement of two halves of the test rows.",
    )


@measure()
def gate_gradients_in_the_image(records: list[Record], score: str) -> Measurement:
    """The same updates of the same Q, with gradients in the image and in features."""
    in_image = [record for record in records if record["config"].get("gradient_in") == "input"]
    present(in_image, "gradients in the image")
    keys = {_update_of(record) for record in in_image}
    in_features = [r for r in records if r["config"].get("gradient_in") != "input" and _update_of(r) in keys]
    frames = [updates(part).plain.set_index(["seed", "name"]) for part in (in_image, in_features)]
    other = frames[1][score].rename(f"{score}_in_features")
    both = frames[0].join(other, how="inner").reset_index()
    rhos = {place: correlation(both, name) for place, name in (("image", score), ("features", f"{score}_in_features"))}
    ahead = lead(both, score, f"{score}_in_features")
    shown = ", ".join(f"{short(rho)} with gradients in the {place}" for place, rho in rhos.items())
    alike = correlation(both, score, f"{score}_in_features")
    return Measurement(
        f"{SCORES[score]} rho {shown}; lead {interval(ahead, '{:+.2f}')}",
        len(both),
        {"lead": ahead},
        f"The two rank the updates alike with a rho of {short(alike)}.",
    )


def _update_of(record: Record) -> tuple[object, ...]:
    config = record["config"]
    names = ("data", "source", "target", "arch", "seed")
    return (*(config.get(name) for name in names), config["candidate"]["name"])


@measure(updates)
def gate_outperforms_msp(found: Updates, score: str) -> Measurement:
    leads = {SCORES[name]: lead(found.plain, score, name) for name in MSP}
    rhos = ", ".join(f"{SCORES[name]} {short(correlation(found.plain, name))}" for name in MSP)
    return Measurement(
        f"{SCORES[score]} minus " + "; minus ".join(f"{title} {interval(f, '{:+.2f}')}" for title, f in leads.items()),
        len(found.plain),
        {"lead": leads},
        f"In rho with signed Delta R, paired; rho of {rhos}.",
    )


@measure(updates)
def gate_which_msp(found: Updates) -> Measurement:
    rhos = {place: correlation(found.plain, f"negative_msp_{place}") for place in ("source", "target")}
    return Measurement(
        ", ".join(f"rho of -MSP on {place} {short(rho)}" for place, rho in rhos.items()),
        len(found.plain),
        dict(rhos),
        "+MSP has the opposite sign; an AUROC of 0.98 needs the sign whose rho is positive.",
    )


@measure(updates)
def gate_areas(found: Updates, score: str, tau: float) -> Measurement:
    frame = found.plain
    _of_both_kinds(frame, tau)
    areas = {name: area(frame, score, tau, metric) for name, metric in (("AUROC", auroc), ("AUPRC", auprc))}
    shown = ", ".join(f"{name} {short(value)}" for name, value in areas.items())
    others = ("held_out_distance", *MSP, "anchor_disagreement")
    listed = ", ".join(f"of {SCORES[name]} {short(area(frame, name, tau))}" for name in others)
    return Measurement(
        f"{shown}, {100 * harmful(frame, tau).mean():.0f}% harmful", len(frame), areas, f"AUROC {listed}."
    )


@measure(updates)
def gate_robust_over_thresholds(found: Updates, score: str, taus: list[float]) -> Measurement:
    """The AUROC at every threshold that has harmful and harmless updates."""
    defined = [tau for tau in taus if both_kinds(found.plain, tau)]
    if len(defined) < 2:
        raise LackingError("two of the thresholds " + ", ".join(map(str, taus)) + " with harmful and harmless updates")
    areas = {f"{tau:g}": area(found.plain, score, tau) for tau in defined}
    spread = max(f.estimate for f in areas.values()) - min(f.estimate for f in areas.values())
    return Measurement(
        "AUROC " + ", ".join(f"{short(f)} at {tau}" for tau, f in areas.items()),
        len(found.plain),
        {"AUROC": areas},
        f"From the best to the worst threshold it loses {spread:.2f}; {len(taus) - len(defined)} of {len(taus)} "
        "thresholds have updates of one kind only.",
    )


@measure(updates)
def gate_harmful_share(found: Updates, tau: float) -> Measurement:
    frame = found.plain
    share = over_units(np.mean, frame["seed"], frame["name"], columns=(harmful(frame, tau) * 1.0,), limits=(0, 1))
    return Measurement(f"{short(share)} of updates above {tau}", len(frame), {"share": share})


@measure(updates)
def gate_label_efficient(found: Updates, score: str, tau: float) -> Measurement:
    """Also where the target does not show the harm, or shows one that is none."""
    _of_both_kinds(found.plain, tau)
    areas = {"fine-tunes": area(found.plain, score, tau)}
    note = "It needs labels of the target's held-out split for the gradient quantile, none of the anchor."
    if found.controlled:
        areas["with controls"] = area(found.everything, score, tau)
        anchor = area(found.everything, "anchor_disagreement", tau)
        note = f"Anchor disagreement, which needs no labels either, has {short(anchor)} with controls."
        blind = found.everything["kind"] == "blind harm"
        if blind.any():
            places = [100 * alarm(found.everything, name)[blind].mean() for name in ("error_change", score)]
            note = (
                f"Harm that the target does not show stands at {places[0]:.0f}% of all updates by harm and at "
                f"{places[1]:.0f}% by {SCORES[score]}; anchor disagreement needs no labels either and has "
                f"{short(anchor)}."
            )
    return Measurement(
        f"AUROC at {tau} " + ", ".join(f"{short(found_area)} {name}" for name, found_area in areas.items()),
        len(found.everything),
        {"AUROC": areas, "fine-tunes": areas["fine-tunes"]},
        note,
    )


@measure(updates)
def gate_best_score(found: Updates, score: str) -> Measurement:
    """How far ahead each other label-free score is, on fine-tunes and with controls."""
    frames = {"fine-tunes": found.plain} | ({"with controls": found.everything} if found.controlled else {})
    parts, better = [], []
    leads: dict[str, StudentInterval] = {}
    for name, frame in frames.items():
        rhos = {other: correlation(frame, other) for other in SCORES}
        order = sorted(SCORES, key=lambda other: -rhos[other].estimate)
        parts.append(
            f"{name}: best by rho {SCORES[order[0]]} {short(rhos[order[0]])}, {SCORES[score]} {short(rhos[score])} is "
            f"number {1 + order.index(score)} of {len(order)}"
        )
        own = {SCORES[other]: lead(frame, other, score) for other in SCORES if other != score}
        better.append(f"{name}, {', '.join(title for title, f in own.items() if f.lower > 0) or 'none'}")
        leads |= {f"{title}, {name}": f for title, f in own.items()}
    return Measurement(
        "; ".join(parts),
        len(found.everything),
        {"lead": leads},
        f"Resolvably better in rho, paired: {'; '.join(better)}.",
    )


@measure(updates)
def gate_distances_constant(found: Updates) -> Measurement:
    seeds = found.plain.groupby("seed")[["distance", "mmd", "sensitivity_target", "rkhs_norm"]]
    spreads = seeds.agg(_spread).max()
    return Measurement(
        f"largest over smallest within a seed: OT x{spreads['distance']:.2f}, MMD x{spreads['mmd']:.2f}",
        len(found.plain),
        {"spread": {"OT": float(spreads["distance"]), "MMD": float(spreads["mmd"])}},
        "Q's features are frozen and all candidates share the samples; what multiplies the distance is not "
        f"constant: gradient quantile x{spreads['sensitivity_target']:.1f}, RKHS norm x{spreads['rkhs_norm']:.1f}.",
    )


def _spread(values: Series) -> float:
    """Largest over smallest; 1 where all are 0."""
    low, high = float(values.min()), float(values.max())
    return 1.0 if high == low else high / low if low > 0 else float("inf")


@measure(updates)
def gate_is_output_distance(found: Updates, scores: list[str]) -> Measurement:
    rhos = {SCORES[score]: correlation(found.plain, score, "output_distance") for score in scores}
    return Measurement(
        "rho with the output distance: " + ", ".join(f"{title} {short(rho)}" for title, rho in rhos.items()),
        len(found.plain),
        {"rho": rhos},
    )


@measure(updates)
def gate_gaps_do_not_matter(found: Updates, score: str) -> Measurement:
    frame = found.plain.assign(with_gaps=found.plain[score] + found.plain["gaps"])
    rho, change = correlation(frame, "with_gaps", score), correlation(frame, "with_gaps")
    return Measurement(
        f"rho of {SCORES[score]} with and without gaps {interval(rho, '{:.3f}')}",
        len(frame),
        {"rho": rho},
        f"With the gaps added, rho with harm is {short(change)} instead of {short(correlation(frame, score))}.",
    )


@measure(updates)
def vision_updates_are_bounded(found: Updates, bound: str) -> Measurement:
    held, loose = covers(found.everything, bound)
    alone, looseness = covers(found.everything, "anchor_worst_label")
    return Measurement(
        f"{100 * held:.1f}% of updates",
        len(found.everything),
        {"share": held},
        f"It is {loose:.0f} times |Delta R| in the median; the label-free bound on the anchor's own inputs is "
        f"{looseness:.1f} times and holds in {100 * alone:.1f}%.",
    )
