"""The tables of the deployment gate from records: `gate-tau-main`, `gate-tau`, `gate-paired`, `gate-controls`
and `gate-replications`."""

from pandas import DataFrame, Series

from trace.stats.metrics import auprc, auroc

from ..analysis.cells import MISSING, interval, spread
from ..analysis.gate import (
    REPLICATED_AT,
    SCORES,
    THRESHOLDS,
    alarm,
    area,
    both_kinds,
    correlation,
    gate_frame,
    harmful,
    lead,
    replicated,
    resolvable,
    subsets,
)
from ..analysis.paper import GATE, GATE_CANDIDATES, GATE_HARMFUL_SHARE, GATE_RHO, GATE_TAU
from ..analysis.replications import over_data_sets, pooled_title
from ..engine.records import Record
from .table import Table, table

PUBLISHED = {"trace": "TRACE gate score", "msp": "-MSP, side not named"}
"""The paper's two methods, as it names them."""
NOT_PRINTED = "not printed"

CHANGES = {
    "error_change": "rho, signed",
    "abs_error_change": "rho, absolute",
    "risk_change": "rho, cross-entropy",
}
"""What scores are ranked against, and the column of it."""

AGAINST = ("trace_w", "held_out_distance")
"""What every score is compared with: the paper's gate, and the one of its terms that needs no distance."""

ABBREVIATIONS = (
    "MSP is the mean largest softmax probability, ATC average thresholded confidence, DoC difference of confidences, "
    "COT confidence optimal transport, MaNo matrix norm, that of normalised logits."
)

INTERVALS = (
    "95% intervals, Student's t over seeds and candidates; all seeds share one test set, whose chance is left out."
)

FIRST = ("plain", "reference")
"""Kinds that head the table of controls."""

SHOWN = (
    "trace_w",
    "trace_mmd",
    "held_out_distance",
    "disagreement_target",
    "negative_msp_source",
    "cot",
    "anchor_disagreement",
    "anchor_plug_in",
)
"""Scores of the table of controls: the paper's, those of the target, and those of the anchor's own inputs."""


@table("gate-tau-main", "gate")
def gate_tau_main(records: list[Record]) -> Table:
    """Rank correlation with signed and absolute change, and AUROC at the paper's threshold, for every score."""
    (at_tau,) = [row for row in GATE if row.tau == GATE_TAU]
    printed = [
        [
            *("domainnet, published", name, NOT_PRINTED, f"{GATE_RHO[method]:.3f}", NOT_PRINTED),
            *(f"{getattr(at_tau, f'auroc_{method}'):.3f}", str(GATE_CANDIDATES)),
        ]
        for method, name in PUBLISHED.items()
    ]
    rows = [
        [
            *(title, name, *(interval(correlation(frame, score, change), "{:.2f}") for change in CHANGES)),
            *(interval(area(frame, score, GATE_TAU), "{:.2f}"), str(len(frame))),
        ]
        for title, frame in subsets(records)
        for score, name in SCORES.items()
    ]
    return Table(
        caption=(
            "Deployment gate: Spearman's rho of every score with the change of the anchor's 0-1 risk, signed and "
            f"absolute, and of its clipped cross-entropy; AUROC for a rise above {GATE_TAU}. {INTERVALS} MSP stands in "
            f"both signs: the paper's rho and its AUROC have opposite ones. {ABBREVIATIONS}"
        ),
        header=["candidates", "score", *CHANGES.values(), f"AUROC at {GATE_TAU}", "updates"],
        rows=printed + rows,
    )


@table("gate-tau", "gate")
def gate_tau(records: list[Record]) -> Table:
    """AUROC and AUPRC of every score over a sweep of thresholds."""
    printed = [
        [
            *("domainnet, published", f"{row.tau:.2f}"),
            f"{100 * GATE_HARMFUL_SHARE:.0f}%" if row.tau == GATE_TAU else NOT_PRINTED,
            *(name, *(f"{getattr(row, f'{metric}_{method}'):.3f}" for metric in ("auroc", "auprc"))),
        ]
        for row in GATE
        for method, name in PUBLISHED.items()
    ]
    rows = [
        [
            *(title, f"{tau:.2f}", f"{100 * float(harmful(frame, tau).mean()):.0f}%", name),
            *(interval(area(frame, score, tau, metric), "{:.2f}") for metric in (auroc, auprc)),
        ]
        for title, frame in subsets(records)
        for tau in THRESHOLDS
        for score, name in SCORES.items()
    ]
    return Table(
        caption=(
            "Threshold sweep: an update is harmful if the anchor's 0-1 risk rises by more than tau. "
            f"{INTERVALS} The first rows are the paper's, on DomainNet."
        ),
        header=["candidates", "tau", "harmful", "score", "AUROC", "AUPRC"],
        rows=printed + rows,
    )


