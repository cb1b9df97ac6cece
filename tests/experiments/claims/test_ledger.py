"""Claims on DomainNet and on other data: one rule, two rows, and nothing is claimed without records."""

from itertools import pairwise

import pytest

from experiments.analysis.replications import replication_title
from experiments.claims import ledger
from experiments.claims.history import RuleHistory
from experiments.claims.ledger import Measurement, all_claims, pooled, read_claims
from experiments.claims.rule import Estimated
from experiments.commands.claims import judged, stored, summary
from experiments.engine.errors import UserError
from experiments.engine.records import write_records
from tests.experiments.tables import test_active as test_tables_active
from tests.experiments.tables import test_gate as test_tables_gate

CLAIMS = all_claims("active", "gate")
RULES = """
rank:
  label: app:domainnet-gate
  claim: It ranks.
  published: at least 0.944
  whose: paper
  data: domainnet
  why: {reproduced: By its rank., otherwise: Against its rank., always: Always said.}
  rule:
    records: gate
    measure: mean_rho
    reproduced: [[rho, at least, 0.9]]
    partly: [[rho, above, 0.5]]
"""


@pytest.fixture
def pair(monkeypatch):
    """The claim of `RULES` on DomainNet and on other data; its measure is the mean of stored numbers +- 0.05."""
    monkeypatch.setattr(ledger, "_MEASURES", {**ledger._MEASURES})

    @ledger.measure()
    def mean_rho(records):
        rho = sum(r["metrics"]["rho"] for r in records) / len(records)
        return Measurement(f"rho = {rho:g}", len(records), {"rho": Estimated(rho, rho - 0.05, rho + 0.05)}, "A note.")

    return read_claims(RULES, "rules.yaml")


def record(data, rho=0.96, **config):
    return {"config": {"data": data, **config}, "metrics": {"rho": rho}}


def judge(claim, *records):
    return claim.judge({"gate": list(records)})


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_without_records_it_was_not_run(claim):
    finding = claim.judge({})
    assert finding.verdict == "not run here"
    assert finding.cases == 0


def test_one_rule_judges_each_data_set_on_its_own_records(pair):
    on_domainnet, elsewhere = pair
    assert judge(on_domainnet, record("domainnet"), record("emoji", 0.1)).verdict == "reproduced"
    assert judge(elsewhere, record("domainnet"), record("emoji", 0.6)).verdict == "partly"
    assert judge(elsewhere, record("domainnet")).verdict == "not run here"
    assert (on_domainnet.whose, elsewhere.whose) == ("paper", "other data")
    assert "(DomainNet)" in elsewhere.published
    assert elsewhere.rule.digest == on_domainnet.rule.digest


def test_a_failure_on_other_data_does_not_transfer(pair):
    on_domainnet, elsewhere = pair
    assert judge(on_domainnet, record("domainnet", 0.1)).verdict == "not reproduced"
    assert judge(elsewhere, record("emoji", 0.1)).verdict == "does not transfer"
    assert judge(elsewhere, record("emoji", 0.88)).verdict == "undecided"


def test_a_row_on_other_data_says_in_how_many_replications_it_holds(pair):
    _, elsewhere = pair
    found = judge(
        elsewhere,
        record("pacs", 0.96, source="photo", target="sketch", arch="lite0"),
        record("pacs", 0.1, source="photo", target="sketch", arch="inception"),
        record("pacs", 0.88, source="art", target="sketch", arch="lite0"),
        record("acs", 0.3),
    )
    assert found.measured.startswith("holds in 1 of 4: acs: rho = 0.3 (does not transfer); pacs, art to sketch, lite0:")
    assert [r.verdict for r in found.replications] == [
        "does not transfer", "undecided", "does not transfer", "reproduced",
    ]  # fmt: skip
    assert found.verdict == "partly"
    assert found.cases == 4


