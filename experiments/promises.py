"""Is the gate's confidence kept by people who follow its advice? It says how many rows would decide; they collect them.

    python -m experiments run promises --launcher local      # about 2 minutes on two cores

One run is a kind of score and a side: the true value lies just beyond the limit, on the side where an accept is wrong
(`above`) or a reject (`below`). Every path begins with `start` rows, asks, adds the rows that are advised and asks
again, until the gate decides or `looks` times. `method=sequence` is what the gate does, `method=fixed` the intervals
that hold at one number of rows, which it had before. Makes the table `promises`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trace.gate.policy import Decision, rows_by_width
from trace.stats.betting import Tally, forecast, log_wealth, sequence_ranks
from trace.stats.intervals import mean_interval, proportion_interval, quantile_ranks

from .engine.errors import UserError
from .engine.run import Context
from .engine.seeds import seeded

METHODS = ("sequence", "fixed")
SIDES = ("above", "below")
MOST_ROWS = 10**9
"""Nobody collects more."""


class Answer(NamedTuple):
    """What a gate says of some rows, and how many it takes to decide; None where no number would."""

    decision: Decision
    needed: int | None


class Kind(NamedTuple):
    """A score of rows that take one of a few values, and how likely each is where the score is on its limit."""

    values: tuple[float, ...]
    odds: tuple[float, ...]
    low: float
    """With the last value, the range."""
    gap: float
    """How much likelier the last value is above the limit, at the expense of the first; below, how much less."""
    quantile: float = 0.0
    """The level, where the score is a quantile: a value then says whether its row exceeds the limit (0) or not (1)."""

    @property
    def limit(self) -> float:
        return math.fsum(value * chance for value, chance in zip(self.values, self.odds, strict=True))

    def chances(self, above: bool) -> tuple[float, ...]:
        """Just beyond the limit."""
        moved = self.gap if above != bool(self.quantile) else -self.gap
        return (self.odds[0] - moved, *self.odds[1:-1], self.odds[-1] + moved)


KINDS = {
    "share": Kind((0.0, 1.0), (0.95, 0.05), 0.0, 1e-4),
    "mean": Kind((0.0, 0.05, 0.5, 3.0, 20.0), (0.5, 0.3, 0.15, 0.045, 0.005), 0.0, 2e-5),
    "difference": Kind((-1.0, 0.0, 1.0), (0.02, 0.94, 0.04), -1.0, 5e-5),
    "quantile": Kind((0.0, 1.0), (0.1, 0.9), 0.0, 5e-4, quantile=0.9),
}
"""A share of changed predictions, a mean of clipped losses, a labelled change of the error, a gradient quantile."""


@dataclass(frozen=True)
class Config:
    profile: str = "cpu"
    kind: str = "share"
    """share, mean, difference or quantile."""
    side: str = "above"
    """Of the limit, where the truth lies: an accept is wrong above it, a reject below."""
    method: str = "sequence"
    """sequence, or fixed: the intervals for one number of rows."""
    paths: int = 2000
    looks: int = 10
    start: int = 400
    """Rows of the first look."""
    delta: float = 0.05
    """Half of it for either side."""
    seed: int = 0

    def __post_init__(self) -> None:
        for key, allowed in (("kind", tuple(KINDS)), ("side", SIDES), ("method", METHODS)):
            if getattr(self, key) not in allowed:
                raise UserError(f"promises: {key} must be one of {', '.join(allowed)}, got {getattr(self, key)!r}")


def run(config: Config, context: Context) -> dict[str, Any]:
    kind, above = KINDS[config.kind], config.side == "above"
    rng = np.random.default_rng(seeded("promises", config.kind, config.side, config.seed).initial_seed())
    answer = partial(ANSWERS[config.method], kind, config.delta)
    decisions, rows = followed(kind, above, answer, config, rng)
    wrong: Decision = "accept" if above else "reject"
    return {
        "wrong": decisions.count(wrong),
        "undecided": decisions.count("inconclusive"),
        "paths": config.paths,
        "nominal": config.delta / 2,
        "median_rows": float(np.median(rows)),
    }


def followed(
    kind: Kind, above: bool, answer: Callable[[NDArray[np.int64]], Answer], config: Config, rng: np.random.Generator
) -> tuple[list[Decision], NDArray[np.int64]]:
    """Every path's last decision and rows, after as many looks as it took."""
    chances = kind.chances(above)
    counts = rng.multinomial(config.start, chances, size=config.paths)
    decisions: list[Decision] = ["inconclusive"] * config.paths
    asking = np.arange(config.paths)
    for _ in range(config.looks):
        more = np.zeros(len(asking), dtype=np.int64)
        for place, path in enumerate(asking):
            said = answer(counts[path])
            decisions[path] = said.decision
            if said.decision == "inconclusive" and said.needed is not None:
                more[place] = max(0, min(said.needed, MOST_ROWS) - int(counts[path].sum()))
        asking, more = asking[more > 0], more[more > 0]
        counts[asking] += rng.multinomial(more, chances)
    return decisions, counts.sum(axis=1)


