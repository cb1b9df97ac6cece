"""Claims that need DomainNet: without its records nothing is claimed, with them a rule decides."""

import pytest

from experiments.claims_vision import ACTIVE_CLAIMS, CLAIMS, GATE_CLAIMS, on_domainnet
from experiments.ledger import Finding


def records(experiment, data, number=1):
    return {experiment: [{"config": {"data": data}, "metrics": {"rho": 0.9}}] * number}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_without_records_it_was_not_run(claim):
    finding = claim.judge({})
    assert finding.verdict == "not run here"
    assert finding.runs == 0
    assert "not part of this repository" in finding.why
    assert claim.name.startswith("domainnet_")


@pytest.mark.parametrize(("claims", "experiment"), [(ACTIVE_CLAIMS, "active"), (GATE_CLAIMS, "gate")])
def test_the_stand_in_is_named_where_it_was_run(claims, experiment):
    for claim in claims:
        finding = claim.judge(records(experiment, "emoji", 3))
        assert finding.verdict == "not run here"
        assert f"see the row of the emoji stand-in (`{experiment}`, data: emoji, 3 records)" in finding.why
        assert "see the row" not in claim.judge(records("other", "emoji")).why


def test_records_on_domainnet_are_judged_by_the_rule():
    def rule(found):
        rho = found[0]["metrics"]["rho"]
        return Finding(f"rho = {rho}", len(found), "reproduced" if rho > 0.8 else "not reproduced", "By its rank.")

    claim = on_domainnet("rank", "gate", "app:domainnet-gate", "It ranks.", published="0.944", rule=rule)
    assert claim.judge(records("gate", "domainnet", 2)) == Finding("rho = 0.9", 2, "reproduced", "By its rank.")
    assert claim.judge(records("gate", "emoji")).verdict == "not run here"


def test_records_without_a_rule_are_not_passed_off_as_a_result():
    finding = GATE_CLAIMS[0].judge(records("gate", "domainnet", 2))
    assert finding.verdict == "not run here"
    assert finding.runs == 2
    assert "no rule" in finding.why
