"""What the ridge table, figure and claims read from stored records."""

import math
import statistics
from collections.abc import Iterable
from typing import NamedTuple

from pandas import DataFrame, Series

from ..engine.records import Record

TOLERANCE = 0.05
"""How far a slope may lie from a whole order and still agree with it."""


class Spread(NamedTuple):
    """A median over records with the range that stands beside it."""

    median: float
    lower: float
    upper: float
    num_records: int

    def text(self, form: str = "{:z.3f}") -> str:
        return f"{form} [{form}, {form}]".format(*self[:3])


UNDEFINED = Spread(math.nan, math.nan, math.nan, 0)
"""Of nothing; it agrees with nothing."""


def part(records: list[Record], name: str) -> list[Record]:
    """Metrics of the part ``closed`` or ``finite`` of the records that have it, each with its config."""
    return [{"config": r["config"], **r["metrics"][name]} for r in records if name in r["metrics"]]


def closed_parts(records: list[Record]) -> list[Record]:
    """The closed part with every seed: its curves are the same, its Monte Carlo errors are not."""
    return part(records, "closed")


def closed_forms(records: list[Record]) -> list[Record]:
    """The closed part, once per problem (penalty, dimension, angle)."""
    problems = {(r["config"]["lam"], r["config"]["dim"], r["config"]["angle"]): r for r in closed_parts(records)}
    return list(problems.values())


def samples(records: list[Record], loss: str = "squared") -> list[Record]:
    """The finite part, one per problem and seed, diagnosed with a loss."""
    return part([r for r in records if r["config"].get("loss", "squared") == loss], "finite")


def with_change(closed: list[Record]) -> list[Record]:
    """The problems in which the risk changes: mu is not orthogonal to w*."""
    return [r for r in closed if any(r["curves"]["risk_change"])]


def diagnostics(finite: list[Record]) -> DataFrame:
    """One row for each diagnosed pair of samples; without any there are no columns."""
    return DataFrame([row for r in finite for row in r["diagnostics"]])


def closed_slope(closed: list[Record], name: str, regime: str = "small") -> Spread:
    """Median slope of a closed form over problems, with the widest ends of their intervals."""
    fits = [fit for r in closed if (fit := r["slopes"][regime].get(name, [None]))[0] is not None]
    if not fits:
        return UNDEFINED
    estimates, lower, upper, _ = zip(*fits, strict=True)
    return Spread(statistics.median(estimates), min(lower), max(upper), len(fits))


def middle_half(values: Iterable[float | None]) -> Spread:
    """Median and quartiles of the values that exist."""
    kept = Series(list(values), dtype=float).dropna()
    lower, median, upper = kept.quantile([0.25, 0.5, 0.75])
    return Spread(median, lower, upper, len(kept))


def refit_slope(finite: list[Record], draws: str, regime: str = "small") -> Spread:
    """Order of |Delta R| of fits to samples: median and quartiles over runs."""
    return middle_half(r["slopes"][regime][draws][0] for r in finite)


def worst_error(drawn: list[Record]) -> float:
    """Largest Monte Carlo error of any closed form with any seed, in standard errors."""
    return max(error for r in drawn for error in r["monte_carlo_errors"].values())


def points(closed: list[Record], *names: str) -> list[tuple[float, ...]]:
    """Values of some curves at every shift of every problem."""
    return [point for r in closed for point in zip(*(r["curves"][name] for name in names), strict=True)]


def tightness(r: Record, i: int) -> float:
    """Core bound over ``|Delta R|`` at the i-th shift."""
    return float(r["curves"]["bound"][i] / abs(r["curves"]["risk_change"][i]))


def agrees(slope: Spread, order: float) -> bool:
    return abs(slope.lower - order) <= TOLERANCE and abs(slope.upper - order) <= TOLERANCE
