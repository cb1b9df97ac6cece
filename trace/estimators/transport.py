"""Debiased Sinkhorn divergence between two samples (``app:common-impl``).

The paper calls it W1. With squared Euclidean cost it is close to W2^2 instead: moving a cloud by t costs t^2. It is
offered under its own name as the published quantity; `wasserstein1` is what the theory multiplies by a Lipschitz
constant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import check_count, check_positive, check_sample, check_samples
from .draws import TransportEstimate, over_draws, pool, positive_weights
from .sinkhorn import Domain, Solution, solve

MEMORY_BUDGET = 2 * 2**30
"""Bytes that one kernel matrix may take before it is made in blocks."""


class SelfTransport(NamedTuple):
    """``OT_eps(x, x)``, kept so that a source compared with many targets pays for it once."""

    solution: Solution
    epsilon: float
    x: Tensor
    weights: Tensor
    """The points that carry mass and their weights: reuse with any others is refused."""


def self_transport(
    x: Tensor,
    *,
    weights: Tensor | None = None,
    epsilon: float = 0.1,
    num_iters: int = 200,
    tol: float = 1e-5,
    domain: Domain = "auto",
    memory_budget: int = MEMORY_BUDGET,
) -> SelfTransport:
    """``OT_eps(x, x)`` of a sample ``x [n, d]``, to hand to `sinkhorn_divergence` as ``x_self`` or ``y_self``."""
    check_sample(x, "x")
    _check_options(epsilon, num_iters, tol, domain)
    kept, a = positive_weights(x, weights, "weights")
    solution = solve(
        kept, a, kept, a, epsilon=epsilon, num_iters=num_iters, tol=tol, domain=domain, memory_budget=memory_budget
    )
    return SelfTransport(solution, epsilon, kept, a)


def sinkhorn_divergence(
    x: Tensor,
    y: Tensor,
    *,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
    epsilon: float = 0.1,
    num_iters: int = 200,
    tol: float = 1e-5,
    domain: Domain = "auto",
    memory_budget: int = MEMORY_BUDGET,
    x_self: SelfTransport | None = None,
    y_self: SelfTransport | None = None,
    max_samples: int = 50_000,
    subsample: int = 10_000,
    num_draws: int = 5,
    generator: Generator | None = None,
) -> TransportEstimate:
    """Debiased Sinkhorn divergence ``OT_eps(x, y) - OT_eps(x, x) / 2 - OT_eps(y, y) / 2`` (``app:common-impl``).

    Args:
        x, y: samples ``[n, d]`` and ``[m, d]``, one dtype and device.
        x_weights, y_weights: nonnegative weights ``[n]``, ``[m]``, normalised here; uniform if absent. Weights below
            1e-12 of the largest count as 0.
        epsilon: entropic regularisation, in squared units of x. Not scaled by the data. Float32 samples with squared
            distances beyond 1e5 epsilon, or far below it, are solved in float64.
        num_iters: most sweeps for each of the three problems.
        tol: a problem has converged when its marginals are off by at most this much in total. What that means for the
            value is ``value_error`` in the result: usually far less, but mass that is missing between separated
            clusters costs their squared distance.
        domain: "auto" takes the kernel domain where ``exp(-C / eps)`` is in range of the dtype and the log domain
            elsewhere; the other two names force one.
        memory_budget: bytes one kernel matrix may take; above it blocks are made anew in each sweep.
        x_self, y_self: results of `self_transport` for the same sample and epsilon; of no use beyond ``max_samples``.
        max_samples: beyond this size of either sample the mean over ``num_draws`` subsamples of size ``subsample`` is
            returned with its spread, and ``generator`` is needed. Smaller samples lie further apart: the mean is biased
            upwards by about the difference of their floors (`sinkhorn_floor`).

    Returns:
        `TransportEstimate` in squared units. Slightly negative values are numerical zeros and are kept. Its standard
        error comes from the potentials, ``sqrt(Var f / n + Var g / m)`` with ``f = f_xy - f_xx``, ``g = g_xy - g_yy``:
        the central limit theorem of entropic transport (del Barrio et al., 2023).

    Raises:
        ValueError: for invalid samples or weights, a cached self term that belongs to another sample or epsilon, or
            squared distances too large for epsilon and the dtype.

    >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    >>> round(sinkhorn_divergence(x, x + torch.tensor([0.0, 2.0])).value, 4)  # a translation by t costs t^2
    4.0
    """
    check_samples(x, y)
    _check_options(epsilon, num_iters, tol, domain)

    def divergence(x: Tensor, a: Tensor | None, y: Tensor, b: Tensor | None) -> TransportEstimate:
        x_kept, a = positive_weights(x, a, "x_weights")
        y_kept, b = positive_weights(y, b, "y_weights")

        def transport(p: Tensor, p_weights: Tensor, q: Tensor, q_weights: Tensor) -> Solution:
            return solve(
                p, p_weights, q, q_weights,
                epsilon=epsilon, num_iters=num_iters, tol=tol, domain=domain, memory_budget=memory_budget,
            )  # fmt: skip

        xx = _reuse(x_self, x_kept, a, epsilon, "x_self") or transport(x_kept, a, x_kept, a)
        yy = _reuse(y_self, y_kept, b, epsilon, "y_self") or transport(y_kept, b, y_kept, b)
        xy = transport(x_kept, a, y_kept, b)
        return TransportEstimate(
            value=xy.value - (xx.value + yy.value) / 2,
            cost="squared_euclidean",
            converged=all(s.converged for s in (xy, xx, yy)),
            num_iters=xy.num_iters,
            marginal_error=max(s.marginal_error for s in (xy, xx, yy)),
            value_error=max(xy.value_error, (xx.value_error + yy.value_error) / 2),
            sample_sizes=(len(x), len(y)),
            standard_error=math.hypot(_weighted_error(xy.f - xx.f, a), _weighted_error(xy.g - yy.f, b)),
        )

    if max(len(x), len(y)) <= max_samples:
        return divergence(x, x_weights, y, y_weights)
    x_self = y_self = None  # of the whole samples
    return over_draws(divergence, x, x_weights, y, y_weights, subsample, num_draws, generator)


def sinkhorn_floor(
    x: Tensor,
    *,
    generator: Generator,
    num_splits: int = 3,
    max_half: int | None = None,
    epsilon: float = 0.1,
    num_iters: int = 200,
    tol: float = 1e-5,
) -> TransportEstimate:
    """Same-distribution floor: the mean divergence between random halves of one sample ``x [n, d]``.

    In many dimensions this is far from 0; a distance below it says nothing about a shift. The halves have n/2 points
    each, so the floor of n against n points is somewhat lower. Where the distance was that of smaller subsamples,
    ``max_half`` is their size.
    """
    check_sample(x, "x", min_samples=4)
    check_count(num_splits, "num_splits")
    half = min(len(x) // 2, len(x) if max_half is None else check_count(max_half, "max_half"))

    def between_halves() -> TransportEstimate:
        order = torch.randperm(len(x), generator=generator, device=generator.device).to(x.device)
        return sinkhorn_divergence(
            x[order[:half]], x[order[half : 2 * half]],
            epsilon=epsilon, num_iters=num_iters, tol=tol, generator=generator,
        )  # fmt: skip

    return pool([between_halves() for _ in range(num_splits)])


def _weighted_error(values: Tensor, weights: Tensor) -> float:
    """Standard error ``(sum_i a_i^2 (v_i - v_mean)^2)^1/2`` of a weighted mean; ``sd / sqrt(n)`` for equal weights."""
    return float((weights * (values - weights @ values)).norm())


def _check_options(epsilon: float, num_iters: int, tol: float, domain: str) -> None:
    check_positive(epsilon, "epsilon")
    check_positive(tol, "tol")
    check_count(num_iters, "num_iters")
    if domain not in ("auto", "kernel", "log"):
        raise ValueError(f"domain must be 'auto', 'kernel' or 'log', got {domain!r}")


def _reuse(cached: SelfTransport | None, x: Tensor, a: Tensor, epsilon: float, name: str) -> Solution | None:
    if cached is None:
        return None
    if cached.epsilon != epsilon or not (torch.equal(cached.x, x) and torch.equal(cached.weights, a)):
        raise ValueError(f"{name} was computed for another sample or epsilon: call self_transport on this sample again")
    return cached.solution
