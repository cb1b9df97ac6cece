"""The form of the claims ledger: a claim is one statement of the paper and one function of records that judges it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from ..engine.records import Record
from ..engine.registry import submodules

Verdict = Literal["reproduced", "partly", "not reproduced", "contradicts itself", "not run here"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Found = TypeVar("Found", bound=Sized)
Records = Mapping[str, list[Record]]
"""The stored records of every experiment, by its name; an experiment that was not run has none."""


STABLE = 0.2
"""Relative change below which a term counts as staying where it was."""

BENCHMARK = "`python -m experiments benchmark`"
"""The one experiment with a command of its own, which stores its record itself."""


class Finding(NamedTuple):
    """What the records say about a claim."""

    measured: str
    """Our number with its interval, and its unit."""
    runs: int
    """How many cases (pairs, rounds, points, draws) stand behind it; 0 for arithmetic on the paper's own numbers."""
    verdict: Verdict
    why: str
    """One sentence."""


Judge = Callable[[Records], Finding]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, where it stands, and how records decide on it."""

    name: str
    label: str
    """The paper's own label of the section, table or equation."""
    statement: str
    published: str
    judge: Judge

    @property
    def module(self) -> str:
        """Where its rule stands."""
        return self.judge.__module__


_CLAIMS: dict[str, Claim] = {}


def claim(label: str, statement: str, *, published: str, name: str = "") -> Callable[[Judge], Claim]:
    """Turn a judge into a `Claim`, named like the function unless told, which from then on is part of the ledger."""

    def register(judge: Judge) -> Claim:
        made = Claim(name or judge.__name__, label, statement, published, judge)
        if made.name in _CLAIMS:
            raise ValueError(f"two claims are named {made.name}: name one of the judges differently")
        return _CLAIMS.setdefault(made.name, made)

    return register


def all_claims(*modules: str) -> list[Claim]:
    """The claims of all files in this folder, or of the files that are named."""
    own = {module.__name__ for module in submodules("experiments.claims")}
    wanted = {f"experiments.claims.{name}" for name in modules} or own
    return [made for made in _CLAIMS.values() if made.module in wanted]


def not_run(experiment: str) -> Finding:
    """The finding of a claim whose records do not exist."""
    command = BENCHMARK if experiment == "benchmark" else f"`python -m experiments run {experiment}`, then `collect`"
    return Finding("no records", 0, "not run here", f"no records of {experiment}: {command}")


def unfinished(experiment: str, what: str) -> Finding:
    """The finding of a claim about a part of the grid that the records lack."""
    return Finding(
        measured="no records",
        runs=0,
        verdict="not run here",
        why=(
            f"the stored records of {experiment} hold no {what}: `python -m experiments run {experiment}`, then "
            "`collect`"
        ),
    )


class LackingError(Exception):
    """Raised by a judge: the part of the grid that its claim is about is not in the records."""


def present(found: Found, what: str) -> Found:
    """What was found, where that is anything.

    Raises:
        LackingError: where it is empty, with ``what`` the records hold none of; `needs` turns it into a finding.
    """
    if not len(found):
        raise LackingError(what)
    return found


def needs(
    experiment: str, read: Callable[[list[Record]], Any] = list, what: str = ""
) -> Callable[[Callable[[Any], Finding]], Judge]:
    """A judge of what is read from one experiment's records; where there is nothing, the finding says so."""

    def wrap(judge: Callable[[Any], Finding]) -> Judge:
        @functools.wraps(judge)
        def judge_own(records: Records) -> Finding:
            own = records.get(experiment, [])
            try:
                return judge(present(read(own), what)) if own else not_run(experiment)
            except LackingError as error:
                return unfinished(experiment, str(error))

        return judge_own

    return wrap


def grade(holds: bool, partly: bool) -> Verdict:
    """The verdict of a claim that can hold in full, in part, or not."""
    return "reproduced" if holds else "partly" if partly else "not reproduced"


def first_case(measured: str, runs: int, *cases: tuple[bool, Verdict, str]) -> Finding:
    """The verdict of the first case that applies, and why; the last one always must."""
    verdict, why = next((verdict, why) for applies, verdict, why in cases if applies)
    return Finding(measured, runs, verdict, why)
