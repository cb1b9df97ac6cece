"""Maximum mean discrepancy between two samples (``def:mmd``), with its usual estimators."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import check_samples
from ..hardware import doubled, wide
from ..sample import drawn
from .kernels import KernelName, KernelSum, centred, gram, kernel_sum, of_squared_distances, resolve_bandwidth

Estimator = Literal["unbiased", "biased", "block", "linear"]


class MMDEstimate(NamedTuple):
    """An MMD and the settings it was computed with."""

    value: float
    """``sqrt(max(squared, 0))``."""
    squared: float
    """The estimate of MMD^2 with its sign: unbiased estimates of a small MMD are often negative."""
    kernel: KernelName
    bandwidth: float
    estimator: Estimator
    standard_error: float = math.nan
    """Of ``squared``: the spread of independent parts ("block", "linear"), else that of the witness function and, so
    that it does not vanish without a shift, a bound on what is of second order (too large by up to a factor)."""

    @property
    def negative(self) -> bool:
        """Whether the square was negative, so that ``value`` is 0 by clipping."""
        return self.squared < 0


@torch.no_grad()
def mmd(
    x: Tensor,
    y: Tensor,
    *,
    kernel: KernelName = "rbf",
    bandwidth: float | None = None,
    estimator: Estimator = "unbiased",
    block_size: int | None = None,
    generator: Generator | None = None,
) -> MMDEstimate:
    """``MMD^2 = E k(x, x') + E k(y, y') - 2 E k(x, y)`` (``def:mmd``) from samples ``x [n, d]``, ``y [m, d]``.

    Args:
        kernel: "rbf" ``exp(-|x - y|^2 / (2 s^2))`` or "laplace" ``exp(-|x - y| / s)``.
        bandwidth: s; the median heuristic if absent.
        estimator: "unbiased" leaves out the diagonals; "biased" is the plug-in value, never negative; "block" averages
            unbiased values over blocks; "linear" averages ``k(x, x') + k(y, y') - k(x, y') - k(x', y)`` over
            disjoint pairs (Gretton et al., 2012). The last two use ``min(n, m)`` samples and give a standard error.
        generator: shuffles both samples for "block" and "linear", which need them in random order; without it they are
            taken to be so already (data sorted by class is not).
        block_size: for "block"; by default ``floor(sqrt(min(n, m)))``, at least 2.

    Raises:
        ValueError: for invalid samples, fewer than 2 samples (4 for "linear"), or an unknown kernel or estimator.

    >>> x = torch.tensor([[0.0], [1.0]])
    >>> round(mmd(x, x + 1, bandwidth=1.0, estimator="biased").squared, 4)
    0.4323
    """
    least = {"unbiased": 2, "biased": 1, "block": 2, "linear": 4}
    if estimator not in least:
        raise ValueError(f"estimator must be one of {', '.join(least)}, got {estimator!r}")
    check_samples(x, y, min_samples=least[estimator])
    s = resolve_bandwidth(x, y, kernel, bandwidth)
    x, y = centred(x, y, bandwidth=s)
    if estimator in ("unbiased", "biased"):
        squared, error = _quadratic(x, y, kernel, s, unbiased=estimator == "unbiased")
    else:
        if generator is not None:
            x, y = drawn(x, len(x), generator), drawn(y, len(y), generator)
        parts = _linear_parts(x, y, kernel, s) if estimator == "linear" else _block_parts(x, y, kernel, s, block_size)
        squared = float(parts.mean())
        error = float(parts.std() / math.sqrt(len(parts))) if len(parts) > 1 else math.nan
    return MMDEstimate(math.sqrt(max(squared, 0.0)), squared, kernel, s, estimator, error)


def _quadratic(x: Tensor, y: Tensor, kernel: KernelName, bandwidth: float, *, unbiased: bool) -> tuple[float, float]:
    """MMD^2 and its standard error."""
    n, m = len(x), len(y)
    xx = kernel_sum(x, x, kernel=kernel, bandwidth=bandwidth)
    yy = kernel_sum(y, y, kernel=kernel, bandwidth=bandwidth)
    if y is x:
        xy = KernelSum(xx.total + n, xx.rows + 1, xx.rows + 1)
    else:
        xy = kernel_sum(x, y, kernel=kernel, bandwidth=bandwidth)
    error = math.nan if min(n, m) < 2 else _witness_error(xx, yy, xy)
    if unbiased:
        return xx.total / (n * (n - 1)) + yy.total / (m * (m - 1)) - 2 * xy.total / (n * m), error
    return (xx.total + n) / n**2 + (yy.total + m) / m**2 - 2 * xy.total / (n * m), error


def _witness_error(xx: KernelSum, yy: KernelSum, xy: KernelSum) -> float:
    """Square root of ``4 Var w(x) / n + 4 Var w(y) / m`` and a bound on the terms of second order.

    The witness is ``w(z) = mean_i k(z, x_i) - mean_j k(z, y_j)``. What it leaves of each mean of k over pairs has
    variance at most ``Var k <= k_mean (1 - k_mean)``, for k in [0, 1], over the number of pairs.
    """
    n, m = len(xx.rows), len(yy.rows)
    of_x = xx.rows / (n - 1) - xy.rows / m
    of_y = yy.rows / (m - 1) - xy.columns / n
    first = 4 * float(of_x.var(correction=1)) / n + 4 * float(of_y.var(correction=1)) / m
    means = (
        (xx.total / (n * (n - 1)), n * (n - 1) / 2),
        (yy.total / (m * (m - 1)), m * (m - 1) / 2),
        (xy.total / (n * m), n * m / 4),
    )
    return math.sqrt(first + sum(max(k * (1 - k), 0.0) / pairs for k, pairs in means))


def _linear_parts(x: Tensor, y: Tensor, kernel: KernelName, bandwidth: float) -> Tensor:
    """``[min(n, m) // 2]`` independent terms of mean MMD^2."""
    half = min(len(x), len(y)) // 2

    def k(p: Tensor, q: Tensor) -> Tensor:
        return doubled(of_squared_distances((p - q).square().sum(dim=1), kernel=kernel, bandwidth=bandwidth))

    x1, x2, y1, y2 = x[:half], x[half : 2 * half], y[:half], y[half : 2 * half]
    return k(x1, x2) + k(y1, y2) - k(x1, y2) - k(x2, y1)


def _block_parts(x: Tensor, y: Tensor, kernel: KernelName, bandwidth: float, block_size: int | None) -> Tensor:
    """Unbiased MMD^2 of every block, ``[min(n, m) // block_size]``."""
    n = min(len(x), len(y))
    size = max(2, math.isqrt(n)) if block_size is None else block_size
    if not 2 <= size <= n:
        raise ValueError(f"block_size must lie between 2 and min(n, m) = {n}, got {size}")
    blocks = n // size
    x_blocks, y_blocks = (z[: blocks * size].reshape(blocks, size, -1) for z in (x, y))

    def mean(p: Tensor, q: Tensor, *, off_diagonal: bool) -> Tensor:
        K = gram(p, q, kernel=kernel, bandwidth=bandwidth)
        if not off_diagonal:
            return K.mean(dim=(1, 2), dtype=wide(K.device))
        K.diagonal(dim1=1, dim2=2).zero_()
        return K.sum(dim=(1, 2), dtype=wide(K.device)) / (size * (size - 1))

    xx, yy = (mean(z, z, off_diagonal=True) for z in (x_blocks, y_blocks))
    return xx + yy - 2 * mean(x_blocks, y_blocks, off_diagonal=False)
