"""What the paper says about active selection (`app:domainnet-active`), judged by the records of `active`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pandas import DataFrame

from ..analysis.active import active_frame, contrast, curve, growth, mean_correlation, shared_seeds
from ..analysis.cells import interval
from ..analysis.summary import covers
from ..engine.records import Record
from .ledger import Finding, grade, unfinished
from .standin import Rule, on_both, on_stand_in

LABEL = "app:domainnet-active"
MAIN = "tab:trace-domainnet-main"
RANGE = (5.0, 9.0)
"""Of the ratio that the paper calls stable."""


def needs_policies(*policies: str, proxy: bool = False) -> Callable[[Callable[[DataFrame], Finding]], Rule]:
    """A rule on the rounds of some policies, of the seeds that all were run with; the finding says what is missing.

    Every rule has an interval over seeds, so one seed decides nothing; some need TRACE-Proxy.
    """

    def wrap(judge: Callable[[DataFrame], Finding]) -> Rule:
        def judge_shared(records: list[Record]) -> Finding:
            frame = active_frame(records)
            absent = [p for p in policies if p not in set(frame["policy"])]
            if absent:
                return Finding("no records", 0, "not run here", f"No evaluated rounds of {', '.join(absent)} exist.")
            shared = shared_seeds(frame, policies)
            if shared["seed"].nunique() < 2:
                return unfinished("active", f"two seeds of {' and '.join(policies) or 'a policy'}")
            if proxy and shared["proxy"].isna().any():
                return unfinished("active", "development rounds of every policy, which TRACE-Proxy needs")
            return judge(shared)

        return judge_shared

    return wrap


def by_round(frame: DataFrame, policy: str, column: str, form: str = "{:.3g}") -> str:
    """Means over seeds, round by round."""
    return ", ".join(form.format(value) for value in curve(frame, policy, column).mean(axis=0))


def factor(frame: DataFrame, policy: str, column: str) -> float:
    """Last round over the first, of means."""
    means = curve(frame, policy, column).mean(axis=0)
    return float(means[-1] / means[0])


def _runs(frame: DataFrame, *policies: str) -> int:
    return int(frame["policy"].isin(policies).sum())


def _means(frame: DataFrame) -> int:
    """Means over seeds that a correlation is over: one for every policy and round."""
    return frame.groupby(["policy", "labeled"]).ngroups


def distance_falls(policy: str, column: str) -> Rule:
    @needs_policies(policy)
    def judge(frame: DataFrame) -> Finding:
        found, means = growth(frame, policy, column), curve(frame, policy, column).mean(axis=0)
        as_large = growth(frame, policy, f"held_out_{column}").estimate <= found.estimate < 0
        return Finding(
            measured=f"{by_round(frame, policy, column)}; last minus first {interval(found)}",
            runs=_runs(frame, policy),
            verdict=grade(found.upper < 0 and bool((np.diff(means) < 0).all()), found.upper < 0),
            why=(
                f"Each round's batch alone: {by_round(frame, policy, f'batch_{column}')}; as many held-out source "
                "images: "
                f"{by_round(frame, policy, f'held_out_{column}')}{', so size alone lowers it as much' * as_large}."
            ),
        )

    return judge


@on_both(
    "w1min_output_distance_bump",
    "active",
    LABEL,
    "w1min: the output discrepancy shows a small early bump, then declines.",
    published="42.23, 48.94, 47.02, 45.42, 44.68",
)
@needs_policies("w1min")
def output_bump(frame: DataFrame) -> Finding:
    means = curve(frame, "w1min", "output_distance").mean(axis=0)
    peak = int(means.argmax())
    early = 0 < peak <= len(means) // 2
    decline = growth(frame, "w1min", "output_distance", since=peak)
    falls = peak < len(means) - 1 and decline.upper < 0
    return Finding(
        measured=f"{by_round(frame, 'w1min', 'output_distance')}; last minus the highest {interval(decline, '{:.2f}')}",
        runs=_runs(frame, "w1min"),
        verdict=grade(early and falls, early or falls),
        why=f"It is highest in round {peak + 1} of {len(means)}; a decline counts where its interval is below 0.",
    )


@on_both(
    "w1min_risk_improves",
    "active",
    LABEL,
    "w1min: |Delta R| improves with the rounds, leading to consistent gains.",
    published="5.82, 8.71, 6.76, 5.71, 5.11 percentage points",
)
@needs_policies("w1min")
def risk_improves(frame: DataFrame) -> Finding:
    found = growth(frame, "w1min", "points")
    harmed = float((frame.loc[frame["policy"] == "w1min", "error_change"] > 0).mean())
    return Finding(
        measured=f"{by_round(frame, 'w1min', 'points')} points; last minus first {interval(found, '{:.2f}')}",
        runs=_runs(frame, "w1min"),
        verdict=grade(found.upper < 0, found.estimate < 0),
        why=f"Lower is better here, since {100 * harmed:.0f}% of the rounds harm the anchor; without labels it is 0.",
    )


@on_both(
    "mmdmin_output_distance_rises",
    "active",
    MAIN,
    "mmdmin lowers the MMD while the output discrepancy explodes.",
    published="27.77 to 66.56",
)
@needs_policies("mmdmin")
def output_explodes(frame: DataFrame) -> Finding:
    rise, fall = growth(frame, "mmdmin", "output_distance"), growth(frame, "mmdmin", "mmd")
    others = [p for p in ("w1min", "random") if p in set(frame["policy"])]
    grown = ", ".join(f"{p} x{factor(frame, p, 'output_distance'):.2f}" for p in others) or "no other policy was run"
    return Finding(
        measured=(
            f"output discrepancy x{factor(frame, 'mmdmin', 'output_distance'):.2f} ({interval(rise, '{:+.2f}')}), MMD "
            f"x{factor(frame, 'mmdmin', 'mmd'):.2f} ({interval(fall, '{:+.3f}')}) from first to last round"
        ),
        runs=_runs(frame, "mmdmin"),
        verdict=grade(rise.lower > 0 and fall.upper < 0, rise.lower > 0),
        why=f"More labels are more steps under every policy: output discrepancy of {grown}.",
    )


@on_both(
    "mmdmin_unreliable",
    "active",
    MAIN,
    "mmdmin: the instability makes improvements on the anchor unreliable.",
    published="|Delta R| = 3.35, 3.69, 2.21, 4.40, 4.48 percentage points",
)
@needs_policies("mmdmin", "w1min")
def unreliable(frame: DataFrame) -> Finding:
    changes = {policy: growth(frame, policy, "points") for policy in ("mmdmin", "w1min")}
    improves = {policy: change.upper < 0 for policy, change in changes.items()}
    shown = ", ".join(f"{policy} {interval(change, '{:+.2f}')}" for policy, change in changes.items())
    gap = contrast(frame, "mmdmin", "w1min", "points")
    return Finding(
        measured=f"|Delta R|, last minus first round: {shown} points",
        runs=_runs(frame, *changes),
        verdict=grade(not improves["mmdmin"] and improves["w1min"], not improves["mmdmin"]),
        why=f"Over all rounds mmdmin's |Delta R| minus w1min's is {interval(gap, '{:+.2f}')} points.",
    )


@on_both(
    "bound_ratio",
    "active",
    "tab:trace-domainnet-combined-app",
    "The ratio of bound and risk change is stable (5--9) over the rounds.",
    published="5.64 to 8.76 (w1min), 11.86 to 29.80 (mmdmin)",
)
@needs_policies("w1min", "mmdmin", proxy=True)
def ratio_stable(frame: DataFrame) -> Finding:
    """The paper's reading is the proxy over points; ours the bound over the change of the loss it bounds."""
    readings = {"Proxy/|Delta R| [p.p.]": ("proxy", "points"), "B/|Delta R| [nats]": ("bound_ot", "abs_risk_change")}
    read = {
        name: {p: np.divide(*(curve(frame, p, column).mean(axis=0) for column in pair)) for p in ("w1min", "mmdmin")}
        for name, pair in readings.items()
    }
    printed, _ = read.values()
    inside = all(RANGE[0] <= r.min() and r.max() <= RANGE[1] for r in printed.values())
    steady = all(r.max() <= RANGE[1] / RANGE[0] * r.min() for ratios in read.values() for r in ratios.values())
    return Finding(
        measured="; ".join(
            f"{name} " + ", ".join(f"{r.min():.3g} to {r.max():.3g} ({p})" for p, r in ratios.items())
            for name, ratios in read.items()
        ),
        runs=_runs(frame, "w1min", "mmdmin"),
        verdict=grade(inside and steady, inside or steady),
        why=(
            f"Stable would be a range no wider than that of {RANGE[0]:.0f} to {RANGE[1]:.0f}, a factor of "
            f"{RANGE[1] / RANGE[0]:.1f}; the size of the first ratio is that of its unit, the second has none."
        ),
    )


