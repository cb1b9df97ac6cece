"""What is measured for the claims about active selection (`app:domainnet-active`), from the records of `active`."""

from __future__ import annotations

import numpy as np
from pandas import DataFrame

from trace.stats.metrics import spearman

from ..analysis.active import POLICIES, active_frame, contrast, curve, growth, mean_correlation, shared_seeds
from ..analysis.cells import interval
from ..analysis.summary import covers, mean_interval
from ..engine.records import Record
from .ledger import LackingError, Measurement, measure


def rounds_of(records: list[Record], *policies: str, scale_from: str = "") -> DataFrame:
    """The evaluated rounds of the seeds that all of some policies were run with; with TRACE-Proxy if c_h is asked for.

    Every rule has an interval over seeds, so one seed decides nothing.
    """
    frame = active_frame(records, scale_from)
    if absent := [p for p in policies if p not in set(frame["policy"])]:
        raise LackingError(f"evaluated rounds of {', '.join(absent)}")
    shared = shared_seeds(frame, policies)
    if shared["seed"].nunique() < 2:
        raise LackingError(f"two seeds of {' and '.join(policies) or 'a policy'}")
    if scale_from and shared["proxy"].isna().any():
        raise LackingError(f"development rounds of {scale_from}, which c_h needs")
    return shared


def by_round(frame: DataFrame, policy: str, column: str, form: str = "{:.3g}") -> str:
    """Means over seeds, round by round."""
    return ", ".join(form.format(value) for value in curve(frame, policy, column).mean(axis=0))


def factor(frame: DataFrame, policy: str, column: str) -> float:
    """Last round over the first, of means."""
    means = curve(frame, policy, column).mean(axis=0)
    return float(means[-1] / means[0])


def _cases(frame: DataFrame, *policies: str) -> int:
    return int(frame["policy"].isin(policies).sum())


def _means(frame: DataFrame) -> int:
    """Means over seeds that a correlation is over: one for every policy and round."""
    return frame.groupby(["policy", "labeled"]).ngroups


@measure()
def distance_falls(records: list[Record], policy: str, column: str) -> Measurement:
    frame = rounds_of(records, policy)
    values = curve(frame, policy, column)
    steps = {f"round {i + 2}": mean_interval(step) for i, step in enumerate(np.diff(values, axis=1).T)}
    found = growth(frame, policy, column)
    as_large = growth(frame, policy, f"held_out_{column}").estimate <= found.estimate < 0
    return Measurement(
        f"{by_round(frame, policy, column)}; last minus first {interval(found)}",
        _cases(frame, policy),
        {"change": found, "step": steps},
        f"Each round's batch alone: {by_round(frame, policy, f'batch_{column}')}; as many held-out source images: "
        f"{by_round(frame, policy, f'held_out_{column}')}{', so size alone lowers it as much' * as_large}.",
    )


@measure()
def w1min_output_distance_bump(records: list[Record], policy: str, column: str) -> Measurement:
    """Rise to the second round, and fall from there to the last, as the printed numbers do."""
    frame = rounds_of(records, policy)
    values = curve(frame, policy, column)
    rise, fall = mean_interval(values[:, 1] - values[:, 0]), growth(frame, policy, column, since=1)
    peak = int(values.mean(axis=0).argmax())
    return Measurement(
        f"{by_round(frame, policy, column)}; second minus first {interval(rise, '{:.2f}')}, last minus second "
        f"{interval(fall, '{:.2f}')}",
        _cases(frame, policy),
        {"rise": rise, "fall": fall},
        f"It is highest in round {peak + 1} of {values.shape[1]}.",
    )


@measure()
def w1min_risk_improves(records: list[Record], policy: str) -> Measurement:
    frame = rounds_of(records, policy)
    found = growth(frame, policy, "points")
    harmed = float((frame.loc[frame["policy"] == policy, "error_change"] > 0).mean())
    return Measurement(
        f"{by_round(frame, policy, 'points')} points; last minus first {interval(found, '{:.2f}')}",
        _cases(frame, policy),
        {"change": found},
        f"Lower is better here, since {100 * harmed:.0f}% of the rounds harm the anchor; without labels it is 0.",
    )


@measure()
def mmdmin_output_distance_rises(records: list[Record], policy: str) -> Measurement:
    frame = rounds_of(records, policy)
    rise, fall = growth(frame, policy, "output_distance"), growth(frame, policy, "mmd")
    others = [p for p in POLICIES if p in set(frame["policy"]) and p != policy]
    grown = ", ".join(f"{p} x{factor(frame, p, 'output_distance'):.2f}" for p in others) or "no other policy was run"
    return Measurement(
        f"output discrepancy x{factor(frame, policy, 'output_distance'):.2f} ({interval(rise, '{:+.2f}')}), MMD "
        f"x{factor(frame, policy, 'mmd'):.2f} ({interval(fall, '{:+.3f}')}) from first to last round",
        _cases(frame, policy),
        {"output discrepancy": rise, "MMD": fall},
        f"More labels are more steps under every policy: output discrepancy of {grown}.",
    )


@measure()
def mmdmin_unreliable(records: list[Record]) -> Measurement:
    frame = rounds_of(records, "mmdmin", "w1min")
    changes = {policy: growth(frame, policy, "points") for policy in ("mmdmin", "w1min")}
    shown = ", ".join(f"{policy} {interval(change, '{:+.2f}')}" for policy, change in changes.items())
    gap = contrast(frame, "mmdmin", "w1min", "points")
    return Measurement(
        f"|Delta R|, last minus first round: {shown} points",
        _cases(frame, *changes),
        dict(changes),
        f"Over all rounds mmdmin's |Delta R| minus w1min's is {interval(gap, '{:+.2f}')} points.",
    )


