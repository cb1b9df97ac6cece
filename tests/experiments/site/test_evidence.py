"""What a row of the ledger links to: sections, exhibits, the text of its rule, and commands that can be typed."""

import pytest
import yaml

from experiments.claims.ledger import RULES, all_claims, entries, entry_name
from experiments.commands.claims import left_out
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.site.evidence import SECTIONS, Exhibit, exhibits_of, reruns, rule_texts, section_of

CLAIMS = {claim.name: claim for claim in all_claims()}
EXHIBITS = [
    Exhibit("gate-curves", "gate", False, ""),
    Exhibit("gate-replications", "gate", True, ""),
    Exhibit("gate-tau-main", "gate", False, ""),
    Exhibit("isolation", "isolation", False, ""),
]


def test_every_label_stands_in_one_section():
    labels = [label for entry in yaml.safe_load(SECTIONS.read_text()) for label in entry["labels"]]
    assert len(labels) == len(set(labels))
    for label in {claim.label for claim in CLAIMS.values()} | {row[0] for row in left_out().rows}:
        assert section_of(label)
    assert section_of("tab:gate-tau-main") == "6.4 Deployment gate"
    with pytest.raises(UserError, match="no section holds the label sec:unheard: add it to experiments/site/sections"):
        section_of("sec:unheard")


def test_the_text_of_a_rule_is_its_entry_and_no_more():
    stored = {name: entry for path in RULES.glob("*.yaml") for name, entry in entries(path.read_text()).items()}
    assert {name: entries(rule.text)[name] for name, rule in rule_texts().items()} == stored
    assert all(len(entries(rule.text)) == 1 for rule in rule_texts().values())
    assert all(entry_name(claim) in stored for claim in CLAIMS.values())


def test_the_table_of_a_label_comes_first_and_other_data_start_with_the_replications():
    own = exhibits_of(CLAIMS["gate_rank_correlation_on_domainnet"], EXHIBITS)
    assert own == ["gate-tau-main", "gate-curves", "gate-replications"]
    elsewhere = exhibits_of(CLAIMS["gate_label_efficient_on_other_data"], EXHIBITS)
    assert elsewhere == ["gate-replications", "gate-curves", "gate-tau-main"]
    assert exhibits_of(CLAIMS["msp_orientation"], EXHIBITS) == ["gate-tau-main"]
    assert exhibits_of(CLAIMS["loss_bound"], EXHIBITS) == []


def test_commands_name_data_and_variants():
    records = [{"config": {"data": name}} for name in ("pacs", "emoji", "emoji")]
    claim = CLAIMS["gate_rank_correlation_on_other_data"]
    assert reruns(claim, records, ["pacs", "cpu"]) == [
        "python -m experiments data emoji",
        "python -m experiments data pacs",
        "python -m experiments run gate --launcher local",
        "python -m experiments run gate config=pacs --launcher local",
        "python -m experiments collect",
        "python -m experiments claims",
    ]
    theirs = reruns(CLAIMS["gate_rank_correlation_on_domainnet"], records, ["cpu"])
    assert theirs[:2] == [
        "python -m experiments data domainnet",
        "python -m experiments run gate config=paper --launcher local",
    ]
    assert reruns(CLAIMS["loss_bound"], [], []) == ["python -m experiments claims"]


@pytest.mark.parametrize("experiment", sorted({claim.rule.records for claim in CLAIMS.values()} - {"", "benchmark"}))
def test_every_run_that_is_named_expands_to_a_grid(experiment):
    for claim in CLAIMS.values():
        if claim.rule.records == experiment:
            for line in reruns(claim, [], ["cpu"]):
                words = line.split()[3:]
                if words[0] == "run":
                    assert expand(words[1], [word for word in words[2:] if "=" in word])
