"""Claims on DomainNet and on the stand-in: one rule, two rows, and nothing is claimed without records."""

from itertools import pairwise

import pytest

from experiments.claims.ledger import Finding, all_claims
from experiments.claims.standin import on_both, on_stand_in
from experiments.commands.claims import judged, stored
from experiments.engine.records import write_records
from tests.experiments.tables import test_active as test_tables_active
from tests.experiments.tables import test_gate as test_tables_gate

CLAIMS = all_claims("active", "gate")


def records(experiment, data, number=1):
    return {experiment: [{"config": {"data": data}, "metrics": {"rho": 0.9}}] * number}


def rule(found):
    rho = found[0]["metrics"]["rho"]
    return Finding(f"rho = {rho}", len(found), "reproduced" if rho > 0.8 else "not reproduced", "By its rank.")


PAIR = on_both("rank", "gate", "app:domainnet-gate", "It ranks.", published="0.944")(rule)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_without_records_it_was_not_run(claim):
    finding = claim.judge({})
    assert finding.verdict == "not run here"
    assert finding.runs == 0


def test_every_claim_of_the_paper_has_a_row_on_both_data_sets():
    names = {claim.name: claim for claim in CLAIMS}
    assert len(names) == len(CLAIMS)
    for name, claim in names.items():
        if name.endswith("_on_domainnet"):
            twin = names[name.replace("_on_domainnet", "_on_emoji")]
            assert twin.statement == f"On the emoji stand-in: {claim.statement}"
            assert twin.label == claim.label
    assert sum(name.endswith("_on_domainnet") for name in names) >= 17


def test_one_rule_judges_each_data_set_on_its_own_records():
    on_domainnet, on_emoji = PAIR
    assert on_domainnet.judge(records("gate", "domainnet", 2)) == Finding("rho = 0.9", 2, "reproduced", "By its rank.")
    assert on_emoji.judge(records("gate", "emoji", 3)) == Finding("rho = 0.9", 3, "reproduced", "By its rank.")
    assert on_emoji.judge(records("gate", "domainnet")).verdict == "not run here"
    assert "(DomainNet)" in on_emoji.published


def test_the_row_of_domainnet_points_to_the_next_one():
    finding = PAIR[0].judge(records("gate", "emoji", 3))
    assert finding.verdict == "not run here"
    assert "the next row has the emoji stand-in (`gate`, 3 records)" in finding.why
    assert "nor one of `gate` on the emoji stand-in" in PAIR[0].judge(records("active", "emoji")).why
    rows = judged(CLAIMS, {})
    for row, following in pairwise(rows):
        if row["name"].endswith("_on_domainnet"):
            assert following["name"] == row["name"].replace("_on_domainnet", "_on_emoji")


@pytest.mark.parametrize("profile", ["cpu", "paper"])
def test_one_ledger_holds_domainnet_of_profile_paper_and_the_stand_in_of_profile_cpu(profile, tmp_path):
    made = {
        "active": test_tables_active.records(seeds=range(4)),
        "gate": test_tables_gate.updates(4, error_change=lambda h, k: h),
    }
    for name, own in made.items():
        paper = [{**r, "run_id": f"paper {i}", "profile": "paper", "config": {**r["config"], "data": "domainnet"}}
                 for i, r in enumerate(own)]  # fmt: skip
        tried = [{**r, "run_id": f"tried {i}", "profile": "smoke"} for i, r in enumerate(own)]
        other = [{**r, "run_id": f"other {i}", "profile": "paper"} for i, r in enumerate(own)] * (profile == "cpu")
        named = [{**r, "run_id": f"cpu {i}", "profile": "cpu"} for i, r in enumerate(own)]
        write_records([*named, *paper, *tried, *other], tmp_path / f"{name}.jsonl")
    rows = {row["name"]: row for row in judged(CLAIMS, stored(tmp_path, profile))}
    for name, row in rows.items():
        assert row["verdict"] != "not run here", row
        if name.endswith("_on_domainnet"):
            twin = rows[name.replace("_on_domainnet", "_on_emoji")]
            assert (row["measured"], row["runs"], row["verdict"]) == (twin["measured"], twin["runs"], twin["verdict"])


def test_the_ledger_has_the_claims_of_its_folder_alone():
    assert not {claim.name for claim in PAIR} & {claim.name for claim in all_claims()}


def test_a_statement_about_the_stand_in_alone_says_so():
    claim = on_stand_in("best", "gate", "app:domainnet-gate", "it is best.", published="not compared")(rule)
    assert claim.statement == "On the emoji stand-in: it is best."
    assert claim.judge(records("gate", "emoji")).verdict == "reproduced"
