"""The ledger: one full row for each claim, the same bytes each time, and no difference from the committed one."""

import json
import re
import shutil
from collections import Counter

import pytest

from experiments.__main__ import main
from experiments.claims.ledger import Claim
from experiments.claims.rule import VERDICTS, parse_rule
from experiments.commands import claims
from experiments.engine.records import RECORDS, write_records

KEYS = ["claim", "name", "label", "whose", "published", "rule", "measured", "cases", "verdict", "why", "rule_digest",
        "rule_commit", "data_seen", "replications"]  # fmt: skip
FILES = ("claims.md", "claims.json", "README.md")


def run(folder, *options):
    readme = shutil.copy(claims.README, folder)
    main(["claims", "--output", str(folder), "--readme", str(readme), *options])
    return [(folder / name).read_text() for name in FILES]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return run(tmp_path_factory.mktemp("ledger"))


def test_names_are_unique():
    names = Counter(claim.name for claim in claims.all_claims())
    assert [name for name, count in names.items() if count > 1] == []


def test_no_cell_is_empty_and_every_verdict_is_known(ledger):
    rows = json.loads(ledger[1])
    assert len(rows) == len(claims.all_claims())
    for row in rows:
        assert list(row) == KEYS
        assert all(str(row[key]).strip() for key in KEYS[:11]), row
        assert row["verdict"] in VERDICTS
        assert row["cases"] >= 0
        assert bool(row["replications"]) <= (row["whose"] != "paper")


def test_markdown_has_one_line_per_claim_in_the_order_of_the_labels(ledger):
    page, rows = ledger[0], json.loads(ledger[1])
    lines = page.splitlines()
    table = [line for line in lines if line.startswith("| ")][: len(rows) + 2]
    assert {line.replace("\\|", "").count("|") for line in table} == {11}
    assert table[0] == (
        "| claim | paper's label | whose | published | measured | cases | verdict | why | rule | fixed at |"
    )
    assert "A case is" in lines[0]
    assert [row["label"] for row in rows] == sorted(row["label"] for row in rows)
    counts = Counter((row["whose"], row["verdict"]) for row in rows)
    for (whose, verdict), count in counts.items():
        assert f"{count} {verdict}" in lines[0].split(f"{whose.capitalize()}: ")[1].split(").")[0]


def test_what_is_left_out_stands_below_with_its_reason(ledger):
    page = ledger[0].split("Left out: ")[1]
    assert "| paper's label | says | why it is left out |" in page
    for label, says, why in claims.left_out().rows:
        assert f"| {label} | {says} | {why} |" in page
        assert says.endswith(".")
        assert why.endswith(".")


def test_the_same_bytes_twice(ledger, tmp_path):
    assert run(tmp_path) == ledger


def test_committed_ledger_is_that_of_the_committed_records(ledger):
    """But for the commits of rules, which a ledger that is committed together with a rule cannot know yet."""
    committed, found = json.loads((claims.RESULTS / "claims.json").read_text()), json.loads(ledger[1])
    told = [{**row, **{key: known[key] for key in ("rule_commit", "data_seen")}}
            for row, known in zip(found, committed, strict=True)]  # fmt: skip
    assert told == committed
    assert claims.page(told) == (claims.RESULTS / "claims.md").read_text()
    assert ledger[2] == claims.README.read_text()


def test_committed_commits_of_rules_are_those_of_history(ledger):
    for known, row in zip(claims.committed_rows(), json.loads(ledger[1]), strict=True):
        if known["rule_commit"] and row["rule_commit"]:
            assert (known["rule_commit"], known["data_seen"]) == (row["rule_commit"], row["data_seen"]), row["name"]


def test_the_readme_tells_the_main_claims(ledger):
    """Each line has the numbers and verdict of its row, and a sentence that was written for that verdict."""
    shown = ledger[2].split("<!-- headlines:begin -->")[1].split("<!-- headlines:end -->")[0]
    rows = {row["name"]: row for row in json.loads(ledger[1])}
    lines = [line for line in shown.splitlines() if line.startswith("- ")]
    for line, entry in zip(lines, claims.findings(), strict=True):
        row = rows[entry["claim"]]
        own = [r for r in row["replications"] if r["title"] in entry.get("only", ())]
        assert {r["title"] for r in own} == set(entry.get("only", ())), "each is a replication that exists"
        assert f"*{row['verdict']}*" in line
        assert f"Paper: {row['published']}; " in line
        assert entry["says"] in line
        numbers = set(re.findall(r"\d+\.\d+", line.split("**")[2].split(" Paper: ")[0]))
        assert numbers
        assert numbers <= set(re.findall(r"\d+\.\d+", " ".join([row["why"], *(r["measured"] for r in own or [row])])))
    assert len(lines) == 10
    assert set(claims.HEADLINES) >= {entry["claim"] for entry in claims.findings()}


