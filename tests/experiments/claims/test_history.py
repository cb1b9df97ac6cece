"""The commit at which a rule last changed, in repositories made for it: moves, prose, merges, and no history at all."""

import json
import subprocess

import pytest

from experiments.claims import history
from experiments.claims.history import FOLDER, RuleHistory, history_of
from experiments.claims.ledger import Claim
from experiments.claims.rule import parse_rule

ONE = {"records": "gate", "reproduced": [["rho", "at least", 0.9]]}
TWO = {"records": "gate", "reproduced": [["rho", "at least", 0.8]]}


class Repository:
    """A git repository with files of rules and records."""

    def __init__(self, root):
        self.root = root
        self.git("init", "--quiet", "--initial-branch=main")
        self.git("config", "user.name", "nobody")
        self.git("config", "user.email", "nobody@example.com")

    def git(self, *arguments):
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def rules(self, file="a", claim="Prose.", **rules):
        path = self.root / FOLDER / f"{file}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({name: {"claim": claim, "rule": rule} for name, rule in rules.items()}))

    def records(self, *configs, experiment="gate"):
        path = self.root / "results" / "records" / f"{experiment}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"run_id": str(number), "config": config}) for number, config in enumerate(configs))
        path.write_text("".join(f"{line}\n" for line in lines))

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "step")
        return self.git("rev-parse", "HEAD")

    def history(self, rule=ONE, name="first", data="", stored=()):
        claim = Claim(name, "tab:x", "It holds.", "1", "paper", parse_rule(name, rule), data=data)
        return history_of([claim], stored, self.root)[name]


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_the_commit_is_that_of_the_last_change_of_the_rule_itself(repository):
    repository.rules(first=TWO)
    repository.commit()
    repository.rules(first=ONE)
    changed = repository.commit()
    repository.rules(first=ONE, second=TWO, claim="Other prose.")
    later = repository.commit()
    repository.rules(file="a", second=TWO)
    repository.rules(file="b", first=dict(reversed(ONE.items())))  # moved to another file, its keys turned round
    repository.commit()
    assert repository.history().commit == changed
    assert repository.history(TWO, "second").commit == later
    assert repository.history(TWO).commit == ""  # what first was before is no rule of today


def test_a_rule_that_came_back_changed_when_it_came_back(repository):
    repository.rules(first=ONE)
    repository.commit()
    repository.rules(first=TWO)
    repository.commit()
    repository.rules(first=ONE)
    assert repository.history().commit == ""  # not committed as it is
    again = repository.commit()
    assert repository.history().commit == again


def test_a_merge_leads_back_to_the_branch_on_which_the_rule_was_written(repository):
    repository.rules(second=TWO)
    base = repository.commit()
    repository.git("switch", "--quiet", "--create", "side")
    repository.rules(file="b", first=ONE)
    written = repository.commit()
    repository.git("switch", "--quiet", "main")
    repository.rules(second=TWO, third=TWO)  # main goes on and knows nothing of it
    repository.commit()
    repository.git("merge", "--quiet", "--no-edit", "side")
    assert repository.history().commit == written
    assert repository.history(TWO, "second").commit == base


def test_data_that_existed_at_the_rules_commit_are_named(repository, monkeypatch):
    emoji, pacs = ({"data": name, "source": "real", "target": "sketch", "arch": "a"} for name in ("emoji", "pacs"))
    repository.rules(first=TWO)
    repository.commit()
    assert repository.history(TWO).data_seen == "none"
    repository.records(emoji)
    repository.rules(first=ONE)
    repository.commit()
    repository.records(emoji, pacs, {"data": "domainnet"})
    repository.commit()
    monkeypatch.setattr(history, "seen", lambda: [])
    assert repository.history(data="others").data_seen == "emoji, real to sketch, a"
    assert repository.history(data="domainnet").data_seen == "none"
    assert repository.history().data_seen == "all"
    monkeypatch.setattr(history, "seen", lambda: [{"experiment": "gate", "title": "acs", "what": "a glance"}])
    assert repository.history(data="others").data_seen == "acs; emoji, real to sketch, a"


def test_a_rule_without_records_has_no_data_to_see(repository):
    bare = {"reproduced": [["rho", "at least", 0.9]]}
    repository.rules(first=bare)
    made = repository.commit()
    assert repository.history(bare) == RuleHistory(made, "no records")


def test_a_file_that_was_no_rule_yet_breaks_nothing(repository):
    repository.rules(first={"older": "form"})
    repository.commit()
    repository.rules(first=ONE)
    made = repository.commit()
    assert repository.history().commit == made


def test_without_history_the_committed_ledger_stands_in(repository, tmp_path_factory):
    repository.rules(first=ONE)
    repository.commit()
    repository.rules(first=ONE, second=TWO)
    repository.commit()
    shallow = tmp_path_factory.mktemp("shallow")
    repository.git("clone", "--quiet", "--depth", "1", f"file://{repository.root}", str(shallow / "clone"))
    digest = parse_rule("first", ONE).digest
    row = {"name": "first", "rule_digest": digest, "rule_commit": "abc", "data_seen": "all"}
    claim = Claim("first", "tab:x", "It holds.", "1", "paper", parse_rule("first", ONE))
    other = Claim("first", "tab:x", "It holds.", "1", "paper", parse_rule("first", TWO))
    inside = repository.root / FOLDER  # a part of a repository has no history of its own either
    for place in (shallow / "clone", shallow, inside):
        assert history_of([claim], [row], place) == {"first": RuleHistory("abc", "all")}
        assert history_of([other], [row], place) == {"first": RuleHistory("", "")}
        assert history_of([claim], (), place) == {"first": RuleHistory("", "")}


def test_what_had_been_looked_at_is_listed_in_full():
    for entry in history.seen():
        assert set(entry) == {"experiment", "title", "what"}
    assert "pacs, photo to sketch, tf_efficientnet_lite0" in {entry["title"] for entry in history.seen()}