@table("gate-paired", "gate")
def gate_paired(records: list[Record]) -> Table:
    """Every score against TRACE-W and against model change alone, on the same updates."""
    rows = [
        [title, SCORES[over], name, *_leads(frame, score, over)]
        for title, frame in subsets(records)
        for over in AGAINST
        for score, name in SCORES.items()
        if score != over
    ]
    return Table(
        caption=(
            "Paired comparison: how much better than TRACE-W, or than model change alone, every score ranks the same "
            "updates by the signed change of the anchor's 0-1 risk (rho) and separates rises above tau (AUROC). "
            f"{INTERVALS} Resolvable where they exclude 0, better or worse. Of twenty differences that are truly 0, "
            "one would seem resolvable."
        ),
        header=["candidates", "against", "score", "rho", *(f"AUROC at {tau:.2f}" for tau in THRESHOLDS), "resolvable"],
        rows=rows,
    )


def _leads(frame: DataFrame, score: str, over: str) -> list[str]:
    """The differences, and in which of them the interval excludes 0."""
    names = {"rho": None} | {f"{tau:.2f}": tau for tau in THRESHOLDS}
    found = {
        name: lead(frame, score, over, tau) for name, tau in names.items() if tau is None or both_kinds(frame, tau)
    }
    sides = {
        side: [name for name, f in found.items() if resolvable(f) and (f.estimate > 0) == (side == "better")]
        for side in ("better", "worse")
    }
    cells = [interval(found[name], "{:+.2f}") if name in found else "one kind only" for name in names]
    return [*cells, "; ".join(f"{side}: {', '.join(names)}" for side, names in sides.items() if names) or "no"]


@table("gate-controls", "gate")
def gate_controls(records: list[Record]) -> Table:
    """By kind of update: the true change, and what the scores say of it."""
    rows = []
    for data, part in gate_frame(records).groupby("data", sort=False):
        kinds = sorted(set(part["kind"]), key=lambda kind: (FIRST.index(kind) if kind in FIRST else len(FIRST), kind))
        places = DataFrame({score: alarm(part, score) for score in ("error_change", *SHOWN)})
        for kind in kinds if kinds != ["plain"] else []:
            own, place = part[part["kind"] == kind], places[part["kind"] == kind].mean()
            harm = [_points(own["error_change"]), f"{100 * place['error_change']:.0f}%", spread(own["risk_change"])]
            cells = [f"{own[score].mean():.3g} ({100 * place[score]:.0f}%)" for score in SHOWN]
            rows.append([data, kind, str(len(own)), *harm, _points(own["target_error"]), *cells])
    harm = ["Delta R [p.p.]", "place of harm", "Delta R [nats]", "target error [%]"]
    header = ["data", "kind", "updates", *harm, *(f"{SCORES[score]} (place)" for score in SHOWN)]
    return Table(
        caption=(
            "Controls: mean (standard deviation) of the true signed change on the anchor and of the target error, and "
            "mean of each score with its place among all updates of the same seed, from 0% (least alarming) to 100%. "
            "A gate is right where a score's place is that of the harm. Plain: the fine-tunes that are gated; "
            "reference: those run beside the controls to compare them with. Constant: added to all logits of a timid "
            f"fine-tune, which moves no prediction; blind harm: done where no target input shows it. {ABBREVIATIONS}"
        ),
        header=header,
        rows=rows or [[MISSING] * len(header)],
    )


@table("gate-replications", "gate", across=True)
def gate_replications(records: list[Record]) -> Table:
    """Every score on every data set, pair and backbone: rank correlation and AUROC."""
    frame = gate_frame(records)
    cells = replicated(frame[frame["kind"] == "plain"])
    columns = ["rho", *map(str, REPLICATED_AT)]
    rows = [
        [*place, str(own["updates"]), *(interval(own[name], "{:.2f}") for name in columns)]
        for place, own in cells.items()
    ]
    for score in dict.fromkeys(score for _, score in cells):
        of_score = DataFrame({title: own for (title, name), own in cells.items() if name == score}).T
        means = [
            over_data_sets(
                of_score[name].map(lambda found: found.estimate), of_score["data_set"], (-1 if name == "rho" else 0, 1)
            )
            for name in columns
        ]
        rows.append(
            [pooled_title(of_score["data_set"]), score, str(of_score["updates"].sum())]
            + [interval(mean, "{:.2f}") for mean in means]
        )
    return Table(
        caption=(
            "Replications of the gate, plain fine-tunes: Spearman's rho of every score with the signed change of the "
            f"anchor's 0-1 risk, and AUROC for a rise above tau. {INTERVALS} Undefined where all updates are of one "
            "kind. Last rows: mean over data sets of their replications' mean, Student's t over data sets, since "
            f"replications on one of them share its images or people. {ABBREVIATIONS} CBPE is confidence-based "
            "performance estimation, for tables."
        ),
        header=["replication", "score", "updates", "rho", *(f"AUROC at {tau:g}" for tau in REPLICATED_AT)],
        rows=rows,
    )


def _points(values: Series) -> str:
    """Mean (standard deviation) in percentage points."""
    return f"{100 * values.mean():.1f} ({100 * values.std():.1f})"
