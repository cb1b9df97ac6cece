"""How many labels decide about an update: the gate's candidates, limits beside the true change, rival ways to label.

    python -m experiments data emoji                               # once, the stand-in's images
    python -m experiments run labels --launcher local              # images, about 2 minutes on two cores
    python -m experiments run labels config=acs --launcher local   # a table of people, about 2 minutes

One run is a candidate of the gate and a loss. The anchor's test rows are both the file and the population that rows are
drawn from, so every truth is known; a limit lies a margin above it, where accepting is right, or below it, where
rejecting is. Every path is looked at after each label and ends with the first decision. Makes the table and the figure
`labels`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from trace.gate.labelling import Course, change_ranges, file_courses, stream_courses
from trace.losses import Loss, ZeroOne
from trace.stats.betting import BETS, edges, mixture
from trace.stats.metrics import Array

from . import gate
from .engine.errors import UserError
from .engine.records import significant
from .engine.run import Context
from .engine.seeds import seeded
from .pairs.measure import DIGITS
from .pairs.train import labels

LOSSES = ("zero-one", "cross-entropy")
FEWEST = 20
"""Labels before an asymptotic interval is first looked at."""
BLOCK = 1000
"""Rows that are bet on at once."""
FIRST = 2000
"""Rows of a stream that are tried before all of it is."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Config(gate.Config):
    judged_by: str = "zero-one"
    """zero-one or cross-entropy: whose mean change is decided."""
    margins: list[float] = field(default_factory=lambda: [0.002, 0.01, 0.02, 0.05, 0.1])
    """How far limits lie from the true change, on either side."""
    rows: int = 4000
    """Of the anchor's test set, at most."""
    paths: int = 50
    horizon: int = 8000
    """Rows that are drawn from the population before a path counts as undecided."""
    delta: float = 0.05
    """Half of it for either side."""


class Contest(NamedTuple):
    """What is decided about, and with what error."""

    change: Array
    """``D_i`` of the rows ``[N]``; their mean is the truth."""
    least: Array
    most: Array
    """Its range over all labels ``[N]``, known without them."""
    bound: float
    """M: all changes lie in ``[-M, M]``."""
    guess: Array
    """``E D_i`` if the mean of both models' probabilities were true ``[N]``."""
    spread: Array
    """``E |D_i|`` likewise ``[N]``: what active testing draws rows by."""
    draws: Indices
    """Rows of the population, one path each ``[paths, horizon]``."""
    error: float
    """Of either side."""
    seed: int

    @property
    def enough(self) -> float:
        """Log-wealth that decides."""
        return math.log(1 / self.error)


class Ends(NamedTuple):
    """How every path ended."""

    labels: Array
    """Asked for until the decision ``[paths]``; infinite without one."""
    accepted: NDArray[np.bool_]
    """``[paths]``; where the number of labels is infinite, nothing was decided."""


def run(config: Config, context: Context) -> dict[str, Any]:
    if config.judged_by not in LOSSES:
        raise UserError(f"labels: judged_by must be one of {', '.join(LOSSES)}, got {config.judged_by!r}")
    gate.check(config)
    pair = gate.trained(config, context)
    test = pair.held_out["source_test"]
    kept = torch.randperm(len(test.x), generator=seeded("labels rows", config.seed))[: config.rows]
    with torch.no_grad():
        old, new = pair.q(test.x[kept]).double(), pair.update(test.x[kept]).double()
    loss: Loss = ZeroOne() if config.judged_by == "zero-one" else config.loss()
    case = case_of(old, new, labels(test)[kept], loss, config)
    disagreement = float((old.argmax(1) != new.argmax(1)).double().mean())
    return {
        **costs(case, config),
        **significant({"change": float(case.change.mean()), "disagreement": disagreement}, DIGITS),
        "rows": len(kept),
        "reachable": int((case.most > case.least).sum()),
    }


def costs(case: Contest, config: Config) -> dict[str, Any]:
    """Of every method at every limit; lists go with ``margins``, below 0 where rejecting is right."""
    margins = [sign * size for size in config.margins for sign in (-1, 1)]
    truth = float(case.change.mean())
    found: dict[str, dict[str, list[float | None]]] = {}
    for margin in margins:
        for name, method in METHODS.items():
            for key, value in summary(method(case, truth + margin), right=margin > 0).items():
                found.setdefault(name, {}).setdefault(key, []).append(value)
    return {"margins": margins, "methods": found, "paths": config.paths, "nominal": config.delta / 2}