@on_both(
    "alignment_alone_misleads",
    "active",
    LABEL,
    "Monitoring the distance alone is misleading; the model change must be controlled.",
    published="mmdmin: distance -44%, output discrepancy +140%",
)
@needs_policies("w1min", "mmdmin")
def distance_misleads(frame: DataFrame) -> Finding:
    distance, output = mean_correlation(frame, "distance"), mean_correlation(frame, "output_distance")
    count = _means(frame)
    return Finding(
        measured=(
            f"rho with |Delta R| over {count} policy-round means: distance {interval(distance, '{:.2f}')}, output "
            f"discrepancy {interval(output, '{:.2f}')}"
        ),
        runs=len(frame),
        verdict=grade(distance.upper < output.lower and output.lower > 0, distance.estimate < output.estimate),
        why="A distance that ranks rounds worse than the output discrepancy misleads; it also falls by size alone.",
    )


@on_stand_in(
    "policies_against_random",
    "active",
    LABEL,
    "choosing labels by their distance to the source beats choosing at random.",
    published="random is not compared",
)
@needs_policies("w1min", "mmdmin", "random")
def beats_random(frame: DataFrame) -> Finding:
    parts, wins, losses = [], 0, 0
    for policy in ("w1min", "mmdmin"):
        error, harm = (contrast(frame, policy, "random", column) for column in ("target_points", "signed_points"))
        wins += sum(found.upper < 0 for found in (error, harm))
        losses += sum(found.lower > 0 for found in (error, harm))
        parts.append(f"{policy}: target error {interval(error, '{:+.1f}')}, anchor {interval(harm, '{:+.1f}')} points")
    return Finding(
        measured="; ".join(parts),
        runs=len(frame),
        verdict=grade(wins == 4, wins > losses),
        why=(
            f"Means over all rounds, paired by seed: resolvably better in {wins} and worse in {losses} of 4 "
            "comparisons."
        ),
    )


