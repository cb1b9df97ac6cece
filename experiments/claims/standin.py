"""A claim about DomainNet, whose images are not part of this repository, beside the same claim on the emoji stand-in.

One rule judges both: records with ``data: domainnet`` once they exist, and those with ``data: emoji``. The row of
DomainNet says that it was not run here and points to the row of the stand-in, which never speaks for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from ..engine.records import Record
from .ledger import Claim, Finding, Records, claim, not_run

EXPERIMENTS = ("active", "gate")
"""The studies of images: DomainNet is their data in profile paper, the stand-in in profile cpu."""
PROFILES = ("cpu", "paper")

Rule = Callable[[list[Record]], Finding]
"""Judges the records of one experiment on one data set; there is at least one."""


def on_both(
    name: str, experiment: str, label: str, statement: str, *, published: str
) -> Callable[[Rule], tuple[Claim, Claim]]:
    """The claim on DomainNet and on the stand-in, named so that the ledger sets them side by side."""

    def register(rule: Rule) -> tuple[Claim, Claim]:
        @claim(label, statement, published=published, name=f"{name}_on_domainnet")
        @functools.wraps(rule)
        def on_domainnet(records: Records) -> Finding:
            own = records_of(records, experiment, "domainnet")
            return rule(own) if own else _missing(experiment, len(records_of(records, experiment, "emoji")))

        stand_in = on_stand_in(name, experiment, label, statement, published=f"{published} (DomainNet)")
        return on_domainnet, stand_in(rule)

    return register


def on_stand_in(name: str, experiment: str, label: str, statement: str, *, published: str) -> Callable[[Rule], Claim]:
    """A statement about the emoji stand-in alone."""

    def register(rule: Rule) -> Claim:
        @claim(label, f"On the emoji stand-in: {statement}", published=published, name=f"{name}_on_emoji")
        @functools.wraps(rule)
        def on_emoji(records: Records) -> Finding:
            own = records_of(records, experiment, "emoji")
            return rule(own) if own else not_run(experiment)

        return on_emoji

    return register


def records_of(records: Records, experiment: str, data: str) -> list[Record]:
    """The records of an experiment on one data set."""
    return [record for record in records.get(experiment, []) if record["config"].get("data") == data]


def of_either(records: list[Record], profile: str) -> list[Record]:
    """The records of a profile, and of the other one those on data sets that this one was not run on."""
    own = [record for record in records if record["profile"] == profile]
    present = {record["config"]["data"] for record in own}
    others = [record for record in records if record["profile"] in PROFILES and record["profile"] != profile]
    return own + [record for record in others if record["config"]["data"] not in present]


def _missing(experiment: str, stand_in: int) -> Finding:
    beside = f"; the next row has the emoji stand-in (`{experiment}`, {stand_in} records)."
    return Finding(
        measured="no records on DomainNet",
        runs=0,
        verdict="not run here",
        why="DomainNet's images are not part of this repository and no run on them is recorded"
        + (beside if stand_in else f", nor one of `{experiment}` on the emoji stand-in."),
    )
