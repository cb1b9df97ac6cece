"""Confidence intervals that hold at one number of samples, whatever it is: of means, shares and quantiles."""

import functools
import math
from typing import NamedTuple

from ..checks import check_level


class Interval(NamedTuple):
    """A two-sided confidence interval for a mean."""

    lower: float
    upper: float
    level: float


def hoeffding_radius(n: int, delta: float, width: float = 1.0) -> float:
    """``width sqrt(log(2 / delta) / (2 n))``: two-sided, for the mean of n values in an interval of that width."""
    check_size(n, "n")
    return width * math.sqrt(math.log(2 / check_level(delta, "delta")) / (2 * n))


def dkw_radius(m: int, eta: float) -> float:
    """``sqrt(log(2 / eta) / (2 m))``: the largest error of an empirical distribution function (Massart, 1990)."""
    return hoeffding_radius(m, check_level(eta, "eta"))


def bernstein_radius(n: int, delta: float, variance: float, width: float) -> float:
    """``sqrt(2 V log(4 / delta) / n) + 7 width log(4 / delta) / (3 (n - 1))``: two-sided (Maurer and Pontil, 2009).

    With the sample variance V it is much shorter than Hoeffding's when the values hardly vary; infinite for n = 1.
    """
    check_size(n, "n")
    log_term = math.log(4 / check_level(delta, "delta"))
    return math.inf if n < 2 else math.sqrt(2 * variance * log_term / n) + 7 * width * log_term / (3 * (n - 1))


def mean_interval(mean: float, deviation: float, n: int, low: float, high: float, delta: float) -> Interval:
    """For a mean of n values in ``[low, high]``: the shorter of Hoeffding's and Bernstein's, at ``delta / 2`` each.

    ``deviation`` is the sample's standard deviation.
    """
    radii = hoeffding_radius(n, delta / 2, high - low), bernstein_radius(n, delta / 2, deviation**2, high - low)
    return _within(mean, min(radii), low, high, delta)


def proportion_interval(count: int, n: int, delta: float) -> Interval:
    """Exact two-sided interval for a probability from ``count`` successes in n (Clopper and Pearson, 1934).

    >>> round(proportion_interval(0, 100, 0.05).upper, 4)
    0.0362
    """
    from scipy.stats import beta

    check_size(n, "n")
    tail = check_level(delta, "delta") / 2
    lower = float(beta.ppf(tail, count, n - count + 1)) if count > 0 else 0.0
    return Interval(lower, float(beta.ppf(1 - tail, count + 1, n - count)) if count < n else 1.0, 1 - delta)


@functools.cache
def quantile_ranks(n: int, q: float, delta: float) -> tuple[int, int]:
    """Ranks ``l <= u`` with ``P(x_(l) <= Quantile_q <= x_(u)) >= 1 - delta`` for any distribution of n values.

    The number of values below a quantile is binomial, which needs far fewer of them than a band around the whole
    distribution function: at q = 0.99 and delta = 0.05, 368 instead of 18445. Rank 0 stands for the least possible
    value, ``n + 1`` for none: so few values say nothing about the quantile from above.

    >>> quantile_ranks(1000, 0.99, 0.05)
    (983, 997)
    """
    from scipy.stats import binom

    check_size(n, "n")
    tail = check_level(delta, "delta") / 2
    lower = int(binom.ppf(tail, n, check_level(q, "q")))
    return lower, int(binom.ppf(1 - tail, n, q)) + 1


def _within(mean: float, radius: float, low: float, high: float, delta: float) -> Interval:
    return Interval(max(low, mean - radius), min(high, mean + radius), 1 - delta)


def check_size(n: int, name: str) -> None:
    """A sample has at least one entry."""
    if n < 1:
        raise ValueError(f"{name} must be at least 1, got {n}")
