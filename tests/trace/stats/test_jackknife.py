"""trace.stats.jackknife against Student's own interval, brute force and simulated coverage; every refusal."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from trace.stats.bootstrap import Difference, bootstrap
from trace.stats.jackknife import jackknife_interval, student_interval
from trace.stats.metrics import auroc, spearman


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("k", [2, 3, 8, 40])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_of_a_mean_it_is_students_interval(k, level):
    values = rng(k).normal(size=k)
    found = student_interval(values, level=level)
    expected = stats.t.interval(level, k - 1, values.mean(), stats.sem(values))
    assert found.estimate == pytest.approx(values.mean(), rel=1e-12)
    assert (found.lower, found.upper) == pytest.approx(expected, rel=1e-10)
    assert found.freedom == pytest.approx(k - 1, rel=1e-12)


def test_of_clusters_it_is_that_of_their_means():
    seeds = np.repeat(np.arange(5), 7)
    x = rng().normal(size=35) + seeds
    found = jackknife_interval(np.mean, seeds, columns=(x,))
    expected = student_interval(x.reshape(5, 7).mean(axis=1))
    assert found[:5] == pytest.approx(expected[:5], rel=1e-10)


@pytest.mark.parametrize("statistic", [spearman, auroc, Difference(spearman)])
def test_errors_equal_those_of_leaving_out_by_hand(statistic):
    seeds, names = np.repeat(np.arange(4), 6), np.tile(np.arange(6), 4)
    a, b = rng(1).normal(size=(2, 24))
    target = a + rng(2).normal(size=24)
    columns = (a, b, target) if isinstance(statistic, Difference) else (a, target > 0 if statistic is auroc else target)
    variance, spent = 0.0, 0.0
    for unit, k in ((seeds, 4), (names, 6)):
        left = [statistic(*(np.asarray(column)[unit != i] for column in columns)).value for i in range(k)]
        own = (k - 1) / k * sum((value - sum(left) / k) ** 2 for value in left)
        variance, spent = variance + own, spent + own**2 / (k - 1)
    found = jackknife_interval(statistic, seeds, names, columns=columns)
    radius = stats.t.ppf(0.975, variance**2 / spent) * math.sqrt(variance)
    assert (found.lower, found.upper) == pytest.approx((found.estimate - radius, found.estimate + radius), rel=1e-9)


@pytest.mark.parametrize(("k", "narrow"), [(4, 0.84), (8, 0.915), (16, 0.945)])
def test_it_covers_where_the_percentile_bootstrap_does_not(k, narrow):
    """Of normal means: within three standard errors of 0.95 over 2,000 draws, where the bootstrap stays below."""
    draws = rng(k).normal(size=(2000, k))
    covered = np.mean([_holds(student_interval(values), 0.0) for values in draws])
    assert abs(covered - 0.95) < 3 * math.sqrt(0.95 * 0.05 / 2000)
    percentile = [bootstrap(np.mean, values, generator=rng(), num_resamples=400) for values in draws[:400]]
    assert np.mean([_holds(found, 0.0) for found in percentile]) < narrow


@pytest.mark.parametrize("k", [4, 8])
def test_it_covers_a_rank_correlation_of_pooled_seeds(k):
    """Seeds with a common shift of both columns: rows of a seed are dependent, seeds are not."""
    rho, candidates, noise = 0.5, 12, rng(k)

    def draw(seeds: int) -> tuple[np.ndarray, np.ndarray]:
        shared = noise.normal(size=(seeds, 1))
        x = shared + noise.normal(size=(seeds, candidates))
        y = shared + rho * x + noise.normal(size=(seeds, candidates))
        return x.ravel(), y.ravel()

    truth = spearman(*draw(20_000)).value
    seeds = np.repeat(np.arange(k), candidates)
    covered = [_holds(jackknife_interval(spearman, seeds, columns=draw(k), limits=(-1, 1)), truth) for _ in range(500)]
    assert 0.91 < np.mean(covered) < 0.985


def _holds(found, truth):
    return found.lower <= truth <= found.upper


def test_two_crossed_factors_err_on_the_safe_side():
    """A mean with an effect of each seed and of each candidate, over 800 draws."""
    noise, seeds, names = rng(3), np.repeat(np.arange(6), 10), np.tile(np.arange(10), 6)
    covered = []
    for _ in range(800):
        rows = noise.normal(size=6)[seeds] + noise.normal(size=10)[names] + noise.normal(size=60)
        covered.append(_holds(jackknife_interval(np.mean, seeds, names, columns=(rows,)), 0.0))
    assert 0.94 < np.mean(covered) < 0.99


def test_limits_cut_and_equal_units_have_no_width():
    seeds = [0, 0, 0, 1, 1, 1]
    same = jackknife_interval(spearman, seeds, columns=([1, 2, 3, 1, 2, 3], [1, 2, 3, 1, 2, 3]), limits=(-1, 1))
    assert same[:3] == pytest.approx((1.0, 1.0, 1.0))
    cut = jackknife_interval(spearman, seeds, columns=([1, 2, 3, 4, 6, 5], [1, 2, 3, 4, 5, 6]), limits=(-1, 1))
    assert cut.upper == 1.0
    assert cut.lower >= -1.0


@pytest.mark.parametrize(("factor", "columns", "reason"), [
    ([0, 0, 0], ([1, 2, 3], [1, 2, 3]), "fewer than 2 units"),
    ([0, 1, 2], ([1, 1, 1], [1, 2, 3]), "score is constant"),
    ([0, 1, 2], ([1, 2, 3], [1, 2, 3]), "undefined where one unit is left out"),
])  # fmt: skip
def test_what_has_no_interval_says_why(factor, columns, reason):
    found = jackknife_interval(spearman, factor, columns=columns)
    assert math.isnan(found.lower)
    assert reason in found.reason


def test_refusals():
    with pytest.raises(ValueError, match="level"):
        student_interval([1.0, 2.0], level=1.0)
    with pytest.raises(ValueError, match="one label per row"):
        jackknife_interval(np.mean, [0, 1], columns=([1.0, 2.0, 3.0],))
    with pytest.raises(ValueError):
        student_interval([])
    with pytest.raises(ValueError):
        student_interval([1.0, math.nan])
