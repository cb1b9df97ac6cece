"""The tables of the deployment gate from records: `gate-tau-main`, `gate-tau`, `gate-paired` and `gate-controls`."""

from __future__ import annotations

from pandas import DataFrame, Series

from trace.stats.metrics import auprc, auroc

from ..analysis.cells import MISSING, interval, spread
from ..analysis.gate import (
    SCORES,
    THRESHOLDS,
    alarm,
    area,
    both_kinds,
    correlation,
    gate_frame,
    harmful,
    lead,
    resolvable,
    subsets,
)
from ..analysis.paper import GATE, GATE_RHO, GATE_TAU
from ..engine.records import Record
from .table import Table, table

PUBLISHED = {"trace_w": "trace", "negative_msp_source": "msp"}
"""Our reading of the paper's two methods."""

CHANGES = {
    "error_change": "rho, signed",
    "abs_error_change": "rho, absolute",
    "risk_change": "rho, cross-entropy",
}
"""What scores are ranked against, and the column of it."""

AGAINST = ("trace_w", "output_distance")
"""What every score is compared with: the paper's gate, and the one of its terms that needs no distance."""

ABBREVIATIONS = (
    "MSP is the mean largest softmax probability, ATC average thresholded confidence, DoC difference of confidences, "
    "COT confidence optimal transport, MaNo matrix norm, that of normalised logits."
)

FIRST = ("plain", "reference")
"""Kinds that head the table of controls."""

SHOWN = (
    "trace_w",
    "trace_mmd",
    "output_distance",
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
    rows = []
    for title, frame in subsets(records):
        for score, name in SCORES.items():
            paper = f"{GATE_RHO[PUBLISHED[score]]:.3f}" if score in PUBLISHED else ""
            rhos = [correlation(frame, score, change) for change in CHANGES]
            cells = [interval(found, "{:.2f}") for found in (*rhos, area(frame, score, GATE_TAU))]
            rows.append([title, name, paper, *cells, str(len(frame))])
    return Table(
        caption=(
            "Deployment gate: Spearman's rho of every score with the change of the anchor's 0-1 risk, signed and "
            f"absolute, and of its clipped cross-entropy; AUROC for a rise above {GATE_TAU}. 95% intervals over seeds "
            "and candidates. MSP stands in both signs: the paper's rho and its AUROC have opposite ones. "
            f"{ABBREVIATIONS}"
        ),
        header=["candidates", "score", "rho, paper", *CHANGES.values(), f"AUROC at {GATE_TAU}", "updates"],
        rows=rows,
    )


@table("gate-tau", "gate")
def gate_tau(records: list[Record]) -> Table:
    """AUROC and AUPRC of every score over a sweep of thresholds."""
    published = {(row.tau, "trace_w"): (row.auroc_trace, row.auprc_trace) for row in GATE}
    published |= {(row.tau, "negative_msp_source"): (row.auroc_msp, row.auprc_msp) for row in GATE}
    rows = []
    for title, frame in subsets(records):
        for tau in THRESHOLDS:
            share = f"{100 * float(harmful(frame, tau).mean()):.0f}%"
            for score, name in SCORES.items():
                paper = published.get((tau, score))
                printed = f"{paper[0]:.3f} / {paper[1]:.3f}" if paper else ""
                areas = [interval(area(frame, score, tau, metric), "{:.2f}") for metric in (auroc, auprc)]
                rows.append([title, f"{tau:.2f}", share, name, printed, *areas])
    return Table(
        caption=(
            "Threshold sweep: an update is harmful if the anchor's 0-1 risk rises by more than tau. 95% intervals "
            "over seeds and candidates. Published: DomainNet, AUROC / AUPRC of TRACE and -MSP."
        ),
        header=["candidates", "tau", "harmful", "score", "paper", "AUROC", "AUPRC"],
        rows=rows,
    )


@table("gate-paired", "gate")
def gate_paired(records: list[Record]) -> Table:
    """Every score against TRACE-W and against model change alone, on the same updates."""
    rows = []
    for title, frame in subsets(records):
        for over in AGAINST:
            for score in SCORES:
                if score != over:
                    rows.append([title, SCORES[over], SCORES[score], *_leads(frame, score, over)])
    return Table(
        caption=(
            "Paired comparison: how much better than TRACE-W, or than model change alone, every score ranks the same "
            "updates by the signed change of the anchor's 0-1 risk (rho) and separates rises above tau (AUROC). 95% "
            "intervals over seeds and candidates; resolvable where they exclude 0, better or worse. Of twenty "
            "differences that are truly 0, one would seem resolvable."
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


def _points(values: Series) -> str:
    """Mean (standard deviation) in percentage points."""
    return f"{100 * values.mean():.1f} ({100 * values.std():.1f})"
