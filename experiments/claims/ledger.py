"""The claims ledger: a statement with its rule (`rule`, data in ``rules/*.yaml``) and what measures its quantity here.

A file of this folder holds measures, functions of one experiment's records named like the claim, or like ``measure``
in its rule. A claim about DomainNet, whose images are not part of this repository, has two rows: one on its records
once they exist, one on all other data sets, which says in how many of them the claim holds and never speaks for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import yaml

from ..analysis.replications import replications
from ..engine.errors import UserError
from ..engine.records import Record
from ..engine.registry import submodules
from .rule import ClaimRule, Values, Verdict, parse_rule

RULES = Path(__file__).parent / "rules"

Whose = Literal["paper", "ours", "other data"]
WHOSE: tuple[Whose, ...] = get_args(Whose)
DATA = ("domainnet", "others")
"""``domainnet``: a claim about it, beside the same on all others; ``others``: about these alone."""

Found = TypeVar("Found", bound=Sized)
Records = Mapping[str, list[Record]]
"""The stored records of every experiment, by its name; an experiment that was not run has none."""

BENCHMARK = "`python -m experiments benchmark`"
"""The one experiment with a command of its own, which stores its record itself."""


class Measurement(NamedTuple):
    """What the records say about the quantity of a rule."""

    text: str
    """Our number with its interval, and its unit."""
    cases: int
    """How many (pairs, rounds, points, draws) stand behind it; 0 for arithmetic on the paper's own numbers."""
    values: Values
    """By the names that the rule's conditions have for them."""
    note: str = ""
    """What else the records say, in one sentence."""


class Finding(NamedTuple):
    """A claim's verdict, and why."""

    measured: str
    cases: int
    verdict: Verdict
    why: str
    replications: tuple[Replication, ...] = ()
    """Of a claim on other data: each of them."""


class Replication(NamedTuple):
    """One data set, pair of domains and backbone."""

    title: str
    measured: str
    cases: int
    verdict: Verdict


Measure = Callable[..., Measurement]
_MEASURES: dict[str, Measure] = {}


class LackingError(Exception):
    """Raised by a measure: the part of the grid that its claim is about is not in the records."""

    def __init__(self, what: str, measured: str = "no records") -> None:
        super().__init__(what)
        self.measured = measured


def present(found: Found, what: str) -> Found:
    """What was found, where that is anything.

    Raises:
        LackingError: where it is empty, with ``what`` the records hold none of; the claim was then not run here.
    """
    if not len(found):
        raise LackingError(what)
    return found


def measure(read: Callable[[list[Record]], Any] = list, what: str = "") -> Callable[[Measure], Measure]:
    """Register a measure under its name: a function of what is read from one experiment's records, and of options.

    Where ``what`` is given, nothing read means that the records hold none of it.
    """

    def register(function: Measure) -> Measure:
        @functools.wraps(function)
        def of_records(records: list[Record], **options: Any) -> Measurement:
            found = read(records)
            return function(present(found, what) if what else found, **options)

        return _registered(of_records)

    return register


def arithmetic(function: Measure) -> Measure:
    """Register a measure that needs no records: the paper's own numbers, or draws of its own."""

    @functools.wraps(function)
    def of_nothing(_: list[Record], **options: Any) -> Measurement:
        return function(**options)

    return _registered(of_nothing)


def _registered(function: Measure) -> Measure:
    name = function.__name__
    if name in _MEASURES:
        raise ValueError(f"two measures are named {name}: name one of the functions differently")
    return _MEASURES.setdefault(name, function)


