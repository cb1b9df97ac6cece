"""Claims that need DomainNet, whose images are not part of this repository.

Each is judged on records of ``active`` or ``gate`` with ``data: domainnet`` once a rule for it is written; until such
records exist the finding says so, and points to the stand-in with emoji images where that was run.
"""

from __future__ import annotations

from collections.abc import Callable

from .ledger import Claim, Finding, Records, claim
from .records import Record

Rule = Callable[[list[Record]], Finding]


def on_domainnet(
    name: str, experiment: str, label: str, statement: str, *, published: str, rule: Rule | None = None
) -> Claim:
    """A claim about one experiment on DomainNet; ``rule`` judges its records."""

    def judge(records: Records) -> Finding:
        own = records_of(records, experiment, "domainnet")
        if not own:
            return _missing(experiment, len(records_of(records, experiment, "emoji")))
        if rule is None:
            why = f"Records of `{experiment}` on DomainNet exist, but no rule that judges this claim is written yet."
            return Finding(f"{len(own)} records, not judged yet", len(own), "not run here", why)
        return rule(own)

    judge.__name__ = f"domainnet_{name}"
    return claim(label, statement, published=published)(judge)


def records_of(records: Records, experiment: str, data: str) -> list[Record]:
    """The records of an experiment on one data set."""
    return [record for record in records.get(experiment, []) if record["config"].get("data") == data]


def _missing(experiment: str, stand_in: int) -> Finding:
    reason = "DomainNet's images are not part of this repository and no run on them is recorded"
    if stand_in:
        why = f"{reason}; see the row of the emoji stand-in (`{experiment}`, data: emoji, {stand_in} records)."
    else:
        why = f"{reason}, nor one of `{experiment}` on the emoji stand-in."
    return Finding("no records on DomainNet", 0, "not run here", why)


ACTIVE_CLAIMS = [
    on_domainnet(
        "w1min_distance_shrinks", "active", "app:domainnet-active",
        "w1min: the feature-space distance shrinks with the rounds.", published="0.0182 to 0.0034"),
    on_domainnet(
        "w1min_output_distance_bump", "active", "app:domainnet-active",
        "w1min: the output discrepancy shows a small early bump, then declines.",
        published="42.23, 48.94, 47.02, 45.42, 44.68"),
    on_domainnet(
        "w1min_risk_improves", "active", "app:domainnet-active",
        "w1min: |Delta R| improves with the rounds, leading to consistent gains.",
        published="5.82, 8.71, 6.76, 5.71, 5.11 percentage points"),
    on_domainnet(
        "mmdmin_distance_falls", "active", "app:domainnet-active",
        "mmdmin: the MMD falls with the rounds.", published="0.1772 to 0.0984"),
    on_domainnet(
        "mmdmin_output_distance_rises", "active", "tab:trace-domainnet-main",
        "mmdmin lowers the MMD while the output discrepancy explodes.", published="27.77 to 66.56"),
    on_domainnet(
        "mmdmin_unreliable", "active", "tab:trace-domainnet-main",
        "mmdmin: the instability makes improvements on the anchor unreliable.",
        published="|Delta R| = 3.35, 3.69, 2.21, 4.40, 4.48 percentage points"),
    on_domainnet(
        "bound_ratio", "active", "tab:trace-domainnet-combined-app",
        "The ratio of bound and risk change is stable over the rounds.",
        published="5.64 to 8.76 (w1min), 11.86 to 29.80 (mmdmin)"),
    on_domainnet(
        "alignment_alone_misleads", "active", "app:domainnet-active",
        "Monitoring the distance alone is misleading; the model change must be controlled.",
        published="mmdmin: distance -44%, output discrepancy +140%"),
]  # fmt: skip

GATE_CLAIMS = [
    on_domainnet(
        "gate_rank_correlation", "gate", "tab:gate-tau-main",
        "The gate score is an exceptionally strong predictor of deployment risk.",
        published="rho = 0.944 over 20 candidates"),
    on_domainnet(
        "gate_outperforms_msp", "gate", "app:domainnet-gate",
        "The gate score outperforms -MSP in rank correlation with harm.", published="rho 0.944 against -0.874"),
    *(
        on_domainnet(
            f"gate_areas_at_{name}", "gate", "tab:gate-tau-app",
            f"The gate score separates harmful updates at tau = {tau}.",
            published=f"AUROC {trace[0]}, AUPRC {trace[1]} (-MSP {msp[0]}, {msp[1]})")
        for name, tau, trace, msp in (
            ("low_threshold", "0.10", ("1.000", "1.000"), ("1.000", "1.000")),
            ("key_threshold", "0.13", ("1.000", "1.000"), ("0.980", "0.986")),
            ("high_threshold", "0.23", ("0.984", "0.950"), ("0.984", "0.950")),
        )
    ),
    on_domainnet(
        "gate_harmful_share", "gate", "app:domainnet-gate",
        "At tau = 0.13 more than half of the candidates are harmful.", published="55% of 20"),
    on_domainnet(
        "gate_distances_constant", "gate", "app:domainnet-gate",
        "W1 and single-bandwidth MMD are nearly constant across candidates.", published="nearly constant"),
    on_domainnet(
        "gate_gaps_do_not_matter", "gate", "app:gate-scores",
        "Leaving out the generalization gaps does not affect the ranking.", published="does not affect ranking"),
    on_domainnet(
        "gate_label_efficient", "gate", "abstract",
        "The gate needs no fresh labels on the anchor domain and is reliable.", published="AUROC 1.000 at tau = 0.13"),
]  # fmt: skip

CLAIMS = [*ACTIVE_CLAIMS, *GATE_CLAIMS]
