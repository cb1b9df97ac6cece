"""Every claim about the gate on records made so that it holds, and so that it does not."""

import pytest

from experiments.claims.ledger import all_claims
from tests.experiments.tables.test_gate import updates, updates_of

CLAIM = {claim.name: claim for claim in all_claims("gate")}
FIXED = {"transport": 0.1, "mmd_squared": 0.1, "sensitivity_target": 1.0, "rkhs_norm": 1.0}
"""Distances and sensitivities that are the same for all candidates."""


def harm(h, k):
    return h


def noise(h, k):
    """A ranking that has nothing to do with harm, another one for each seed."""
    return (37 * (100 * h + 11 * k)) % 101 / 101


def backwards(h, k):
    return -h


def rows(seeds=range(6), **changes):
    changed = {**FIXED, "output_distance": harm, **changes}
    return [record for seed in seeds for record in updates_of(seed, **changed)]


BLIND = updates(
    6,
    made={"rehearsal": 1.0, "relabelled": [1]},
    **FIXED,
    output_distance=0.0,
    error_change=lambda h, k: 0.5 + h,
)

CASES = [
    ("gate_rank_correlation", {}, "reproduced"),
    ("gate_rank_correlation", {"output_distance": lambda h, k: h + 0.2 * noise(h, k)}, "partly"),
    ("gate_rank_correlation", {"output_distance": backwards}, "not reproduced"),
    ("gate_outperforms_msp", {"negative_msp_source": noise}, "reproduced"),
    ("gate_outperforms_msp", {"negative_msp_source": lambda h, k: -h - (k == 0) * noise(h, k)}, "partly"),
    ("gate_outperforms_msp", {"negative_msp_source": backwards}, "not reproduced"),  # the other sign is as good
    ("gate_outperforms_msp", {"negative_msp_source": harm, "output_distance": backwards}, "not reproduced"),
    *(
        case
        for tau in (10, 13, 23)
        for case in (
            (f"gate_areas_at_{tau}", {}, "reproduced"),
            (f"gate_areas_at_{tau}", {"output_distance": backwards}, "not reproduced"),
            (f"gate_areas_at_{tau}", {"error_change": lambda h, k: 0.1 * h}, "not run here"),
        )
    ),
    ("gate_harmful_share", {"error_change": lambda h, k: 0.1 + h}, "reproduced"),
    ("gate_harmful_share", {"error_change": lambda h, k: 0.1 * h}, "not reproduced"),
    ("gate_distances_constant", {}, "reproduced"),
    ("gate_distances_constant", {"transport": lambda h, k: 0.1 + h}, "not reproduced"),
    ("gate_is_output_distance", {}, "reproduced"),
    ("gate_is_output_distance", {"sensitivity_target": lambda h, k: 100 * noise(h, k)}, "not reproduced"),
    ("gate_gaps_do_not_matter", {}, "reproduced"),
    ("gate_gaps_do_not_matter", {"gap_target": noise}, "not reproduced"),
    ("vision_updates_are_bounded", {"risk_change": 0.01}, "reproduced"),
    ("vision_updates_are_bounded", {"risk_change": 1000.0}, "not reproduced"),
    ("gate_best_score", {}, "reproduced"),
    ("gate_best_score", {"output_distance": noise}, "not reproduced"),
]


@pytest.mark.parametrize(("name", "changes", "verdict"), CASES, ids=[f"{c[0]}-{c[2]}" for c in CASES])
def test_a_rule_follows_the_records(name, changes, verdict):
    finding = CLAIM[f"{name}_on_emoji"].judge({"gate": rows(**changes)})
    assert finding.verdict == verdict, finding
    assert finding.runs > 0
    assert finding.why.endswith(".")


def test_reliability_is_judged_with_controls_too():
    judge = CLAIM["gate_label_efficient_on_emoji"].judge
    assert judge({"gate": rows()}).verdict == "reproduced"
    finding = judge({"gate": rows() + BLIND})
    assert finding.verdict == "partly"
    assert "Harm that the target does not show stands at 77% of all updates by harm and at" in finding.why
    assert judge({"gate": rows(output_distance=backwards)}).verdict == "not reproduced"
    assert judge({"gate": rows(error_change=0.0)}).verdict == "not run here"
    helped = updates(6, made={"distill": 1.0}, **FIXED, output_distance=harm)
    assert judge({"gate": rows() + helped}).verdict == "reproduced"


def test_the_best_score_is_named_with_its_lead():
    finding = CLAIM["gate_best_score_on_emoji"].judge({"gate": rows() + BLIND})
    assert finding.verdict == "partly"
    assert "fine-tunes: best by rho TRACE-W" in finding.measured
    assert "with controls: best by rho" in finding.measured
    assert "anchor" not in finding.why.split("; with controls")[0]


def test_domainnet_records_are_judged_by_the_same_rule():
    found = updates(4, data="domainnet", **FIXED, output_distance=harm)
    assert CLAIM["gate_rank_correlation_on_domainnet"].judge({"gate": found}).verdict == "reproduced"
    assert CLAIM["gate_rank_correlation_on_emoji"].judge({"gate": found}).verdict == "not run here"