def test_a_sentence_stands_for_one_verdict_alone():
    replications = [{"title": "a, b", "measured": "x 1; y 2", "verdict": "partly"}, {"title": "c", "verdict": "partly"}]
    row = {"name": "n", "claim": "It is.", "published": "3", "measured": "z 9", "verdict": "undecided", "whose": "ours"}
    entry = {"claim": "n", "if": "partly", "says": "In part", "only": ["a, b"], "parts": [1]}

    def line(row):
        return claims.told([row], [entry]).splitlines()[-1]

    found = line({**row, "replications": replications, "verdict": "partly"})
    assert found == "- **In part:** a, b: y 2. Paper: 3; *partly* over 2 data sets and models."
    assert line({**row, "replications": replications}).startswith("- **It is:** a, b: y 2. ")
    assert line({**row, "replications": []}) == "- **It is:** z 9. Paper: 3; *undecided*."


def test_an_experiment_without_records_is_named_and_nothing_else_changes(tmp_path, ledger):
    (tmp_path / "records").mkdir()
    rows = json.loads(run(tmp_path, "--records", str(tmp_path / "records"))[1])
    speed = next(row for row in rows if row["name"] == "sinkhorn_in_seconds")
    assert speed["verdict"] == "not run here"
    assert speed["why"] == "no records of benchmark: `python -m experiments benchmark`"
    with_arithmetic = [row for row in rows if row["name"] == "loss_bound"]
    assert with_arithmetic == [row for row in json.loads(ledger[1]) if row["name"] == "loss_bound"]


def test_only_the_named_profile_is_judged(tmp_path):
    own, other = ({"run_id": name, "profile": name} for name in ("cpu", "smoke"))
    write_records([own, other], tmp_path / "toy.jsonl")
    write_records([other], tmp_path / "tried.jsonl")
    assert claims.stored(tmp_path, "cpu") == {"toy": [own], "tried": []}
    with pytest.raises(SystemExit, match=r"no records of profile 'paper' \(there are: cpu, smoke\)"):
        main(["claims", "--records", str(tmp_path), "--output", str(tmp_path), "--profile", "paper"])
    with pytest.raises(SystemExit, match="name the folder of the records"):
        main(["claims", "--records", str(tmp_path / "nowhere"), "--output", str(tmp_path)])


def test_another_profile_leaves_the_repository_alone(tmp_path, monkeypatch):
    """Without --output it is refused; with it, README and results stay as they are, unless --readme names a page."""
    monkeypatch.setattr(claims, "all_claims", list)
    monkeypatch.setattr(claims, "findings", list)
    monkeypatch.setattr(claims, "README", tmp_path / "README.md")
    (tmp_path / "README.md").write_text(page := "<!-- headlines:begin -->\nold\n<!-- headlines:end -->\n")
    write_records([{"run_id": "a", "profile": "paper"}], tmp_path / "records" / "toy.jsonl")
    paper = ["claims", "--incomplete", "--records", str(tmp_path / "records"), "--profile", "paper"]
    with pytest.raises(SystemExit, match="the ledger in results is that of cpu: name a folder for paper by --output"):
        main(paper)
    main([*paper, "--output", str(tmp_path / "paper")])
    assert (tmp_path / "README.md").read_text() == page
    assert (tmp_path / "paper" / "claims.md").read_text().startswith("Paper: 0 claims")
    main([*paper, "--output", str(tmp_path / "paper"), "--readme", str(tmp_path / "README.md")])
    assert "old" not in (tmp_path / "README.md").read_text()


def test_a_rule_without_a_commit_is_named(tmp_path, capsys, monkeypatch):
    made = [Claim("rules_alone", "tab:x", "It counts.", "2", "ours", parse_rule("interval_over_seeds", RULE))]
    monkeypatch.setattr(claims, "all_claims", lambda: made)
    monkeypatch.setattr(claims, "findings", list)
    run(tmp_path)
    assert "1 rules have no commit: commit experiments/claims/rules" in capsys.readouterr().out
    (row,) = json.loads((tmp_path / "claims.json").read_text())
    assert (row["rule_commit"], row["data_seen"]) == ("", "")
    assert "| not committed |" in (tmp_path / "claims.md").read_text()


RULE = {"with": {"num_seeds": 2, "draws": 10}, "reproduced": [["coverage", "at least", 0.95]]}


def test_the_page_says_what_existed_when_a_rule_was_fixed():
    row = {"rule_commit": "0123456789", "data_seen": "emoji, a to b; acs"}
    assert claims._fixed_at(row) == "0123456, after emoji, a to b; acs"
    assert claims._fixed_at({**row, "data_seen": "none"}) == "0123456, before any of its data"
    assert claims._fixed_at({**row, "data_seen": "all"}) == "0123456, its data existed"


def test_the_default_folder_holds_the_records():
    assert "benchmark" in claims.stored(RECORDS, "cpu")
