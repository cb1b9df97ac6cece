"""Entropic optimal transport with squared Euclidean cost: the solver behind ``sinkhorn_divergence``.

For weights a, b and ``C_ij = |x_i - y_j|^2`` the dual problem is

    OT_eps = max_{f, g} <a, f> + <b, g> - eps <a b^T, exp((f + g - C) / eps) - 1>.

Four facts keep it fast and safe:

* Centring both clouds lowers OT_eps by exactly ``|mean_x - mean_y|^2`` (the cross terms are absorbed by f and g), so
  the solver only sees centred clouds: smaller costs, fewer sweeps, no cancellation far from the origin.
* ``K = a b^T exp((f + g - C) / eps)`` is one GEMM and one in-place exponential, and a sweep over it is two
  matrix-vector products. Row blocks of K are kept while they fit the memory budget, the others made anew in each
  sweep; of a self term only the upper half exists.
* Where ``C / eps`` exceeds the dtype's range (log domain), a log-sum-exp sweep absorbs the potentials into K; scaling
  goes on in the kernel domain until it drifts out of range, and the next absorption follows.
* Over-relaxation, with Young's factor from the observed contraction, turns the hundreds of sweeps that
  low-dimensional clouds need into tens.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .gibbs import Clouds, GibbsKernel, product, resolved_clouds

Domain = Literal["auto", "kernel", "log"]

_RATE_WINDOW = 8
_MAX_RATE = 0.995
_DRIFT_ROOM = {torch.float32: 35.0, torch.float64: 330.0}
"""How far u and v may drift on either side before an entry of an absorbed kernel that was lost could matter."""


class Solution(NamedTuple):
    """OT_eps of two clouds and how well it is known."""

    value: float
    """Dual value, in squared units of x: never above the true OT_eps, whatever the state of convergence."""
    value_error: float
    """The true OT_eps is at most this much larger: ``|P 1 - a|_1 (max C + osc f) / 2``, by concavity of the dual."""
    marginal_error: float
    """``|P 1 - a|_1`` of the final plan P (its other marginal is exact)."""
    num_iters: int
    converged: bool
    f: Tensor
    g: Tensor
    """Dual potentials ``[n]`` and ``[m]`` of the clouds as given (not centred), each up to a constant."""


@torch.no_grad()
def solve(
    x: Tensor,
    a: Tensor,
    y: Tensor,
    b: Tensor,
    *,
    epsilon: float,
    num_iters: int,
    tol: float,
    domain: Domain,
    memory_budget: int,
) -> Solution:
    """OT_eps between ``x [n, d]`` and ``y [m, d]``, with positive float64 weights that sum to 1.

    The same tensors on both sides (``y is x``, ``b is a``) are solved by symmetry. The potentials are
    ``f + eps log u`` and ``g + eps log v``: f, g sit inside the kernel, u, v scale it. Sweeps stop when the marginals
    are off by at most ``tol`` in total, or after ``num_iters``.
    """
    clouds = resolved_clouds(x, a, y, b, epsilon, memory_budget)
    absorb = domain == "log" or not clouds.plain_kernel_in_range()
    if domain == "kernel" and absorb:
        raise ValueError(
            f"epsilon={epsilon:g} is too small for the kernel domain in {clouds.x.dtype}: use domain='auto'"
        )
    log_step, scaling_step = (_log_average, _scaling_average) if clouds.symmetric else (_log_sweep, _scaling_sweep)
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    errors: list[float] = [math.inf]
    omega, goal, drift_room = 1.0, tol, math.inf
    while True:
        if absorb:
            f, g, error = log_step(clouds, f, g)
            errors.append(error)
            drift_room = _DRIFT_ROOM[clouds.x.dtype]
        kernel = GibbsKernel(clouds, f, g)
        log_u, log_v = torch.zeros_like(f), torch.zeros_like(g)
        while True:
            used = len(errors) - 1
            if errors[-1] <= goal or used >= num_iters:
                solution = _finish(kernel, f + epsilon * log_u, g + epsilon * log_v, log_u, log_v, used, tol)
                if solution.converged or used >= num_iters:
                    return solution
                goal /= 2  # the error that met it was measured before the last sweep
            new_u, new_v, error = scaling_step(kernel, log_u, log_v, omega)
            drift = float(torch.stack([new_u.abs().max(), new_v.abs().max()]).max())
            if not drift <= drift_room:  # NaN too
                break
            log_u, log_v = new_u, new_v
            errors.append(error)
            omega = _relaxation(errors, omega)
        f, g, absorb = f + epsilon * log_u, g + epsilon * log_v, True


def _scaling_sweep(kernel: GibbsKernel, log_u: Tensor, log_v: Tensor, omega: float) -> tuple[Tensor, Tensor, float]:
    """Relaxed Sinkhorn sweep ``u <- u^(1-w) (a / K v)^w``, then ``v``; the error is that of the rows before it."""
    c = kernel.clouds
    v = log_v.exp()
    new_u = torch.empty_like(log_u)
    column_sums = torch.zeros_like(v)
    error = v.new_zeros(())
    for rows, K in kernel.blocks():
        row_sums = product(K, v)
        error += (log_u[rows].exp() * row_sums - c.a[rows]).abs().sum()
        new_u[rows] = log_u[rows] + omega * (c.a[rows].log() - row_sums.log() - log_u[rows])
        column_sums += product(K.T, new_u[rows].exp())
    new_v = log_v + omega * (c.b.log() - column_sums.log() - log_v)
    return new_u, new_v, float(error)


def _scaling_average(kernel: GibbsKernel, log_u: Tensor, _log_v: Tensor, _omega: float) -> tuple[Tensor, Tensor, float]:
    """Symmetric update ``u <- sqrt(u a / K u)`` (Feydy et al., 2019): a self-term needs about ten of them."""
    a = kernel.clouds.a
    row_sums = kernel.row_sums(log_u.exp())
    error = float((log_u.exp() * row_sums - a).abs().sum())
    new_u = (log_u + a.log() - row_sums.log()) / 2
    return new_u, new_u, error


def _log_sweep(clouds: Clouds, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor, float]:
    """One Sinkhorn sweep by streamed log-sum-exp: safe for any cost, two exponentials an entry."""
    p, q = clouds.bias(f, g)
    new_f = torch.empty_like(f)
    top = torch.full_like(q, -math.inf)
    total = torch.zeros_like(g)
    error = f.new_zeros(())
    for rows in clouds.row_slices():
        Z = clouds.exponent(p, q, rows)
        log_ratio = clouds.a[rows].log() - Z.logsumexp(dim=1).double()
        error += (clouds.a[rows] * (torch.exp(-log_ratio) - 1)).abs().sum()
        new_f[rows] = f[rows] + clouds.epsilon * log_ratio
        Z += log_ratio[:, None].to(Z.dtype)
        new_top = torch.maximum(top, Z.amax(dim=0))
        total = total * (top - new_top).exp() + Z.sub_(new_top).exp_().sum(dim=0, dtype=torch.float64)
        top = new_top
    new_g = g + clouds.epsilon * (clouds.b.log() - top.double() - total.log())
    return new_f, new_g, float(error)


def _log_average(clouds: Clouds, f: Tensor, _g: Tensor) -> tuple[Tensor, Tensor, float]:
    """The symmetric update by log-sum-exp."""
    p, q = clouds.bias(f, f)
    log_sums = torch.cat([clouds.exponent(p, q, rows).logsumexp(dim=1) for rows in clouds.row_slices()])
    log_ratio = clouds.a.log() - log_sums.double()
    error = float((clouds.a * (torch.exp(-log_ratio) - 1)).abs().sum())
    new_f = f + clouds.epsilon * log_ratio / 2
    return new_f, new_f, error


def _relaxation(errors: list[float], omega: float) -> float:
    """Young's factor ``2 / (1 + sqrt(1 - rho))``, rho being the plain rate implied by the last sweeps' contraction.

    With factor w and observed rate l, ``(l + w - 1)^2 = l w^2 rho``. The rate is read off the second half of each
    window, past the transient of the last change; growth resets the factor.
    """
    half = _RATE_WINDOW // 2
    settled = len(errors) - 2
    if settled < _RATE_WINDOW or settled % _RATE_WINDOW:
        return omega
    rate = (errors[-1] / errors[-1 - half]) ** (1 / half)
    if not 0 < rate < 1:
        return 1.0
    implied = (rate + omega - 1) ** 2 / (rate * omega**2)
    return 2 / (1 + math.sqrt(1 - min(implied, _MAX_RATE)))


def _finish(
    kernel: GibbsKernel, f: Tensor, g: Tensor, log_u: Tensor, log_v: Tensor, num_iters: int, tol: float
) -> Solution:
    """Value and marginal error after one plain half-step in g, which makes the plan's mass exactly 1."""
    c = kernel.clouds
    u = log_u.exp()
    if c.symmetric:
        new_v = c.b.log() - kernel.row_sums(u).log()
    else:
        column_sums = torch.zeros_like(log_v)
        for rows, K in kernel.blocks():
            column_sums += product(K.T, u[rows])
        new_v = c.b.log() - column_sums.log()
    g = g + c.epsilon * (new_v - log_v)
    marginal_error = float((u * kernel.row_sums(new_v.exp()) - c.a).abs().sum())
    value = float(c.a @ f + c.b @ g) + c.centring
    value_error = marginal_error * (c.max_exponent() * c.epsilon + float(f.max() - f.min())) / 2
    f, g = c.uncentred(f, g)
    return Solution(value, value_error, marginal_error, num_iters, marginal_error <= tol, f, g)
