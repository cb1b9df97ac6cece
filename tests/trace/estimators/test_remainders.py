"""Remainders: closed forms, the probability budget, intervals; their coverage is simulated in test_coverage.py."""

import math

import pytest
import torch
from scipy.stats import binom, binomtest

from trace.estimators.remainders import (
    Budget,
    label_noise_remainder,
    mmd_remainder,
    validation_remainder,
    w1_excess,
    w1_remainder,
)
from trace.stats.intervals import (
    bernstein_radius,
    dkw_radius,
    hoeffding_radius,
    mean_interval,
    proportion_interval,
    quantile_ranks,
)


def test_closed_forms():
    assert hoeffding_radius(50, 0.1, 3.0) == pytest.approx(3 * math.sqrt(math.log(20) / 100))
    assert dkw_radius(200, 0.05) == pytest.approx(math.sqrt(math.log(40) / 400))
    assert w1_remainder(100, 5, 0.05, 2.0) == pytest.approx(2 * (math.log(80) / 100) ** 0.2)
    assert w1_remainder(100, 1, 0.05, 1.0) == w1_remainder(100, 2, 0.05, 1.0)
    assert w1_excess(100, 50, 2.0, 0.05) == pytest.approx(2 * math.sqrt(0.03 * math.log(20) / 2))
    assert mmd_remainder(100, 80, 0.05, constant=3.0) == pytest.approx(3 * math.sqrt(math.log(40) / 100))
    expected = 2 * (0.1 + 80**-0.5) + math.sqrt(2 * 180 * math.log(40) / 8000)
    assert mmd_remainder(100, 80, 0.05, unbiased=False) == pytest.approx(expected)
    assert mmd_remainder(100, 80, 0.05) == pytest.approx(expected + math.sqrt(1 / 100 + 1 / 80))


def test_printed_label_noise_and_validation_terms():
    """With equal sizes and the printed levels these are the terms of cor:practical-trace."""
    M, n, m, delta, eta = 12.3, 500, 80, 0.05, 0.1
    assert label_noise_remainder(n, n, M, delta) == pytest.approx(2 * M * math.sqrt(math.log(4 / delta) / (2 * n)))
    printed = M * (math.sqrt(math.log(2 / eta) / (2 * m)) + math.sqrt(math.log(2 / eta) / (2 * 40)))
    assert validation_remainder(m, 40, M, eta, eta) == pytest.approx(printed)


@pytest.mark.parametrize(("count", "n"), [(0, 20), (1, 20), (7, 20), (20, 20), (1, 1), (300, 1000)])
def test_proportion_equals_scipy(count, n):
    expected = binomtest(count, n).proportion_ci(0.9, method="exact")
    found = proportion_interval(count, n, 0.1)
    assert (found.lower, found.upper) == pytest.approx((expected.low, expected.high), rel=1e-9)


@pytest.mark.parametrize("n", [1, 20, 367, 368, 5000])
@pytest.mark.parametrize(("q", "delta"), [(0.5, 0.3), (0.99, 0.05)])
def test_quantile_ranks_are_the_tightest_that_hold(n, q, delta):
    """Errors of either side at most delta / 2, by the binomial law of the number of values below the quantile."""
    lower, upper = quantile_ranks(n, q, delta)
    too_high, too_low = lambda rank: binom.cdf(rank - 1, n, q), lambda rank: binom.sf(rank - 1, n, q)
    assert too_high(lower) <= delta / 2 < too_high(lower + 1)
    assert too_low(upper) <= delta / 2 < too_low(upper - 1)
    assert (upper > n) == (q**n > delta / 2)


def test_mean_interval_is_the_better_of_two():
    still, coins = bernstein_radius(400, 0.05, 0.0, 1), hoeffding_radius(50, 0.05)
    assert mean_interval(0.3, 0.0, 400, 0, 1, 0.1) == pytest.approx((0.3 - still, 0.3 + still, 0.9), rel=1e-12)
    assert mean_interval(0.5, 0.5, 50, 0, 1, 0.1) == pytest.approx((0.5 - coins, 0.5 + coins, 0.9), rel=1e-12)
    assert mean_interval(0.01, 0.1, 50, 0, 1, 0.1).lower == 0
    assert mean_interval(0.3, math.nan, 1, 0, 1, 0.1)[:2] == (0, 1)


def test_budget_shares():
    union, paper = Budget.union(0.05, 0.03), Budget.paper(0.05, 0.03)
    assert union.total == pytest.approx(0.08)
    assert paper.total == pytest.approx(0.16)
    assert (paper.label_noise, paper.population, paper.source_validation) == (0.05, 0.05, 0.03)
    with pytest.raises(ValueError, match=r"delta \+ eta must lie strictly between"):
        Budget.union(0.6, 0.6)


def test_bernstein_closed_form_and_gain():
    log_term = math.log(4 / 0.05)
    radius = math.sqrt(2 * 0.05**2 * log_term / 1000) + 7 * log_term / (3 * 999)
    assert bernstein_radius(1000, 0.05, 0.05**2, 1) == pytest.approx(radius)
    assert radius < hoeffding_radius(1000, 0.05)
    assert bernstein_radius(1, 0.05, 0.0, 1) == math.inf


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hoeffding_radius(0, 0.05), "n must be at least 1"),
        (lambda: hoeffding_radius(5, 0.0), "delta must lie strictly between 0 and 1"),
        (lambda: dkw_radius(5, 1.0), "eta must lie strictly between 0 and 1"),
        (lambda: w1_remainder(5, 0, 0.05, 1.0), "dim must be at least 1"),
        (lambda: w1_remainder(5, 2, 0.05, 0.0), "constant must be finite and positive"),
        (lambda: mmd_remainder(5, 0, 0.05), "m must be at least 1"),
        (lambda: bernstein_radius(0, 0.05, 0.1, 1), "n must be at least 1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("delta", [0.05, 0.5])
@pytest.mark.parametrize("ends", [0.5, 0.9])
def test_w1_exceeds_that_of_samples_by_no_more_than_its_excess(delta, ends):
    """Coins on the ends of [0, 1]: W1 is the difference of the shares, and no sample varies more within a diameter."""
    generator = torch.Generator().manual_seed(0)
    n, m, draws = 40, 25, 20_000
    shares = [torch.rand(draws, k, generator=generator).lt(p).double().mean(dim=1) for k, p in ((n, ends), (m, 0.2))]
    seen = (shares[0] - shares[1]).abs()
    missed = (ends - 0.2 > seen + w1_excess(n, m, 1.0, delta)).double().mean()
    assert float(missed) <= delta
    assert float((ends - 0.2 > seen + 0.3 * w1_excess(n, m, 1.0, delta)).double().mean()) > 0.02
