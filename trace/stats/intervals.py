"""Confidence intervals that hold for any number of samples: of means, shares and quantiles."""

import math
from typing import NamedTuple

import torch
from scipy.stats import beta, binom
from torch import Tensor

from ..checks import check_level, check_vector


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


def hoeffding_interval(values: Tensor, low: float, high: float, delta: float) -> Interval:
    """``mean +- (high - low) sqrt(log(2 / delta) / (2 n))``, cut to ``[low, high]``."""
    mean = _mean_in_range(values, low, high)
    return _within(mean, hoeffding_radius(len(values), delta, high - low), low, high, delta)


def bernstein_interval(values: Tensor, low: float, high: float, delta: float) -> Interval:
    """Empirical Bernstein interval (Maurer and Pontil, 2009), two-sided, cut to ``[low, high]``.

    ``mean +- sqrt(2 V log(4 / delta) / n) + 7 (high - low) log(4 / delta) / (3 (n - 1))`` with V the sample variance:
    much shorter than Hoeffding's when the values hardly vary.
    """
    mean = _mean_in_range(values, low, high)
    variance = float(values.double().var(correction=1)) if len(values) > 1 else math.nan
    return _within(mean, bernstein_radius(len(values), delta, variance, high - low), low, high, delta)


def bernstein_radius(n: int, delta: float, variance: float, width: float) -> float:
    """Radius of `bernstein_interval` from the sample variance V and the range's width; infinite for n = 1."""
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
    check_size(n, "n")
    tail = check_level(delta, "delta") / 2
    lower = float(beta.ppf(tail, count, n - count + 1)) if count > 0 else 0.0
    return Interval(lower, float(beta.ppf(1 - tail, count + 1, n - count)) if count < n else 1.0, 1 - delta)


def quantile_ranks(n: int, q: float, delta: float) -> tuple[int, int]:
    """Ranks ``l <= u`` with ``P(x_(l) <= Quantile_q <= x_(u)) >= 1 - delta`` for any distribution of n values.

    The number of values below a quantile is binomial, which needs far fewer of them than a band around the whole
    distribution function: at q = 0.99 and delta = 0.05, 368 instead of 18445. Rank 0 stands for the least possible
    value, ``n + 1`` for none: so few values say nothing about the quantile from above.

    >>> quantile_ranks(1000, 0.99, 0.05)
    (983, 997)
    """
    check_size(n, "n")
    tail = check_level(delta, "delta") / 2
    lower = int(binom.ppf(tail, n, check_level(q, "q")))
    return lower, int(binom.ppf(1 - tail, n, q)) + 1


def _within(mean: float, radius: float, low: float, high: float, delta: float) -> Interval:
    return Interval(max(low, mean - radius), min(high, mean + radius), 1 - delta)


def _mean_in_range(values: Tensor, low: float, high: float) -> float:
    check_vector(values, "values")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ValueError(f"[low, high] = [{low:g}, {high:g}] must be a finite range: bound the loss")
    slack = 1e-5 * max(1.0, abs(low), abs(high))
    least, most = torch.aminmax(values)
    if float(least) < low - slack or float(most) > high + slack:
        raise ValueError(
            f"values lie in [{float(least):g}, {float(most):g}], outside [{low:g}, {high:g}]: widen the range"
        )
    return float(values.double().mean())


def check_size(n: int, name: str) -> None:
    """A sample has at least one entry."""
    if n < 1:
        raise ValueError(f"{name} must be at least 1, got {n}")
