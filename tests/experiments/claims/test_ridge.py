"""Every ridge claim can come out either way: records that support it, records that refute it, and none at all."""

import pytest

from experiments.claims.ledger import all_claims
from experiments.claims.rule import VERDICTS
from tests.experiments.analysis.ridge_records import record, unmoved

CLAIMS = [claim for claim in all_claims("ridge") if claim.rule.records]
BY_NAME = {claim.name: claim for claim in CLAIMS}
TRUE = [record(), unmoved()]


def huber(holds):
    """Fits to samples that were diagnosed with another loss."""
    made = record(holds=holds)
    made["config"]["loss"] = "huber"
    return made


CASES = [
    ("shift_penalty_is_linear", TRUE, "reproduced"),
    ("shift_penalty_is_linear", [record(small={"shift_penalty": 2.0})], "not reproduced"),
    ("weight_change_is_quadratic", TRUE, "reproduced"),
    ("weight_change_is_quadratic", [record(small={"weight_change": 1.0})], "not reproduced"),
    ("model_change_is_lower_order", TRUE, "reproduced"),
    ("model_change_is_lower_order", [record(small={"model_change": 1.0})], "not reproduced"),
    ("mean_norm_is_constant", TRUE, "partly"),
    ("mean_norm_is_constant", [record(large={"mean_norm": 0.0})], "reproduced"),
    ("mean_norm_is_constant", [record(small={"mean_norm": 0.5})], "not reproduced"),
    ("cauchy_schwarz_holds", TRUE, "reproduced"),
    ("cauchy_schwarz_holds", [record(curves={"model_change_bound": [0.0] * 3})], "not reproduced"),
    ("weights_satisfy_their_equations", TRUE, "reproduced"),
    ("weights_satisfy_their_equations", [record(), record(seed=1, monte_carlo_errors={"cosp": 9.0})], "not reproduced"),
    ("weights_differ", TRUE, "partly"),
    ("weights_differ", [record()], "reproduced"),
    ("weights_differ", [unmoved()], "not reproduced"),
    ("risk_change_is_linear", TRUE, "not reproduced"),
    ("risk_change_is_linear", [record(small={"risk_change": 1.0})], "reproduced"),
    ("weight_change_is_linear", TRUE, "contradicts itself"),
    ("weight_change_is_linear", [record(small={"weight_change": 1.0})], "reproduced"),
    ("weight_change_is_linear", [record(small={"weight_change": 3.0})], "not reproduced"),
    ("bound_is_sharp", TRUE, "not reproduced"),
    ("bound_is_sharp", [record(small={"tightness": 0.0})], "reproduced"),
    ("bound_holds", TRUE, "reproduced"),
    ("bound_holds", [record(curves={"bound": [1e-9, 1.0, 1.0]})], "not reproduced"),
    ("update_is_a_cost", TRUE, "not reproduced"),
    ("update_is_a_cost", [record(curves={"risk_change": [-1.0, 0.0, 0.1]})], "reproduced"),
    ("sensitivity_is_finite", TRUE, "not reproduced"),
    ("sensitivity_is_finite", [record(quantiles=[[0.1, 1.0], [0.01, 2.0], [1e-9, 2.0]])], "reproduced"),
    ("samples_follow", TRUE, "partly"),
    ("samples_follow", [record(fresh=2.0)], "reproduced"),
    ("samples_follow", [record(fresh=2.0, holds=False)], "not reproduced"),
    ("gaps_vanish_on_samples", TRUE, "not reproduced"),
    ("gaps_vanish_on_samples", [record(gap_source=0.0, gap_target=1e-3)], "reproduced"),
    ("huber_bound_holds", [huber(True)], "reproduced"),
    ("huber_bound_holds", [huber(False)], "not reproduced"),
    ("transport_on_samples", TRUE, "partly"),
    ("transport_on_samples", [record(transport=3.0)], "not reproduced"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "records", "verdict"), CASES)
def test_verdicts(name, records, verdict):
    finding = BY_NAME[name].judge({"ridge": records})
    assert finding.verdict == verdict
    assert finding.cases > 0
    assert finding.measured


def test_exact_samples_reproduce_the_distance_of_means():
    exact = record()
    for row in exact["metrics"]["finite"]["diagnostics"]:
        row["transport"] = row["shift"]
    assert BY_NAME["transport_on_samples"].judge({"ridge": [exact]}).verdict == "reproduced"


def test_every_claim_has_a_case_for_and_one_against():
    for claim in CLAIMS:
        assert len({verdict for name, _, verdict in CASES if name == claim.name}) >= 2, claim.name


@pytest.mark.parametrize("name", ["weight_change_is_quadratic", "weight_change_is_linear", "risk_change_is_linear",
                                  "model_change_is_lower_order", "bound_is_sharp", "cauchy_schwarz_holds"])  # fmt: skip
def test_a_slope_of_nothing_is_not_judged(name):
    finding = BY_NAME[name].judge({"ridge": [unmoved()]})
    assert finding.verdict == "not run here"
    assert "python -m experiments run ridge" in finding.why


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_without_records_nothing_is_claimed(claim):
    assert claim.judge({}).verdict == "not run here"
    half = record()
    half["metrics"] = {}
    assert claim.judge({"ridge": [half]}).verdict == "not run here"


def test_claims_are_named_once_and_point_into_the_paper():
    assert len(BY_NAME) == len(CLAIMS)
    assert {claim.label for claim in CLAIMS} == {
        "sec:theoretical_example",
        "app:ridge_derivation",
        "assump:Lx",
        "assump:Lell",
    }
    assert all(claim.judge({"ridge": TRUE}).verdict in VERDICTS for claim in CLAIMS)


def test_numbers_reach_the_reader():
    found = BY_NAME["bound_is_sharp"].judge({"ridge": TRUE}).measured
    assert "slope -1.000" in found
    assert "2e+03 at |mu| = 0.001, 20 at |mu| = 0.1" in found
    assert "leaves 0.250" in BY_NAME["weight_change_is_linear"].judge({"ridge": TRUE}).measured
    assert "equal in 1 of 2" in BY_NAME["weights_differ"].judge({"ridge": TRUE}).measured