def test_verdicts_of_replications_are_pooled_without_a_majority_vote():
    assert pooled(["reproduced"] * 3) == "reproduced"
    assert pooled(["does not transfer"] * 2) == "does not transfer"
    assert pooled(["reproduced", "does not transfer", "does not transfer"]) == "partly"
    assert pooled(["reproduced", "undecided"]) == "partly"
    assert pooled(["undecided", "does not transfer"]) == "undecided"
    assert pooled(["not run here", "reproduced"]) == "reproduced"
    assert pooled(["not run here"]) == "not run here"


def test_a_replication_is_named_by_what_its_config_has():
    assert replication_title({"data": "acs"}) == "acs"
    assert replication_title({"data": "emoji", "source": "a", "target": "b", "arch": None}) == "emoji, a to b"


def test_reasons_are_those_of_the_verdict(pair):
    on_domainnet, _ = pair
    assert judge(on_domainnet, record("domainnet")).why == "By its rank. A note. Always said."
    assert judge(on_domainnet, record("domainnet", 0.1)).why == "Against its rank. A note. Always said."
    assert judge(on_domainnet, record("domainnet", 0.7)).why == "A note. Always said."
    assert "the next row has `gate` on other data sets" in judge(on_domainnet).why


def test_every_row_of_domainnet_is_followed_by_that_on_other_data():
    rows = judged(CLAIMS, {}, {claim.name: RuleHistory("", "") for claim in CLAIMS})
    on_domainnet = [row["name"] for row in rows if row["name"].endswith("_on_domainnet")]
    assert len(on_domainnet) >= 20
    for row, following in pairwise(rows):
        if row["name"] in on_domainnet:
            assert following["name"] == row["name"].replace("_on_domainnet", "_on_other_data")
            assert following["claim"] == f"On other data: {row['claim']}"


def test_claims_are_counted_by_whose_they_are():
    told = ("paper", "reproduced"), ("paper", "partly"), ("ours", "partly"), ("other data", "undecided")
    rows = [{"whose": whose, "verdict": verdict} for whose, verdict in told]
    assert summary(rows) == (
        "Paper: 2 claims (1 reproduced, 1 partly). Ours: 1 claims (1 partly). Other data: 1 claims (1 undecided)."
    )


@pytest.mark.parametrize("profile", ["cpu", "paper"])
def test_one_ledger_holds_domainnet_of_profile_paper_and_other_data_of_profile_cpu(profile, tmp_path):
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
    unknown = {claim.name: RuleHistory("", "") for claim in CLAIMS}
    rows = {row["name"]: row for row in judged(CLAIMS, stored(tmp_path, profile), unknown)}
    for name, row in rows.items():
        assert row["verdict"] != "not run here" or name == "gate_gradients_in_the_image", row
        if name.endswith("_on_domainnet"):
            twin = rows[name.replace("_on_domainnet", "_on_other_data")]
            assert (f"emoji: {row['measured']}", row["cases"]) == (twin["measured"], twin["cases"])
            assert twin["verdict"] == {"not reproduced": "does not transfer"}.get(row["verdict"], row["verdict"])


@pytest.mark.parametrize(("old", "new", "message"), [
    ("measure: mean_rho", "measure: nothing", "no measure is named nothing"),
    ("whose: paper", "whose: mine", "whose must be one of paper, ours, other data"),
    ("label: app:domainnet-gate", "lable: app", "lable is none of"),
    ("  published: at least 0.944\n", "", "published is missing"),
])  # fmt: skip
def test_an_entry_that_is_no_claim_is_refused_by_name(pair, old, new, message):
    with pytest.raises(UserError, match=f"rules.yaml, rank: .*{message}"):
        read_claims(RULES.replace(old, new), "rules.yaml")


def test_claims_of_the_folder_are_read_once(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "RULES", tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(RULES.replace("mean_rho", "gate_which_msp"))
    with pytest.raises(UserError, match=r"stand twice in .*: rank_on_domainnet, rank_on_other_data; delete one"):
        all_claims()