@dataclass(frozen=True)
class Claim:
    """A statement, where it stands, whose it is, and how records decide on it."""

    name: str
    label: str
    """The paper's own label of the section, table or equation."""
    statement: str
    published: str
    whose: Whose
    rule: ClaimRule
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Prose by verdict, ``always`` for all."""
    disclosed: str = ""
    """What a reader must know about how the rule came about."""
    data: str = ""
    """Of `DATA`, or nothing where records have no data set."""

    def judge(self, records: Records, **options: Any) -> Finding:
        """The verdict on the records of its experiment; ``options`` replace those of the rule, to ask what if."""
        own = records.get(self.rule.records, [])
        rule = replace(self.rule, options={**self.rule.options, **options})
        if self.data == "domainnet":
            theirs = [record for record in own if record["config"]["data"] == "domainnet"]
            return self._found(rule, theirs) if theirs else _no_domainnet(self.rule.records)
        if self.data == "others":
            return self._on_others(rule, own)
        return self._found(rule, own) if own or not rule.records else not_run(rule.records)

    def _found(self, rule: ClaimRule, own: list[Record]) -> Finding:
        try:
            measured = _MEASURES[rule.measure](own, **rule.options)
        except LackingError as lacking:
            return unfinished(rule.records, str(lacking), lacking.measured)
        verdict = rule.verdict(measured.values)
        if self.whose == "other data" and verdict == "not reproduced":
            verdict = "does not transfer"
        return Finding(measured.text, measured.cases, verdict, self._why(verdict, measured.note))

    def _on_others(self, rule: ClaimRule, own: list[Record]) -> Finding:
        groups = replications([record for record in own if record["config"]["data"] != "domainnet"])
        if not groups:
            return not_run(rule.records)
        found = {title: self._found(rule, part) for title, part in groups.items()}
        if len(found) == 1:
            ((title, only),) = found.items()
            one = Replication(title, only.measured, only.cases, only.verdict)
            return only._replace(measured=f"{title}: {only.measured}", replications=(one,))
        each = tuple(Replication(title, f.measured, f.cases, f.verdict) for title, f in found.items())
        counts = {verdict: [r.title for r in each if r.verdict == verdict] for verdict in {r.verdict for r in each}}
        listed = "; ".join(f"{r.title}: {r.measured} ({r.verdict})" for r in each)
        return Finding(
            measured=f"holds in {len(counts.get('reproduced', ()))} of {len(each)}: {listed}",
            cases=sum(r.cases for r in each),
            verdict=pooled(tuple(r.verdict for r in each)),
            why=self._why("", ""),
            replications=each,
        )

    def _why(self, verdict: str, note: str) -> str:
        said = self.reasons.get(verdict) or self.reasons.get("otherwise" if verdict == self.rule.otherwise else "", "")
        parts = [said, note, self.reasons.get("always", ""), self.disclosed]
        return " ".join(part for part in parts if part) or f"{self.rule.in_words().capitalize()}."


def pooled(verdicts: Sequence[Verdict]) -> Verdict:
    """Of several replications: theirs where they agree, in part where it holds anywhere, else undecided.

    >>> pooled(("reproduced", "does not transfer")), pooled(("undecided", "does not transfer", "not run here"))
    ('partly', 'undecided')
    """
    run = {verdict for verdict in verdicts if verdict != "not run here"}
    if len(run) < 2:
        return next(iter(run), "not run here")
    return "partly" if run & {"reproduced", "partly"} else "undecided"


def not_run(experiment: str) -> Finding:
    """The finding of a claim whose records do not exist."""
    command = BENCHMARK if experiment == "benchmark" else f"`python -m experiments run {experiment}`, then `collect`"
    return Finding("no records", 0, "not run here", f"no records of {experiment}: {command}")


def unfinished(experiment: str, what: str, measured: str = "no records") -> Finding:
    """The finding of a claim about a part of the grid that the records lack."""
    remedy = BENCHMARK if experiment == "benchmark" else f"`python -m experiments run {experiment}`, then `collect`"
    why = f"the stored records of {experiment} hold no {what}: {remedy}"
    return Finding(measured, 0, "not run here", why)


def _no_domainnet(experiment: str) -> Finding:
    return Finding(
        measured="no records on DomainNet",
        cases=0,
        verdict="not run here",
        why=f"DomainNet's images are not part of this repository; the next row has `{experiment}` on other data sets.",
    )


def all_claims(*files: str) -> list[Claim]:
    """The claims of all files of ``rules/``, or of those that are named.

    Raises:
        UserError: for a claim that stands in two files, or one that is not written as it should be.
    """
    submodules("experiments.claims")
    paths = sorted(RULES.glob("*.yaml"))
    found = [claim for path in paths for claim in read_claims(path.read_text("utf-8"), path.name)]
    names = [claim.name for claim in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"claims stand twice in {RULES}: {', '.join(sorted(twice))}; delete one of each")
    wanted = {name for path in paths if not files or path.stem in files for name in entries(path.read_text("utf-8"))}
    return [claim for claim in found if entry_name(claim) in wanted]


def entry_name(claim: Claim) -> str:
    """The name that a claim's rule has in its file; a row on DomainNet and one on other data share it."""
    return claim.name.removesuffix("_on_domainnet").removesuffix("_on_other_data")


def entries(text: str) -> dict[str, Any]:
    """What a file of rules holds, by the names of claims."""
    return yaml.load(text, Loader=_LOADER) or {}


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FIELDS = {"label", "claim", "published", "whose", "data", "why", "disclosed", "rule"}


def read_claims(text: str, name: str) -> list[Claim]:
    """The claims of one file of rules, ``name`` that of the file."""
    return [claim for key, entry in entries(text).items() for claim in _claims(str(key), entry, name)]


def _claims(name: str, entry: Mapping[str, Any], file: str) -> list[Claim]:
    if unknown := set(entry) - FIELDS:
        raise UserError(f"{file}, {name}: {', '.join(sorted(unknown))} is none of {', '.join(sorted(FIELDS))}")
    if lacking := {"label", "claim", "published", "whose", "rule"} - set(entry):
        raise UserError(f"{file}, {name}: {', '.join(sorted(lacking))} is missing")
    rule = parse_rule(name, entry["rule"])
    if rule.measure not in _MEASURES:
        raise UserError(f"{file}, {name}: no measure is named {rule.measure}; experiments/claims/*.py has them")
    if entry["whose"] not in WHOSE:
        raise UserError(f"{file}, {name}: whose must be one of {', '.join(WHOSE)}, got {entry['whose']!r}")
    why, data = entry.get("why", {}), entry.get("data", "")
    own = Claim(
        name,
        str(entry["label"]),
        str(entry["claim"]),
        str(entry["published"]),
        entry["whose"],
        rule,
        {"always": why} if isinstance(why, str) else why,
        str(entry.get("disclosed", "")),
        data,
    )
    if data == "domainnet":
        elsewhere = replace(
            own,
            name=f"{name}_on_other_data",
            statement=f"On other data: {own.statement}",
            published=f"{own.published} (DomainNet)",
            whose="other data",
            data="others",
        )
        return [replace(own, name=f"{name}_on_domainnet"), elsewhere]
    return [own]