def case_of(old: Tensor, new: Tensor, y: Tensor, loss: Loss, config: Config) -> Contest:
    """Everything that methods read, of rows with their labels."""
    every = torch.stack(
        [loss(new, torch.full_like(y, c)) - loss(old, torch.full_like(y, c)) for c in range(old.shape[1])], dim=1
    )
    chances = (old.softmax(1) + new.softmax(1)) / 2
    seed = seeded("labels", config.data, config.candidate.name, config.judged_by, config.seed).initial_seed()
    rng = np.random.default_rng(seed)
    return Contest(
        (loss(new, y) - loss(old, y)).numpy(),
        *change_ranges(old, new, loss),
        loss.bound(old.shape[1]),
        (chances * every).sum(1).numpy(),
        (chances * every.abs()).sum(1).numpy(),
        rng.integers(len(y), size=(config.paths, config.horizon)),
        config.delta / 2,
        seed,
    )


def summary(ends: Ends, *, right: bool) -> dict[str, float | None]:
    """Median and 90th percentile of the labels, None where that path was undecided; wrong and undecided paths."""
    ordered = np.sort(ends.labels)
    undecided = np.isinf(ends.labels)
    at = {"median": len(ordered) // 2, "most": math.ceil(0.9 * len(ordered)) - 1}
    return {
        **{name: float(ordered[i]) if math.isfinite(ordered[i]) else None for name, i in at.items()},
        "wrong": int(((ends.accepted != right) & ~undecided).sum()),
        "undecided": int(undecided.sum()),
    }


# --- ours ---


def by_course(course: Course, change: Array, steps: tuple[int, ...]) -> tuple[float, bool]:
    """Labels until a course decides, told in growing parts, and whether it accepts."""
    progress = course.begun()
    for end in (*steps, len(course.rows)):
        if progress.decision == "undecided" and end > progress.position:
            values = change[course.rows[progress.position : end]]
            progress = course.advanced(progress, values, values)
    return (math.inf if progress.decision == "undecided" else progress.position), progress.decision == "accept"


def disagreements(case: Contest, limit: float) -> Ends:
    """`trace.gate.Labelling` about the population: rows come as a stream, labels where they can matter."""

    def path(number: int) -> tuple[float, bool]:
        for length in (FIRST, case.draws.shape[1]):
            rows = case.draws[number, :length]
            ranges = [(case.least[rows], case.most[rows])]
            _, (course,) = stream_courses(ranges, limit, case.error, case.bound, _seed(case, number))
            found = by_course(course, case.change[rows], (200,))
            if math.isfinite(found[0]):
                return found
        return found

    return _ended(path, len(case.draws))


def whole_file(case: Contest, limit: float) -> Ends:
    """`trace.gate.Labelling` about the file: its rows without replacement."""

    def path(number: int) -> tuple[float, bool]:
        _, (course,) = file_courses([(case.least, case.most)], limit, case.error, _seed(case, number))
        return by_course(course, case.change, (50, 400))

    return _ended(path, len(case.draws))


def _seed(case: Contest, path: int) -> int:
    """Of the order of one path."""
    return (case.seed + path) % 2**62


def _ended(path: Callable[[int], tuple[float, bool]], paths: int) -> Ends:
    found = [path(number) for number in range(paths)]
    return Ends(np.array([labels for labels, _ in found]), np.array([accepted for _, accepted in found]))


# --- betting on uniform rows ---


def uniform_betting(case: Contest, limit: float) -> Ends:
    """A label for every row of the stream, the same mixture of bets."""
    rows = bet_rows(case, limit, lambda sums: mixture(sums)[..., None], share=1.0)
    return Ends(rows.min(axis=0)[:, 0], rows[0, :, 0] <= rows[1, :, 0])


def best_bet(case: Contest, limit: float) -> Ends:
    """The single bet whose median number of labels is the least in hindsight; labels where they can matter."""
    rows = bet_rows(case, limit, lambda sums: sums, share=0.51)
    asked = np.cumsum((case.most > case.least)[case.draws], axis=1)
    each = rows.min(axis=0)
    spent = np.where(
        np.isinf(each), math.inf, np.take_along_axis(asked, np.minimum(each, asked.shape[1]).astype(int) - 1, 1)
    )
    best = int(np.argmin(np.sort(spent, axis=0)[len(spent) // 2]))
    return Ends(spent[:, best], rows[0, :, best] <= rows[1, :, best])


def bet_rows(case: Contest, limit: float, wealth: Callable[[Array], Array], *, share: float) -> Array:
    """Rows until each wealth ``[..., W]`` of log-products ``[..., J]`` accepts, and rejects ``[2, paths, W]``.

    It ends as soon as one wealth has decided that share of the paths.
    """
    paths, horizon = case.draws.shape
    found = np.full((2, paths, wealth(np.zeros((1, len(BETS)))).shape[-1]), math.inf)
    products = np.zeros((2, paths, len(BETS)))
    for start in range(0, horizon, BLOCK):
        decided = np.isfinite(found.min(axis=0))
        if (decided.mean(axis=0) >= share).any():
            break
        open_ = np.flatnonzero(~decided.all(axis=1))
        values = case.change[case.draws[open_, start : start + BLOCK]]
        for side, end in enumerate((case.bound, -case.bound)):
            gains = np.log1p(edges(values, limit, end)[..., None] * BETS)
            sums = products[side, open_, None] + np.cumsum(gains, axis=1)
            reached = wealth(sums) >= case.enough
            first = np.where(reached.any(axis=1), start + 1 + reached.argmax(axis=1), math.inf)
            found[side, open_] = np.minimum(found[side, open_], first)
            products[side, open_] = sums[:, -1]
    return found


# --- intervals for one n, at growing n: each look has its share of the error ---


def _looks(case: Contest) -> tuple[Indices, Array]:
    """Numbers of labels that grow by a fifth, and the error of either side at each: ``error / (k (k + 1))``."""
    horizon = case.draws.shape[1]
    steps = np.unique(np.ceil(FEWEST * 1.2 ** np.arange(64)).astype(np.int64))
    steps = np.append(steps[steps < horizon], horizon)
    k = np.arange(1, len(steps) + 1)
    return steps, case.error / (k * (k + 1))


def hoeffding(case: Contest, limit: float) -> Ends:
    """``mean +- 2M sqrt(log(1 / error) / (2n))``."""
    n, error = _looks(case)
    mean = np.cumsum(case.change[case.draws], axis=1)[:, n - 1] / n
    return _first(mean, 2 * case.bound * np.sqrt(np.log(1 / error) / (2 * n)), limit, n)


def bernstein(case: Contest, limit: float) -> Ends:
    """``mean +- sqrt(2 V log(2 / error) / n) + 14 M log(2 / error) / (3 (n - 1))`` (Maurer and Pontil, 2009)."""
    n, error = _looks(case)
    values = case.change[case.draws]
    mean, square = (np.cumsum(values**power, axis=1)[:, n - 1] / n for power in (1, 2))
    variance = np.maximum(square - mean**2, 0.0) * n / (n - 1)
    log = np.log(2 / error)
    radius = np.sqrt(2 * variance * log / n) + 2 * case.bound * 7 * log / (3 * (n - 1))
    return _first(mean, radius, limit, n)


def _first(estimate: Array, radius: Array, limit: float, n: Indices) -> Ends:
    """Where intervals ``[paths, looks]`` first lie on one side of the limit."""
    accept, reject = estimate + radius <= limit, estimate - radius > limit
    either = accept | reject
    look = either.argmax(axis=1)
    decided = either.any(axis=1)
    paths = np.arange(len(estimate))
    return Ends(np.where(decided, n[look], math.inf), accept[paths, look] & decided)


# --- asymptotic intervals, looked at after every label ---


def prediction_powered(case: Contest, limit: float) -> Ends:
    """PPI++ (Angelopoulos et al., 2023), with the models' own guess of ``D_i``: uniform labels, a normal interval."""
    n = np.arange(FEWEST, case.draws.shape[1] // 4 + 1)
    found = ppi_interval(case.change[case.draws], case.guess[case.draws], case.guess, n, case.error)
    return _first(found.estimate, found.radius, limit, n)


class PowerTuned(NamedTuple):
    """Of PPI++, each ``[paths, looks]``."""

    weight: Array
    """lambda, of the guesses."""
    estimate: Array
    radius: Array


def ppi_interval(y: Array, guess: Array, unlabelled: Array, n: Indices, error: float) -> PowerTuned:
    """The two-sided ``ppi_mean_ci`` of ppi-python with ``alpha = 2 error`` after the first n labels of paths.

    ``tests/experiments/peers/test_ppi.py`` runs that package, in an environment of its own, on the same rows: weights,
    estimates and ends are equal up to rounding, and so are all decisions on the draws of a cell. They differ in one
    case: where all guesses are equal, lambda is 0 / 0. The interval does not depend on it, and here it is that of the
    labels alone; the package divides what rounding left and has either the same interval or NaN, which decides nothing.

    Args:
        y, guess: ``[paths, rows]``.
        unlabelled: guesses where nobody labels ``[N]``.
        n: numbers of labels ``[looks]``.
    """
    total = len(unlabelled)

    def means(values: Array) -> Array:
        return np.cumsum(values[:, : n[-1]], axis=1)[:, n - 1] / n

    of_y, of_guess = means(y), means(guess)
    y_squares, products, squares = means(y**2), means(y * guess), means(guess**2)
    everything = n + total
    pooled = (n * of_guess + unlabelled.sum()) / everything
    variance = (n * squares + (unlabelled**2).sum() - everything * pooled**2) / (everything - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = np.clip((products - of_y * of_guess) / ((1 + n / total) * variance), 0.0, 1.0)
    weight = np.nan_to_num(weight)
    residual = of_y - weight * of_guess
    spread = y_squares - 2 * weight * products + weight**2 * squares - residual**2
    error_squared = weight**2 * unlabelled.var() / total + np.maximum(spread, 0.0) / n
    estimate = weight * unlabelled.mean() + residual
    return PowerTuned(weight, estimate, norm.ppf(1 - error) * np.sqrt(error_squared))


def active_testing(case: Contest, limit: float) -> Ends:
    """LURE of rows that are drawn in proportion to ``E |D_i|`` (Kossen et al., 2021), and a normal interval.

    Rows whose change is known without a label are left out and free.
    """
    pool = np.flatnonzero(case.most > case.least)
    if len(pool) < FEWEST:
        return Ends(np.full(len(case.draws), math.inf), np.zeros(len(case.draws), dtype=bool))
    weight = case.spread[pool] + 1e-3 * case.spread[pool].mean()
    clock = np.random.default_rng(case.seed).exponential(size=(len(case.draws), len(pool))) / weight
    order = np.argsort(clock, axis=1)
    mean, spread = lure(case.change[pool][order], weight[order])
    n = np.arange(FEWEST, len(pool) + 1)
    share, free = len(pool) / len(case.change), (case.change.sum() - case.change[pool].sum()) / len(case.change)
    radius = norm.ppf(1 - case.error) * spread[:, n - 1] / np.sqrt(n)
    return _first(share * mean[:, n - 1] + free, share * radius, limit, n)


def lure(values: Array, weight: Array) -> tuple[Array, Array]:
    """``sum_m v_m D_m / M`` after each of N draws without replacement ``[paths, N]``, and the spread of its terms.

    ``v_m = 1 + (N - M) / (N - m) (1 / ((N - m + 1) q_m) - 1)`` with ``q_m`` the m-th weight over those left (Farquhar
    et al., 2021): without bias at every M, and the mean itself at M = N.
    """
    size = values.shape[1]
    m = np.arange(1, size + 1)
    left = np.cumsum(weight[:, ::-1], axis=1)[:, ::-1]
    odds = left / ((size - m + 1) * weight)
    correction = np.divide(odds - 1, size - m, out=np.zeros_like(odds), where=m < size)
    rest = size - m
    sums = [np.cumsum(values * correction**power, axis=1) for power in (0, 1)]
    squares = [np.cumsum(values**2 * correction**power, axis=1) for power in (0, 1, 2)]
    mean = (sums[0] + rest * sums[1]) / m
    variance = (squares[0] + 2 * rest * squares[1] + rest**2 * squares[2]) / m - mean**2
    return mean, np.sqrt(np.maximum(variance, 0.0))


METHODS: dict[str, Callable[[Contest, float], Ends]] = {
    "file": whole_file,
    "population": disagreements,
    "best_bet": best_bet,
    "betting": uniform_betting,
    "bernstein": bernstein,
    "hoeffding": hoeffding,
    "ppi": prediction_powered,
    "active_testing": active_testing,
}

if __name__ == "__main__":
    from experiments.engine.entry import main

    main("labels")
