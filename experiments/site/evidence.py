"""What stands behind a row of the ledger: its section of the paper, tables and figures, its rule, how to rerun it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ..claims.ledger import RULES, Claim, entry_name
from ..engine.errors import UserError
from ..engine.records import PROFILE, ROOT, Record

SECTIONS = Path(__file__).with_name("sections.yaml")
DOMAINNET = "paper"
"""The variant that runs a case study on DomainNet."""
_CALL = "python -m experiments"


class Exhibit(NamedTuple):
    """A table or a figure, by what it is made of."""

    label: str
    experiment: str
    across: bool
    caption: str


class RuleText(NamedTuple):
    """A claim's entry as its file has it."""

    file: str
    text: str


class LedgerEntry(NamedTuple):
    """A row of the ledger with everything that it links to."""

    row: Mapping[str, Any]
    experiment: str
    """Whose records decide; empty for arithmetic on the paper's own numbers."""
    section: str
    tables: list[str]
    figures: list[str]
    rule: RuleText
    commands: list[str]


@cache
def sections() -> dict[str, str]:
    """The section that holds each of the paper's labels, in the order of the paper."""
    listed = yaml.safe_load(SECTIONS.read_text("utf-8"))
    return {label: str(entry["section"]) for entry in listed for label in entry["labels"]}


def section_of(label: str) -> str:
    """The section that holds a label.

    Raises:
        UserError: for a label that stands in none.
    """
    if label not in sections():
        raise UserError(f"no section holds the label {label}: add it to {SECTIONS.relative_to(ROOT)}")
    return sections()[label]


@cache
def rule_texts(folder: Path = RULES) -> dict[str, RuleText]:
    """Every entry of the files of rules, by its name."""
    return {
        found[1]: RuleText(path.name, found[0].rstrip())
        for path in sorted(folder.glob("*.yaml"))
        for found in re.finditer(r"^(\w+):\n(?:(?:[ ].*)?\n)+", path.read_text("utf-8") + "\n", flags=re.MULTILINE)
    }


def exhibits_of(claim: Claim, exhibits: Iterable[Exhibit]) -> list[str]:
    """The tables or figures a claim can be read off: that of its label first, then those of its experiment.

    For a claim on other data those that go across data sets lead; a claim about the paper's own numbers has its label's
    alone.
    """
    own = claim.label.removeprefix("tab:").removesuffix("-app")
    shown = [exhibit for exhibit in exhibits if exhibit.label == own or exhibit.experiment == claim.rule.records]
    ordered = sorted(shown, key=lambda e: (e.label != own, e.across != (claim.data == "others"), e.label))
    return [exhibit.label for exhibit in ordered]


def reruns(claim: Claim, records: Sequence[Record], variants: Iterable[str]) -> list[str]:
    """The commands that compute what a claim is judged on, and judge it.

    Args:
        records: of the claim's experiment, for the data sets that they need.
        variants: of its configs that the records come from.
    """
    experiment = claim.rule.records
    if not experiment:
        return [f"{_CALL} claims"]
    if experiment == "benchmark":
        return [f"{_CALL} benchmark", f"{_CALL} claims"]
    if claim.data == "domainnet":
        data, chosen = ["domainnet"], [DOMAINNET]
    else:
        data = sorted({str(record["config"]["data"]) for record in records if record["config"].get("data")})
        chosen = sorted(variants, key=lambda variant: (variant != PROFILE, variant)) or [PROFILE]
    runs = [f"run {experiment}" + (f" config={name}" if name != PROFILE else "") for name in chosen]
    steps = [*(f"data {name}" for name in data), *(f"{run} --launcher local" for run in runs), "collect", "claims"]
    return [f"{_CALL} {step}" for step in steps]


def entries_of(
    rows: Iterable[Mapping[str, Any]],
    claims: Iterable[Claim],
    tables: Sequence[Exhibit],
    figures: Sequence[Exhibit],
    records: Mapping[str, list[Record]],
    variants: Mapping[str, Sequence[str]],
) -> list[LedgerEntry]:
    """The rows of the ledger in the order of the paper, each with what stands behind it."""
    by_name = {claim.name: claim for claim in claims}
    order = list(dict.fromkeys(sections().values()))
    found = []
    for row in rows:
        claim = by_name[row["name"]]
        own = records.get(claim.rule.records, [])
        found.append(
            LedgerEntry(
                row,
                claim.rule.records,
                section_of(claim.label),
                exhibits_of(claim, tables),
                exhibits_of(claim, figures),
                rule_texts()[entry_name(claim)],
                reruns(claim, own, variants.get(claim.rule.records, ())),
            )
        )
    return sorted(found, key=lambda entry: order.index(entry.section))
