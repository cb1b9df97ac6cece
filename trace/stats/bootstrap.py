"""Bootstrap intervals for metrics: over rows, over clusters such as seeds, over seeds and candidates at once."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ..checks import check_level
from .metrics import Array, Metric, Values, auprc, auroc, on_cpu, spearman, vectors

BLOCK = 2_000_000
"""Entries of the matrix of multiplicities that are held at once."""


class BootstrapInterval(NamedTuple):
    """An estimate with a percentile bootstrap interval."""

    estimate: float
    lower: float
    upper: float
    level: float
    num_resamples: int
    """Drawn; 0 where there was no point in drawing."""
    num_undefined: int
    """Resamples on which the statistic was undefined; they are left out of the interval."""
    reason: str = ""
    """Why ``estimate``, or ``lower`` and ``upper``, are NaN."""


Statistic = Callable[..., Metric | float]
"""Of the columns ``[n]``; it must not depend on the order of the rows."""


@dataclass(frozen=True)
class Difference:
    """``metric(a, target) - metric(b, target)`` of two scores of the same rows: a paired comparison.

    >>> Difference(spearman)([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [10.0, 20.0, 30.0]).value
    2.0
    """

    metric: Callable[[Values, Values], Metric]

    def __call__(self, a: Values, b: Values, target: Values) -> Metric:
        first, second = self.metric(a, target), self.metric(b, target)
        return Metric(first.value - second.value, first.reason or second.reason)


def bootstrap(
    statistic: Statistic, *columns: Values, generator: Generator, num_resamples: int = 2000, level: float = 0.95
) -> BootstrapInterval:
    """Percentile bootstrap over rows, such as candidates.

    Args:
        statistic: of the columns; `spearman`, `auroc`, `auprc` and a `Difference` of one of them are computed for all
            resamples at once.
        columns: vectors ``[n]``, resampled together.
        generator: a numpy Generator.
        num_resamples: resamples of size n, with replacement.
        level: nominal coverage. It is not reached with few rows.

    Returns:
        `BootstrapInterval`; its ends are NaN, with a reason, for fewer than 2 rows, an undefined estimate, or a
        statistic that is undefined on more than half of the resamples.

    Raises:
        ValueError: for columns that are empty, unequal in length or not finite, or an invalid option.

    >>> x = np.arange(10.0)
    >>> bootstrap(spearman, x, x**3, generator=np.random.default_rng(0)).lower
    1.0
    """
    return _interval(statistic, columns, {}, generator, num_resamples, level)


def clustered_bootstrap(
    statistic: Statistic,
    clusters: Values,
    *columns: Values,
    generator: Generator,
    num_resamples: int = 2000,
    level: float = 0.95,
) -> BootstrapInterval:
    """Percentile bootstrap over whole clusters, such as seeds: a cluster's rows are drawn together.

    ``clusters [n]`` holds one label per row, numbers or strings; the rest is as in `bootstrap`, with clusters for rows.
    With 4 clusters there are only 35 different resamples, and the interval is too narrow.

    >>> seeds, x = np.repeat([0, 1, 2], 4), np.arange(12.0)
    >>> clustered_bootstrap(np.mean, seeds, x, generator=np.random.default_rng(0)).lower
    1.5
    """
    return _interval(statistic, columns, {"clusters": clusters}, generator, num_resamples, level)


def two_way_bootstrap(
    statistic: Statistic,
    seeds: Values,
    candidates: Values,
    *columns: Values,
    generator: Generator,
    num_resamples: int = 2000,
    level: float = 0.95,
) -> BootstrapInterval:
    """Pigeonhole bootstrap (Owen, 2007): seeds and candidates are resampled independently of each other.

    A row is repeated as often as its seed was drawn times as often as its candidate was. ``seeds [n]`` and
    ``candidates [n]`` hold labels, numbers or strings; the rest is as in `bootstrap`. The interval is conservative
    where rows vary independently of both.

    >>> seeds, candidates, x = [0, 0, 1, 1], ["a", "b", "a", "b"], [1.0, 2.0, 3.0, 4.0]
    >>> two_way_bootstrap(np.mean, seeds, candidates, x, generator=np.random.default_rng(0))[:3]
    (2.5, 1.0, 4.0)
    """
    return _interval(statistic, columns, {"seeds": seeds, "candidates": candidates}, generator, num_resamples, level)


def _interval(
    statistic: Statistic,
    columns: tuple[Values, ...],
    factors: dict[str, Values],
    generator: Generator,
    num_resamples: int,
    level: float,
) -> BootstrapInterval:
    """A resample is a vector of multiplicities ``[n]``: the product over factors of how often a row's unit came up."""
    check_level(level, "level")
    if num_resamples < 1:
        raise ValueError(f"num_resamples must be at least 1, got {num_resamples}")
    if not isinstance(generator, Generator):
        kind = type(generator).__name__
        raise ValueError(f"generator must be a numpy Generator, got {kind}: use np.random.default_rng(seed)")
    data = vectors({f"columns[{i}]": x for i, x in enumerate(columns)}, min_rows=1)
    n = len(data[0])
    units = {name: unit_codes(labels, name, n) for name, labels in factors.items()} or {"rows": np.arange(n)}
    estimate, reason = as_metric(statistic(*data))
    few = [name for name, unit in units.items() if unit.max() == 0]
    if few or math.isnan(estimate):
        reason = reason or (f"fewer than 2 {few[0]} to resample" if few else "the statistic is NaN")
        return BootstrapInterval(estimate, math.nan, math.nan, level, 0, 0, reason)

    def draw(size: int) -> Array:
        counts = np.ones((size, n))
        for unit in units.values():
            k = int(unit.max()) + 1
            counts *= generator.multinomial(k, np.full(k, 1 / k), size=size)[:, unit]
        return counts

    block = max(1, BLOCK // n)
    sizes = [min(block, num_resamples - start) for start in range(0, num_resamples, block)]
    values = np.concatenate([on_resamples(statistic, data, draw(size)) for size in sizes])
    defined = values[~np.isnan(values)]
    num_undefined = num_resamples - len(defined)
    if 2 * num_undefined > num_resamples:
        reason = f"undefined on {num_undefined} of {num_resamples} resamples"
        return BootstrapInterval(estimate, math.nan, math.nan, level, num_resamples, num_undefined, reason)
    lower, upper = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return BootstrapInterval(estimate, float(lower), float(upper), level, num_resamples, num_undefined)


def on_resamples(statistic: Statistic, data: list[Array], counts: Array) -> Array:
    """The statistic on each resample: ``[R]`` from multiplicities ``[R, n]``."""
    if isinstance(statistic, Difference) and statistic.metric in _ALL_AT_ONCE:
        (a, b, target), metric = data, _ALL_AT_ONCE[statistic.metric]
        return metric(a, target, counts) - metric(b, target, counts)
    if statistic in _ALL_AT_ONCE:
        return _ALL_AT_ONCE[statistic](*data, counts)
    resamples = ([np.repeat(x, k) for x in data] for k in counts.astype(np.intp))
    return np.array([as_metric(statistic(*sample)).value if len(sample[0]) else math.nan for sample in resamples])


def _spearman_resampled(x: Array, y: Array, counts: Array) -> Array:
    size = counts.sum(axis=1)
    centre = (size[:, None] + 1) / 2
    rx, ry = _mid_ranks(x, counts) - centre, _mid_ranks(y, counts) - centre
    spread = np.sqrt((counts * rx**2).sum(axis=1) * (counts * ry**2).sum(axis=1))
    return _ratio((counts * rx * ry).sum(axis=1), spread, (size >= 3) & (spread > 0))


def _auroc_resampled(score: Array, harmful: Array, counts: Array) -> Array:
    positives = counts * harmful
    num_harmful = positives.sum(axis=1)
    num_pairs = num_harmful * (counts.sum(axis=1) - num_harmful)
    num_ordered = (positives * _mid_ranks(score, counts)).sum(axis=1) - num_harmful * (num_harmful + 1) / 2
    return _ratio(num_ordered, num_pairs, num_pairs > 0)


def _auprc_resampled(score: Array, harmful: Array, counts: Array) -> Array:
    found, _ = _totals(-score, counts * harmful)
    taken, _ = _totals(-score, counts)
    num_harmful = found.sum(axis=1)
    precision = found.cumsum(axis=1) / np.maximum(taken.cumsum(axis=1), 1)
    return _ratio((found * precision).sum(axis=1), num_harmful, (num_harmful > 0) & (num_harmful < taken.sum(axis=1)))


_ALL_AT_ONCE: dict[Statistic, Callable[..., Array]] = {
    spearman: _spearman_resampled,
    auroc: _auroc_resampled,
    auprc: _auprc_resampled,
}


def _mid_ranks(x: Array, counts: Array) -> Array:
    """Mean rank ``[R, n]`` of a row among all rows repeated ``counts [R, n]`` times; one sort serves all resamples."""
    totals, group = _totals(x, counts)
    of_group: Array = totals.cumsum(axis=1) - (totals - 1) / 2
    return of_group[:, group]


def _totals(x: Array, counts: Array) -> tuple[Array, NDArray[np.intp]]:
    """Sums of counts over equal values of x, ascending ``[R, g]``, and the group of each row ``[n]``."""
    distinct, group = np.unique(x, return_inverse=True)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(distinct)))
    return np.add.reduceat(counts[:, order], starts, axis=1), group


def _ratio(numerator: Array, denominator: Array, defined: NDArray[np.bool_]) -> Array:
    ratio: Array = np.where(defined, numerator / np.where(defined, denominator, 1.0), math.nan)
    return ratio


def as_metric(result: Metric | float) -> Metric:
    """A plain number as a `Metric` without a reason."""
    return result if isinstance(result, Metric) else Metric(float(result))


def unit_codes(labels: Values, name: str, length: int) -> NDArray[np.intp]:
    """The number of each row's unit, such as its seed, from labels ``[n]``."""
    values = np.asarray(on_cpu(labels))
    if values.shape != (length,):
        raise ValueError(f"{name} has shape {list(values.shape)} for {length} rows: pass one label per row")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise ValueError(f"{name} holds NaN: leave out the rows without a label")
    return np.unique(values, return_inverse=True)[1]