def by_sequence(kind: Kind, delta: float, counts: NDArray[np.int64]) -> Answer:
    """What the gate says: by the wealth at the limit, which decides as its interval does; advice by its forecast."""
    n = int(counts.sum())
    if kind.quantile:
        return _by_ranks(sequence_ranks(n, kind.quantile, delta), int(counts[-1]), n, kind.quantile)
    some = {value: float(count) for value, count in zip(kind.values, counts, strict=True) if count}
    rows, enough = Tally(kind.low, kind.values[-1], tuple(some), tuple(some.values())), math.log(2 / delta)
    if log_wealth(rows, kind.limit, "below") >= enough:
        return Answer("accept", None)
    if log_wealth(rows, kind.limit, "above") >= enough:
        return Answer("reject", None)
    return Answer("inconclusive", n + forecast(rows, kind.limit, delta).rows)


def by_fixed(kind: Kind, delta: float, counts: NDArray[np.int64]) -> Answer:
    """Intervals for one n: exact for shares and quantiles, Hoeffding's or Bernstein's for means."""
    n, values = int(counts.sum()), np.array(kind.values)
    if kind.quantile:
        return _by_ranks(quantile_ranks(n, kind.quantile, delta), int(counts[-1]), n, kind.quantile)
    mean = float(counts @ values / n)
    if kind.values == (0.0, 1.0):
        ends = proportion_interval(int(counts[-1]), n, delta)
    else:
        deviation = math.sqrt(float(counts @ (values - mean) ** 2) / (n - 1))
        ends = mean_interval(mean, deviation, n, kind.low, kind.values[-1], delta)
    if ends.upper <= kind.limit:
        return Answer("accept", None)
    if ends.lower > kind.limit:
        return Answer("reject", None)
    radius = ends.upper - mean if mean <= kind.limit else mean - ends.lower
    return Answer("inconclusive", _rows(n, radius, kind.limit - mean))


def _by_ranks(ranks: tuple[int, int], within: int, n: int, q: float) -> Answer:
    """A quantile is at most the limit where the row of the upper rank is: ``within`` rows are."""
    lower, upper = ranks
    if within >= upper:
        return Answer("accept", None)
    if within < lower:
        return Answer("reject", None)
    radius = (upper - q * n if within >= q * n else q * n - lower) / n
    return Answer("inconclusive", _rows(n, radius, within / n - q))


def _rows(n: int, radius: float, gap: float) -> int | None:
    found = rows_by_width(n, radius, gap)
    return None if found is None else found[0]


ANSWERS: dict[str, Callable[[Kind, float, NDArray[np.int64]], Answer]] = {"sequence": by_sequence, "fixed": by_fixed}


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("promises")
