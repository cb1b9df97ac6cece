"""A rule is data: which records, which quantity, compared how with which threshold. One judge decides by all of them.

A file of ``rules/`` maps the name of a claim to its prose and to ``rule``, which alone decides:

* ``records``: the experiment whose records it reads; none for arithmetic on the paper's own numbers;
* ``measure``, ``with``: what is computed from them (a function of this folder that has this name; that of the claim
  where it is not given) and with which options: a score, a target, a threshold of harm;
* a verdict and its conditions, in the order in which they are tried: ``[value, comparison, threshold, tolerance]``;
  ``every`` and ``any`` stand before a value that is a family, one for each world or policy;
* ``otherwise``: the verdict where none applies, ``not reproduced`` unless it is said.

A value has its interval, and a condition whose threshold lies inside is neither true nor false: the claim is undecided.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

from ..engine.errors import UserError

Verdict = Literal[
    "reproduced", "partly", "not reproduced", "contradicts itself", "does not transfer", "undecided", "not run here"
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
DECIDABLE: tuple[Verdict, ...] = ("reproduced", "partly", "not reproduced", "contradicts itself")
"""Verdicts that a rule may name."""


class HasInterval(Protocol):
    """An estimate and the ends of its interval, NaN where it has none."""

    @property
    def estimate(self) -> float: ...
    @property
    def lower(self) -> float: ...
    @property
    def upper(self) -> float: ...


class Estimated(NamedTuple):
    """A value with an interval that is no other class's."""

    estimate: float
    lower: float
    upper: float


Value = HasInterval | float
"""A number that is known exactly stands for itself."""
Values = Mapping[str, Value | Mapping[str, Value]]
"""What a rule's conditions are about; a mapping is a family."""


class Range(NamedTuple):
    """All values that the data leave open."""

    lower: float
    upper: float


Answer = bool | None
"""None: the threshold lies within the value's own interval."""


def _between(inside: Range, allowed: Range) -> Answer:
    """Whether a range lies in another one, or beside it, or neither."""
    if allowed.lower <= inside.lower and inside.upper <= allowed.upper:
        return True
    return False if inside.upper < allowed.lower or allowed.upper < inside.lower else None


def _beyond(found: Range, threshold: float) -> Answer:
    return True if found.lower > threshold else False if found.upper <= threshold else None


def _not(answer: Answer) -> Answer:
    return None if answer is None else not answer


COMPARISONS: dict[str, Callable[[Range, float, float], Answer]] = {
    "at least": lambda found, t, tolerance: _between(found, Range(t - tolerance, math.inf)),
    "at most": lambda found, t, tolerance: _between(found, Range(-math.inf, t + tolerance)),
    "above": lambda found, t, tolerance: _beyond(found, t - tolerance),
    "below": lambda found, t, tolerance: _beyond(Range(-found.upper, -found.lower), -(t + tolerance)),
    "equal to": lambda found, t, tolerance: _between(found, Range(t - tolerance, t + tolerance)),
    "within a factor of": lambda found, t, factor: _between(found, Range(t / factor, t * factor)),
}
"""Each with the range of a value, a threshold, and a tolerance (of the last: the factor)."""


class Condition(NamedTuple):
    """One comparison of a rule."""

    value: str
    comparison: str
    threshold: float
    tolerance: float = 0.0

    @property
    def family(self) -> tuple[str, str]:
        """``every`` or ``any``, empty for a single value; and the value's name."""
        quantifier, _, name = self.value.partition(" ")
        return (quantifier, name) if quantifier in ("every", "any") else ("", self.value)

    def holds(self, values: Values) -> Answer:
        quantifier, name = self.family
        found = values[name]
        members = list(found.values()) if isinstance(found, Mapping) else [found]
        answers = [self._of_one(member) for member in members]
        return _not(conjunction(map(_not, answers))) if quantifier == "any" else conjunction(answers)

    def _of_one(self, value: Value) -> Answer:
        known = possible(value)
        return None if known is None else COMPARISONS[self.comparison](known, self.threshold, self.tolerance)

    def in_words(self) -> str:
        if self.comparison == "within a factor of":
            return f"{self.value} {self.comparison} {self.tolerance:g} of {self.threshold:g}"
        slack = f" (tolerance {self.tolerance:g})" if self.tolerance else ""
        return f"{self.value} {self.comparison} {self.threshold:g}{slack}"


def possible(value: Value) -> Range | None:
    """What a value may be: its interval, or itself where it is exact; None where it is unknown."""
    if isinstance(value, bool | int | float):
        return None if math.isnan(value) else Range(float(value), float(value))
    return None if math.isnan(value.lower) or math.isnan(value.upper) else Range(value.lower, value.upper)


def conjunction(answers: Iterable[Answer]) -> Answer:
    """Kleene's: False if one is, True if all are, open otherwise."""
    known = list(answers)
    return False if False in known else None if None in known else True


@dataclass(frozen=True)
class ClaimRule:
    """What decides on a claim."""

    records: str
    measure: str
    options: dict[str, Any]
    cases: tuple[tuple[Verdict, tuple[Condition, ...]], ...]
    otherwise: Verdict

    @property
    def digest(self) -> str:
        """Of the data alone: prose, the order of keys and the file it stands in change nothing."""
        data = [self.records, self.measure, self.options, self.cases, self.otherwise]
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:12]

    def verdict(self, values: Values) -> Verdict:
        """The first verdict whose conditions all hold; undecided as soon as one of them is open."""
        for verdict, conditions in self.cases:
            answer = conjunction(condition.holds(values) for condition in conditions)
            if answer is None:
                return "undecided"
            if answer:
                return verdict
        return self.otherwise

    def in_words(self) -> str:
        cases = [f"{verdict}: {' and '.join(c.in_words() for c in conditions)}" for verdict, conditions in self.cases]
        return "; ".join([*cases, f"otherwise {self.otherwise}"])


def parse_rule(name: str, data: Mapping[str, Any]) -> ClaimRule:
    """The rule of a claim from what its file holds.

    Raises:
        UserError: for what is no rule, with the claim's name.
    """
    known = {"records", "measure", "with", "otherwise", *DECIDABLE}
    if unknown := set(data) - known:
        raise UserError(f"rule of {name}: {', '.join(sorted(unknown))} is none of {', '.join(sorted(known))}")
    by_name = {verdict: verdict for verdict in DECIDABLE}
    cases = tuple(
        (by_name[key], tuple(_condition(name, entry) for entry in data[key])) for key in data if key in by_name
    )
    if not cases:
        raise UserError(f"rule of {name}: it needs a verdict with conditions, such as reproduced: [[rho, above, 0]]")
    otherwise = data.get("otherwise", "not reproduced")
    if otherwise not in DECIDABLE:
        raise UserError(f"rule of {name}: otherwise must be one of {', '.join(DECIDABLE)}, got {otherwise!r}")
    return ClaimRule(
        str(data.get("records", "")), str(data.get("measure", name)), dict(data.get("with", {})), cases, otherwise
    )


def _condition(name: str, entry: Any) -> Condition:
    try:
        value, comparison, *numbers = entry
        condition = Condition(str(value), str(comparison), *map(float, numbers))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"rule of {name}: {entry!r} is no condition; write [value, comparison, threshold, tolerance]"
        ) from error
    if condition.comparison not in COMPARISONS:
        raise UserError(
            f"rule of {name}: {condition.comparison!r} is no comparison; there are {', '.join(COMPARISONS)}"
        )
    return condition
