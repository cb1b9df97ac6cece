"""The tables of the deployment gate, `gate-tau-main` and `gate-tau`, from records."""

from __future__ import annotations

import numpy as np

from trace.bootstrap import BootstrapInterval, two_way_bootstrap
from trace.metrics import auprc, auroc, spearman

from .frame import Frame, gate_frame, groups, size, where
from .published import GATE, GATE_RHO
from .records import Record
from .table_text import MISSING, Table
from .tables_synthetic import interval

THRESHOLDS = (0.02, 0.05, 0.10, 0.13, 0.23)
"""Of the rise in 0-1 risk above which an update is harmful; the last three are the paper's."""

SCORES = {
    "trace_w": "TRACE-W",
    "trace_mmd": "TRACE-MMD",
    "output_distance": "model change",
    "disagreement_target": "disagreement on target",
    "negative_msp_source": "-MSP on source",
    "negative_msp_target": "-MSP on target",
    "entropy_source": "entropy on source",
    "energy_source": "energy on source",
    "atc": "ATC",
    "doc": "DoC",
    "cot": "COT",
    "mano": "MaNo",
    "anchor_disagreement": "anchor disagreement",
    "anchor_worst_label": "anchor bound",
    "anchor_lipschitz": "anchor output distance",
    "anchor_plug_in": "anchor plug-in",
}
"""All oriented so that higher predicts more harm; the other sign has the opposite rho and one minus the AUROC."""

PUBLISHED = {"trace_w": "trace", "negative_msp_source": "msp"}
"""Our reading of the paper's two methods."""


def subsets(records: list[Record]) -> list[tuple[str, Frame]]:
    """The plain fine-tunes of every data set, and those with the control candidates added."""
    frame = gate_frame(records)
    found = []
    for (data,) in groups(frame, "data"):
        part = where(frame, data=data)
        found.append((f"{data}, fine-tunes", where(part, plain=True)))
        if not part["plain"].all():
            found.append((f"{data}, with controls", part))
    return found


def ranked(frame: Frame, score: str, target: str = "error_change") -> BootstrapInterval:
    """Spearman's rho of a score with a risk change, seeds and candidates resampled."""
    values = np.abs(frame["error_change"]) if target == "abs_error_change" else frame[target]
    return two_way_bootstrap(spearman, frame["seed"], frame["name"], frame[score], values,
                             generator=np.random.default_rng(0), num_resamples=500)  # fmt: skip


def gate_tau_main(records: list[Record]) -> Table:
    """Rank correlation with signed and absolute change, and AUROC at 0.13, for every score."""
    rows = []
    for title, frame in subsets(records):
        for score, name in SCORES.items():
            paper = GATE_RHO.get(PUBLISHED.get(score, ""))
            rows.append([title, name, f"{paper:.3f}" if paper is not None else "",
                         _shown(ranked(frame, score)), _shown(ranked(frame, score, "abs_error_change")),
                         _shown(ranked(frame, score, "risk_change")), _area(frame, score, 0.13)[0],
                         str(size(frame))])  # fmt: skip
    caption = (
        "Deployment gate: Spearman's rho of every score with the change of the anchor's 0-1 risk, signed and absolute, "
        "and of its clipped cross-entropy; 95% intervals over seeds and candidates; AUROC for a rise above 0.13."
    )
    header = ["candidates", "score", "rho, paper", "rho, signed", "rho, absolute", "rho, cross-entropy",
              "AUROC at 0.13", "updates"]  # fmt: skip
    return Table(caption, header, rows)


def gate_tau(records: list[Record]) -> Table:
    """AUROC and AUPRC of every score over a sweep of thresholds."""
    published = {(row.tau, "trace_w"): (row.auroc_trace, row.auprc_trace) for row in GATE}
    published |= {(row.tau, "negative_msp_source"): (row.auroc_msp, row.auprc_msp) for row in GATE}
    rows = []
    for title, frame in subsets(records):
        for tau in THRESHOLDS:
            harmful = 100 * float((frame["error_change"] > tau).mean())
            for score, name in SCORES.items():
                paper = published.get((tau, score))
                printed = f"{paper[0]:.3f} / {paper[1]:.3f}" if paper else ""
                rows.append([title, f"{tau:.2f}", f"{harmful:.0f}%", name,
                             printed, *_area(frame, score, tau)])  # fmt: skip
    caption = (
        "Threshold sweep: an update is harmful if the anchor's 0-1 risk rises by more than tau. Published: DomainNet, "
        "AUROC / AUPRC of TRACE and -MSP."
    )
    header = ["candidates", "tau", "harmful", "score", "paper", "AUROC", "AUPRC"]
    return Table(caption, header, rows)


def _area(frame: Frame, score: str, tau: float) -> list[str]:
    harmful = frame["error_change"] > tau
    found = [metric(frame[score], harmful) for metric in (auroc, auprc)]
    return [f"{m.value:.3f}" if not m.reason else m.reason for m in found]


def _shown(found: BootstrapInterval) -> str:
    return MISSING if np.isnan(found.estimate) else interval(found, "{:.2f}")
