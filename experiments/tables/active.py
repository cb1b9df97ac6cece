"""Tables of active selection from records: `trace-domainnet-main` and `-combined`, `active-terms`, `active-ranks`,
`active-replications`."""

from itertools import product

from pandas import DataFrame, Series

from trace.stats.jackknife import StudentInterval

from ..analysis.active import (
    COMPARED,
    SCALE_FROM,
    SCORES,
    active_frame,
    mean_correlation,
    policies_in,
    policy_leads,
)
from ..analysis.cells import MISSING, interval, spread
from ..analysis.paper import ACTIVE
from ..analysis.replications import over_data_sets, pooled_title
from ..analysis.summary import rank_correlation
from ..engine.records import Record
from .table import Table, table, without

DISTANCE = {"mmdmin": "mmd"}
"""What a policy's Distance column shows, where it is not the OT divergence."""

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
    frame = active_frame(records)
    policies = policies_in(frame)
    rows = [
        row
        for policy in policies
        for number in sorted({row.round for row in ACTIVE})
        for row in [*_published(policy, number), *_ours(frame, policy, number)]
    ]
    others = " and ".join(policy for policy in policies if policy not in DISTANCE)
    scores = ["Distance", "Out. Disc.", "TRACE-Proxy", "|Delta R| [p.p.]", "Proxy / |Delta R|", "B / |Delta R|"]
    return Table(
        caption=(
            "Active selection. Published: DomainNet, real to painting. Ours: mean (standard deviation) over seeds on "
            f"the data named. Distance is that of all labels so far to the source, OT for {others}, MMD for "
            "mmdmin. |Delta R| in percentage points of top-1 error; Proxy / |Delta R| is what the paper prints as B / "
            "|Delta R|, the last ratio is the bound without remainders over |Delta R| in clipped cross-entropy."
        ),
        header=["policy", "round", "labeled", "data", *scores, "target error [%]"],
        rows=rows,
    )


@table("trace-domainnet-main", "active")
def main(records: list[Record]) -> Table:
    """The first and the last round, in the columns of the paper's main text and both readings of its ratio."""
    full = combined(records)
    ends = {"1", str(max(row.round for row in ACTIVE))}
    kept = full._replace(rows=[row for row in full.rows if row[1] in ends])
    return without(kept, ("round", "TRACE-Proxy", "target error [%]"))


@table("active-terms", "active")
def terms(records: list[Record]) -> Table:
    """Everything that a round measures, on the data that was run."""
    rows = [
        [data, policy, f"{labeled:g}", *(spread(scale * part[name]) for name, (_, scale) in TERMS.items())]
        for (data, policy, labeled), part in active_frame(records).groupby(["data", "policy", "labeled"], sort=False)
    ]
    return Table(
        caption=(
            "Active selection, all terms: mean (standard deviation) over seeds. W is the debiased Sinkhorn divergence "
            "to the source's training features: of all labels so far, of this round's batch, of as many held-out "
            "source images as there are labels (no shift at this size), and between halves of the source. B is the "
            "bound without remainders; Delta R is signed, above 0 is harm."
        ),
        header=["data", "policy", "labeled", *(title for title, _ in TERMS.values())],
        rows=rows,
    )


@table("active-ranks", "active")
def ranks(records: list[Record]) -> Table:
    """How well every score ranks the rounds by the anchor's change."""
    frame = active_frame(records)
    columns = list(product((mean_correlation, rank_correlation), ("points", "signed_points")))
    rows = [
        [data, name, *(interval(rho(part, score, change), "{:.2f}") for rho, change in columns)]
        for data, part in frame.groupby("data", sort=False)
        for score, name in SCORES.items()
    ]
    return Table(
        caption=(
            "Active selection: Spearman's rho of every score with the change of the anchor's 0-1 risk, over the means "
            f"of all rounds of {', '.join(policies_in(frame))} and over all rounds of all runs; 95% intervals, "
            "Student's t over seeds, which share one test set, whose chance is left out. c_h of TRACE-Proxy is that of "
            f"the pair, from the development rounds of {SCALE_FROM}."
        ),
        header=["data", "score", "means, |Delta R|", "means, signed", "all rounds, |Delta R|", "all rounds, signed"],
        rows=rows,
    )


@table("active-replications", "active", across=True)
def active_replications(records: list[Record]) -> Table:
    """Every policy against random labels on every data set, pair and backbone."""
    frame = active_frame(records)
    leads = policy_leads(frame)
    rows = []
    for policy in dict.fromkeys(lead.policy for lead in leads):
        own = [lead for lead in leads if lead.policy == policy]
        rows += [[lead.data, policy, str(lead.seeds), *(_lead(lead.over[name]) for name in COMPARED)] for lead in own]
        sets = Series([lead.data_set for lead in own])
        pooled = (over_data_sets(Series([lead.over[name].estimate for lead in own]), sets) for name in COMPARED)
        rows.append([pooled_title(sets), policy, "", *map(_lead, pooled)])
    return Table(
        caption=(
            "Replications of active selection: mean over rounds of a policy minus that of random labels, on the same "
            "seeds; 95% intervals, Student's t over seeds, and better or worse where they exclude 0 (less is better). "
            "Last rows: mean over data sets of their replications' mean, Student's t over data sets."
        ),
        header=["replication", "policy", "seeds", *(f"{title}, minus random" for title in COMPARED.values())],
        rows=rows or [[MISSING] * (3 + len(COMPARED))],
    )


def _lead(found: StudentInterval) -> str:
    """A difference, and on which side of 0 its interval is."""
    side = " better" if found.upper < 0 else " worse" if found.lower > 0 else ""
    return interval(found, "{:+.2f}") + side


def _published(policy: str, number: int) -> list[list[str]]:
    """The line of the paper, where it has one."""
    return [
        [
            *(policy, str(number), str(row.labeled), "domainnet, published", f"{row.distance:.4f}"),
            *(f"{size:.2f}" for size in (row.output_distance, row.proxy, row.risk_change, row.ratio)),
            *("not printed", "not printed"),
        ]
        for row in ACTIVE
        if (row.policy, row.round) == (policy, number)
    ]


def _ours(frame: DataFrame, policy: str, number: int) -> list[list[str]]:
    """One line for each data set that was run."""
    rows = []
    for data, runs in frame[frame["policy"] == policy].groupby("data", sort=False):
        rounds = list(runs.groupby("labeled"))
        if number <= len(rounds):
            labeled, part = rounds[number - 1]
            shown = (DISTANCE.get(policy, "distance"), "output_distance", "proxy", "points")
            spreads = [spread(part[name]) for name in shown]
            ratios = [ratio(part["proxy"], part["points"]), ratio(part["bound_ot"], part["abs_risk_change"])]
            error = spread(100 * part["target_error"])
            rows.append([policy, str(number), f"{labeled:g}", data, *spreads, *ratios, error])
    return rows or [[policy, str(number), *[MISSING] * 9]]


def ratio(numerator: Series, denominator: Series) -> str:
    """Ratio of means: single seeds divide by nearly nothing."""
    below = float(denominator.mean())
    return f"{numerator.mean() / below:.3g}" if below > 0 and not numerator.isna().any() else MISSING
