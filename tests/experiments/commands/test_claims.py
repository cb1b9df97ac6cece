"""The ledger: one full row for each claim, the same bytes each time, and no difference from the committed one."""

import json
import shutil
from collections import Counter

import pytest

from experiments.__main__ import main
from experiments.claims.ledger import VERDICTS, Claim, Finding
from experiments.commands import claims
from experiments.engine.records import RECORDS, write_records

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
        assert list(row) == ["claim", "name", "label", "published", "measured", "runs", "verdict", "why"]
        assert all(str(value).strip() for value in row.values()), row
        assert row["verdict"] in VERDICTS
        assert row["runs"] >= 0


def test_markdown_has_one_line_per_claim_in_the_order_of_the_labels(ledger):
    page, rows = ledger[0], json.loads(ledger[1])
    lines = page.splitlines()
    table = [line for line in lines if line.startswith("| ")]
    assert len(table) == len(rows) + 2
    assert {line.replace("\\|", "").count("|") for line in table} == {8}
    assert table[0] == "| claim | paper's label | published | measured | cases | verdict | why |"
    assert "A case is" in lines[0]
    assert [row["label"] for row in rows] == sorted(row["label"] for row in rows)
    counts = Counter(row["verdict"] for row in rows)
    assert all(f"{counts[verdict]} {verdict}" in lines[0] for verdict in VERDICTS)


def test_the_same_bytes_twice(ledger, tmp_path):
    assert run(tmp_path) == ledger


def test_committed_ledger_is_that_of_the_committed_records(ledger):
    folders = (claims.RESULTS, claims.RESULTS, claims.README.parent)
    assert [(folder / name).read_text() for folder, name in zip(folders, FILES, strict=True)] == ledger


def test_the_readme_has_the_main_claims(ledger):
    shown = ledger[2].split("<!-- headlines:begin -->")[1].split("<!-- headlines:end -->")[0]
    rows = {row["name"]: row for row in json.loads(ledger[1])}
    for name in claims.HEADLINES:
        assert f"| {rows[name]['verdict']} |" in shown
    assert shown.count("\n| ") == len(claims.HEADLINES) + 2


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
    monkeypatch.setattr(claims, "HEADLINES", ())
    monkeypatch.setattr(claims, "README", tmp_path / "README.md")
    (tmp_path / "README.md").write_text(page := "<!-- headlines:begin -->\nold\n<!-- headlines:end -->\n")
    write_records([{"run_id": "a", "profile": "paper"}], tmp_path / "records" / "toy.jsonl")
    paper = ["claims", "--records", str(tmp_path / "records"), "--profile", "paper"]
    with pytest.raises(SystemExit, match="the ledger in results is that of cpu: name a folder for paper by --output"):
        main(paper)
    main([*paper, "--output", str(tmp_path / "paper")])
    assert (tmp_path / "README.md").read_text() == page
    assert (tmp_path / "paper" / "claims.md").read_text().startswith("0 claims")
    main([*paper, "--output", str(tmp_path / "paper"), "--readme", str(tmp_path / "README.md")])
    assert "old" not in (tmp_path / "README.md").read_text()


def test_a_judge_sees_the_records():
    def judge(records):
        return Finding(f"{len(records['toy'])} records", len(records["toy"]), "reproduced", "Counted.")

    claim = Claim("counted", "tab:x", "It counts.", "2", judge)
    (row,) = claims.judged([claim], {"toy": [{}, {}]})
    assert (row["measured"], row["runs"], row["verdict"]) == ("2 records", 2, "reproduced")
    assert claims.summary([row]).startswith("1 claims: 1 reproduced, 0 partly")


def test_the_default_folder_holds_the_records():
    assert "benchmark" in claims.stored(RECORDS, "cpu")