@measure()
def bound_ratio(records: list[Record], scale_from: str) -> Measurement:
    """The paper's reading is the proxy over points; ours the bound over the change of the loss it bounds."""
    frame = rounds_of(records, "w1min", "mmdmin", scale_from=scale_from)
    readings = {"Proxy/|Delta R| [p.p.]": ("proxy", "points"), "B/|Delta R| [nats]": ("bound_ot", "abs_risk_change")}
    read = {
        name: {p: np.divide(*(curve(frame, p, column).mean(axis=0) for column in pair)) for p in ("w1min", "mmdmin")}
        for name, pair in readings.items()
    }
    printed, _ = read.values()
    return Measurement(
        "; ".join(
            f"{name} " + ", ".join(f"{r.min():.3g} to {r.max():.3g} ({p})" for p, r in ratios.items())
            for name, ratios in read.items()
        ),
        _cases(frame, "w1min", "mmdmin"),
        {
            "smallest": {p: float(r.min()) for p, r in printed.items()},
            "largest": {p: float(r.max()) for p, r in printed.items()},
            "spread": {f"{name}, {p}": float(r.max() / r.min()) for name, rs in read.items() for p, r in rs.items()},
        },
    )


@measure()
def alignment_alone_misleads(records: list[Record]) -> Measurement:
    frame = rounds_of(records, "w1min", "mmdmin")
    distance, output = mean_correlation(frame, "distance"), mean_correlation(frame, "output_distance")
    return Measurement(
        f"rho with |Delta R| over {_means(frame)} policy-round means: distance {interval(distance, '{:.2f}')}, output "
        f"discrepancy {interval(output, '{:.2f}')}",
        len(frame),
        {"distance": distance, "output discrepancy": output},
    )


@measure()
def policies_against_random(records: list[Record]) -> Measurement:
    frame = rounds_of(records, *POLICIES)
    columns = {"target error": "target_points", "anchor": "signed_points"}
    gaps = {
        f"{policy}, {title}": contrast(frame, policy, "random", column)
        for policy in ("w1min", "mmdmin")
        for title, column in columns.items()
    }
    return Measurement(
        "; ".join(f"{name} {interval(gap, '{:+.1f}')} points" for name, gap in gaps.items()), len(frame), {"gap": gaps}
    )


@measure()
def w1min_against_mmdmin(records: list[Record]) -> Measurement:
    frame = rounds_of(records, "w1min", "mmdmin")
    error, harm = (contrast(frame, "w1min", "mmdmin", column) for column in ("target_points", "signed_points"))
    return Measurement(
        f"w1min minus mmdmin: anchor {interval(harm, '{:+.1f}')}, target error {interval(error, '{:+.1f}')} points",
        _cases(frame, "w1min", "mmdmin"),
        {"anchor": harm, "target error": error},
    )


@measure()
def vision_rounds_are_ranked(records: list[Record], scale_from: str) -> Measurement:
    frame = rounds_of(records, "w1min", "mmdmin", scale_from=scale_from)
    scores = {
        "proxy": "TRACE-Proxy",
        "output_distance": "output discrepancy",
        "bound_ot": "bound",
        "anchor_disagreement": "anchor disagreement",
    }
    found = {score: mean_correlation(frame, score) for score in scores}
    shown = ", ".join(f"{scores[score]} {interval(f, '{:.2f}')}" for score, f in found.items())
    return Measurement(
        f"rho with |Delta R|: {shown}",
        len(frame),
        {"proxy": found["proxy"]},
        f"Spearman over {_means(frame)} policy-round means, c_h from the development rounds of "
        f"{scale_from}; {_sensitivity(records)}.",
    )


def _sensitivity(records: list[Record]) -> str:
    """How the proxy's rho depends on the development rounds that c_h is taken from."""
    found = {}
    for policy in POLICIES:
        frame = shared_seeds(active_frame(records, policy), ("w1min", "mmdmin"))
        if not frame["proxy"].isna().any():
            own = frame.groupby(["policy", "labeled"])
            found[policy] = spearman(*(own[column].mean() for column in ("proxy", "points"))).value
    return "with those of " + ", of ".join(f"{policy} it is {rho:.2f}" for policy, rho in found.items())


@measure()
def vision_rounds_are_bounded(records: list[Record], bound: str) -> Measurement:
    frame = rounds_of(records)
    held, loose = covers(frame, bound)
    alone, looseness = covers(frame, "model_change")
    return Measurement(
        f"{100 * held:.1f}% of rounds",
        len(frame),
        {"share": held},
        f"The bound is {loose:.0f} times |Delta R| in the median; model change alone holds in {100 * alone:.1f}% at "
        f"{looseness:.0f} times.",
    )


@measure()
def proxy_terms_are_comparable(records: list[Record], scale_from: str) -> Measurement:
    """The shift term of the proxy over its model change, round by round."""
    frame = rounds_of(records, "w1min", "mmdmin", scale_from=scale_from)
    share = frame["proxy"] / frame["output_distance"] - 1
    medians = share.groupby(frame["policy"]).median()
    return Measurement(
        "shift term over model change, median: " + ", ".join(f"{p} {value:.2f}" for p, value in medians.items()),
        len(frame),
        {"ratio": {str(p): float(value) for p, value in medians.items()}},
    )
