"""When a rule was last changed, and whether the data that it judges had been seen by then.

The rules stand in YAML files, a claim's name above each. A rule's commit is found by walking back from HEAD over the
commits that touched their folder, from each to a parent that has a rule of that name with the same digest: where no
parent has, the rule became what it is. So prose, a new place in another file, or code that moves change nothing, and a
merge leads back to the branch on which the rule was written. History was preferred to a lock file because a lock can
be written by hand at any time, and a commit cannot name itself; where history is missing (a shallow clone, an archive)
the committed ledger, which holds the digest beside the commit, stands in, and what it does not know stays empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..analysis.replications import replication_title
from ..engine.errors import UserError
from ..engine.records import ROOT, git, parse_records
from .ledger import RULES, Claim, entries, entry_name
from .rule import parse_rule

FOLDER = RULES.relative_to(ROOT).as_posix()
SEEN = RULES.parent / "seen.yaml"
"""Data that had been looked at before any rule was committed, and of which no records were."""


class RuleHistory(NamedTuple):
    """Of one claim."""

    commit: str
    """Full hash; empty where the rule is not committed as it is, or history is missing."""
    data_seen: str
    """Which of the claim's data existed at that commit: ``all``, ``none``, or their titles; empty where unknown."""


def history_of(
    claims: Iterable[Claim], stored: Iterable[Mapping[str, Any]] = (), root: Path = ROOT
) -> dict[str, RuleHistory]:
    """The history of every claim's rule, by the claim's name; ``stored`` are the rows of the committed ledger."""
    if _is_complete(root):
        commits = _rule_commits(root)
        found = [(claim, commits.get((entry_name(claim), claim.rule.digest), "")) for claim in claims]
        return {claim.name: RuleHistory(commit, _data_seen(claim, commit, root)) for claim, commit in found}
    known = {(row["name"], row["rule_digest"]): RuleHistory(row["rule_commit"], row["data_seen"]) for row in stored}
    return {claim.name: known.get((claim.name, claim.rule.digest), RuleHistory("", "")) for claim in claims}


def _git(root: Path, *arguments: str) -> str:
    return git("-C", str(root), *arguments) or ""


def _is_complete(root: Path) -> bool:
    """Whether a folder is a whole git repository, not a part of one, a shallow clone or an archive."""
    top, shallow = _git(root, "rev-parse", "--show-toplevel", "--is-shallow-repository").partition("\n")[::2]
    return bool(top) and Path(top).resolve() == root.resolve() and shallow == "false"


def _rule_commits(root: Path) -> dict[tuple[str, str], str]:
    """The commit at which each rule of HEAD became what it is, by the claim's name and the rule's digest."""
    lines = [line.split() for line in _git(root, "rev-list", "--parents", "HEAD", "--", FOLDER).splitlines()]
    parents = {commit: above for commit, *above in lines}
    digests = {commit: _digests(root, commit) for commit in parents}
    found = {}
    for name, digest in (digests[lines[0][0]] if lines else {}).items():
        commit: str | None = lines[0][0]
        while commit:
            found[name, digest] = commit
            commit = next((p for p in parents[commit] if digests.get(p, {}).get(name) == digest), None)
    return found


def _digests(root: Path, commit: str) -> dict[str, str]:
    listed = _git(root, "ls-tree", "-r", commit, "--", FOLDER).splitlines()
    blobs = [line.split()[2] for line in listed if line.endswith(".yaml")]
    return {name: digest for blob in blobs for name, digest in _digests_of_blob(root, blob).items()}


@cache
def _digests_of_blob(root: Path, blob: str) -> dict[str, str]:
    """Of the rules in one file; one that is written in another way than today's has none."""
    found = {}
    for name, entry in entries(_git(root, "cat-file", "blob", blob)).items():
        try:
            found[name] = parse_rule(name, entry["rule"]).digest
        except (UserError, KeyError, TypeError):
            continue
    return found


def _data_seen(claim: Claim, commit: str, root: Path) -> str:
    experiment = claim.rule.records
    if not experiment or not commit:
        return "no records" if commit else ""
    titles = _titles_at(root, commit, experiment)
    if claim.data == "others":
        looked = {entry["title"] for entry in seen() if entry["experiment"] == experiment}
        return "; ".join(sorted((titles | looked) - {DOMAINNET})) or "none"
    return "all" if (DOMAINNET in titles if claim.data == "domainnet" else titles) else "none"


DOMAINNET = "domainnet"


@cache
def _titles_at(root: Path, commit: str, experiment: str) -> set[str]:
    """What the records of an experiment were of at a commit: replications, DomainNet, or the experiment alone."""
    text = _git(root, "show", f"{commit}:results/records/{experiment}.jsonl")
    configs = [record.get("config", {}) for record in parse_records(text, experiment)]
    return {_title(config) if "data" in config else experiment for config in configs}


def _title(config: dict[str, Any]) -> str:
    return DOMAINNET if config["data"] == DOMAINNET else replication_title(config)


@cache
def seen() -> list[dict[str, str]]:
    """Entries of `SEEN`: an experiment, a replication's title, and what was looked at."""
    return list(yaml.safe_load(SEEN.read_text("utf-8")))