@on_both(
    "w1min_against_mmdmin",
    "active",
    MAIN,
    "w1min navigates the trade-off between alignment and stability on the anchor that mmdmin does not.",
    published="|Delta R| = 5.11 (w1min) and 4.48 (mmdmin) at 250 labels",
)
@needs_policies("w1min", "mmdmin")
def w1min_keeps_the_anchor(frame: DataFrame) -> Finding:
    error, harm = (contrast(frame, "w1min", "mmdmin", column) for column in ("target_points", "signed_points"))
    return Finding(
        measured=(
            f"w1min minus mmdmin: anchor {interval(harm, '{:+.1f}')}, target error {interval(error, '{:+.1f}')} points"
        ),
        runs=_runs(frame, "w1min", "mmdmin"),
        verdict=grade(harm.upper < 0, harm.estimate < 0),
        why="Means over all rounds, paired by seed; below 0 w1min is better.",
    )


@on_both(
    "vision_rounds_are_ranked",
    "active",
    "abstract",
    "In active selection the diagnostics have a strong monotonic relation with |Delta R|.",
    published="strong monotonic relationship",
)
@needs_policies("w1min", "mmdmin", proxy=True)
def scores_rank(frame: DataFrame) -> Finding:
    scores = {
        "proxy": "TRACE-Proxy",
        "output_distance": "output discrepancy",
        "bound_ot": "bound",
        "anchor_disagreement": "anchor disagreement",
    }
    found = {score: mean_correlation(frame, score) for score in scores}
    shown = ", ".join(f"{scores[score]} {interval(f, '{:.2f}')}" for score, f in found.items())
    proxy = found["proxy"]
    return Finding(
        measured=f"rho with |Delta R|: {shown}",
        runs=len(frame),
        verdict=grade(proxy.lower > 0.75, proxy.lower > 0),
        why=f"Spearman over {_means(frame)} policy-round means; table active-ranks has the rest.",
    )


@on_both(
    "vision_rounds_are_bounded",
    "active",
    "abstract",
    "In active selection the bound is valid.",
    published="valid",
)
@needs_policies()
def bound_holds(frame: DataFrame) -> Finding:
    held, loose = covers(frame, "bound_ot")
    alone, looseness = covers(frame, "model_change")
    why = f"The bound is {loose:.0f} times |Delta R| in the median; model change alone holds in {100 * alone:.1f}% at "
    return Finding(
        measured=f"{100 * held:.1f}% of rounds",
        runs=len(frame),
        verdict=grade(held == 1, held > 0.95),
        why=f"{why}{looseness:.0f} times.",
    )


on_both(
    "w1min_distance_shrinks",
    "active",
    LABEL,
    "w1min: the feature-space distance shrinks with the rounds.",
    published="0.0182 to 0.0034",
)(distance_falls("w1min", "distance"))
on_both(
    "mmdmin_distance_falls",
    "active",
    LABEL,
    "mmdmin: the MMD falls with the rounds.",
    published="0.1772 to 0.0984",
)(distance_falls("mmdmin", "mmd"))
