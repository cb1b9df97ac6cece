"""Entropic optimal transport with squared Euclidean cost: the solver behind ``sinkhorn_divergence``.

For weights a, b and ``C_ij = |x_i - y_j|^2`` the dual problem is

    OT_eps = max_{f, g} <a, f> + <b, g> - eps <a b^T, exp((f + g - C) / eps) - 1>.

Four facts keep it fast and safe:

* Centring both clouds lowers OT_eps by exactly ``|mean_x - mean_y|^2`` (the cross terms are absorbed by f and g), so
  the solver only sees centred clouds: smaller costs, fewer sweeps, no cancellation far from the origin.
* ``K = a b^T exp((f + g - C) / eps)`` is one GEMM and one in-place exponential, and a sweep over it is two
  matrix-vector products. K is held where it fits the memory budget, else its row blocks are made anew in each sweep.
* Where ``C / eps`` exceeds the dtype's range (log domain), a log-sum-exp sweep absorbs the potentials into K; scaling
  goes on in the kernel domain until it drifts out of range, and the next absorption follows.
* Over-relaxation, with Young's factor from the observed contraction, turns the hundreds of sweeps that
  low-dimensional clouds need into tens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

import torch
from torch import Tensor

Domain = Literal["auto", "kernel", "log"]

_BLOCK_BYTES = 64 * 2**20
_BLOCK_ROWS = 1024
_RATE_WINDOW = 8
_MAX_RATE = 0.995

# exp() of anything below -_EXPONENT_ROOM is (nearly) lost; absorbed kernels may drift by _DRIFT_ROOM on either side
# before an entry that was lost could matter.
_EXPONENT_ROOM = {torch.float32: 80.0, torch.float64: 690.0}
_DRIFT_ROOM = {torch.float32: 35.0, torch.float64: 330.0}


class Solution(NamedTuple):
    """OT_eps of two clouds and how well it is known."""

    value: float
    """Dual value, in squared units of x: never above the true OT_eps, whatever the state of convergence."""
    marginal_error: float
    """``sum_i |P 1 - a|_i`` of the final plan P (its other marginal is exact)."""
    num_iters: int
    converged: bool


class _Clouds:
    """Two centred clouds with positive weights; makes ``Z = log(a b^T) + (f + g - C) / eps`` by row blocks."""

    def __init__(self, x: Tensor, a: Tensor, y: Tensor, b: Tensor, epsilon: float, memory_budget: int) -> None:
        self.symmetric = x is y and a is b
        mean_x, mean_y = a @ x, b @ y
        self.mean_gap_sq = 0.0 if self.symmetric else float((mean_x - mean_y).double().square().sum())
        self.x = x - mean_x
        self.y = self.x if self.symmetric else y - mean_y
        self.a, self.b, self.epsilon = a, b, epsilon
        self.x_sq = torch.linalg.vector_norm(self.x, dim=1).square()
        self.y_sq = self.x_sq if self.symmetric else torch.linalg.vector_norm(self.y, dim=1).square()
        row_bytes = len(y) * x.element_size()
        self.kernel_fits = len(x) * row_bytes <= memory_budget
        self.block_rows = max(1, min(_BLOCK_ROWS, min(_BLOCK_BYTES, memory_budget) // row_bytes))

    def plain_kernel_in_range(self) -> bool:
        """Whether no entry of ``a b^T exp(-C / eps)`` underflows, judged by the norms and weights alone."""
        max_cost = float((self.x_sq.max().sqrt() + self.y_sq.max().sqrt()).square())
        log_weights = float(self.a.min().log() + self.b.min().log())
        return max_cost / self.epsilon - log_weights <= _EXPONENT_ROOM[self.x.dtype]

    def row_slices(self) -> Iterator[slice]:
        for start in range(0, len(self.x), self.block_rows):
            yield slice(start, min(start + self.block_rows, len(self.x)))

    def bias(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """p, q with ``Z_ij = p_i + q_j + (2 / eps) <x_i, y_j>``."""
        return (f - self.x_sq) / self.epsilon + self.a.log(), (g - self.y_sq) / self.epsilon + self.b.log()

    def exponent(
        self, p: Tensor, q: Tensor, rows: slice, columns: slice = slice(None), out: Tensor | None = None
    ) -> Tensor:
        Z = torch.addmm(q[columns], self.x[rows], self.y[columns].T, alpha=2.0 / self.epsilon, out=out)
        return Z.add_(p[rows, None])


class _Kernel:
    """``K = exp(Z)`` for potentials f, g: one matrix if it fits the budget, else row blocks made on demand."""

    def __init__(self, clouds: _Clouds, f: Tensor, g: Tensor) -> None:
        self.clouds = clouds
        self.p, self.q = clouds.bias(f, g)
        self.held = self._fill() if clouds.kernel_fits else None

    def _fill(self) -> Tensor:
        c = self.clouds
        K = c.x.new_empty(len(c.x), len(c.y))
        for rows in c.row_slices():
            right = slice(rows.start, None) if c.symmetric else slice(None)
            c.exponent(self.p, self.q, rows, right, out=K[rows, right]).exp_()
            if c.symmetric:
                K[rows.stop :, rows] = K[rows, rows.stop :].T
        return K

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        if self.held is not None:
            yield slice(None), self.held
        else:
            for rows in self.clouds.row_slices():
                yield rows, self.clouds.exponent(self.p, self.q, rows).exp_()

    def row_sums(self, v: Tensor) -> Tensor:
        """``K v``, ``[n]``."""
        return torch.cat([K @ v for _, K in self.blocks()])


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
    """OT_eps between ``x [n, d]`` and ``y [m, d]``, positive weights that sum to 1.

    The same tensors on both sides (``y is x``, ``b is a``) are solved by symmetry.

    The potentials are ``f + eps log u`` and ``g + eps log v``: f, g sit inside the kernel, u, v scale it. Sweeps stop
    when the row marginals are off by at most ``tol`` in total, or after ``num_iters``.
    """
    clouds = _Clouds(x, a, y, b, epsilon, memory_budget)
    absorb_first = domain == "log" or (domain == "auto" and not clouds.plain_kernel_in_range())
    if domain == "kernel" and not clouds.plain_kernel_in_range():
        raise ValueError(f"epsilon={epsilon:g} is too small for the kernel domain in {x.dtype}: use domain='auto'")
    log_step, scaling_step = (_log_average, _scaling_average) if clouds.symmetric else (_log_sweep, _scaling_sweep)
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    errors: list[float] = [math.inf]
    omega, drift_room = 1.0, math.inf
    while True:
        if absorb_first:
            f, g, error = log_step(clouds, f, g)
            errors.append(error)
            drift_room = _DRIFT_ROOM[x.dtype]
        kernel = _Kernel(clouds, f, g)
        log_u, log_v = torch.zeros_like(f), torch.zeros_like(g)
        in_range = True
        while in_range and errors[-1] > tol and len(errors) <= num_iters:
            new_u, new_v, error = scaling_step(kernel, log_u, log_v, omega)
            drift = float(torch.stack([new_u.abs().max(), new_v.abs().max()]).max())
            in_range = drift <= drift_room  # false for NaN too
            if in_range:
                log_u, log_v = new_u, new_v
                errors.append(error)
                omega = _relaxation(errors, omega)
        f_now, g_now = f + epsilon * log_u, g + epsilon * log_v
        if in_range:
            return _finish(kernel, f_now, g_now, log_u, log_v, len(errors) - 1, tol)
        f, g, absorb_first = f_now, g_now, True


def _scaling_sweep(kernel: _Kernel, log_u: Tensor, log_v: Tensor, omega: float) -> tuple[Tensor, Tensor, float]:
    """Relaxed Sinkhorn sweep ``u <- u^(1-w) (a / K v)^w``, then ``v``; the error is that of the rows before it."""
    c = kernel.clouds
    v = log_v.exp()
    new_u = torch.empty_like(log_u)
    column_sums = torch.zeros_like(v)
    error = 0.0
    for rows, K in kernel.blocks():
        row_sums = K @ v
        error += float((log_u[rows].exp() * row_sums - c.a[rows]).abs().sum())
        new_u[rows] = log_u[rows] + omega * (c.a[rows].log() - row_sums.log() - log_u[rows])
        column_sums += new_u[rows].exp() @ K
    new_v = log_v + omega * (c.b.log() - column_sums.log() - log_v)
    return new_u, new_v, error


def _scaling_average(kernel: _Kernel, log_u: Tensor, log_v: Tensor, omega: float) -> tuple[Tensor, Tensor, float]:
    """Symmetric update ``u <- sqrt(u a / K u)`` (Feydy et al., 2019): a self-term needs about ten of them."""
    a = kernel.clouds.a
    row_sums = kernel.row_sums(log_u.exp())
    error = float((log_u.exp() * row_sums - a).abs().sum())
    new_u = (log_u + a.log() - row_sums.log()) / 2
    return new_u, new_u, error


def _log_sweep(clouds: _Clouds, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor, float]:
    """One Sinkhorn sweep by streamed log-sum-exp: safe for any cost, two exponentials an entry."""
    p, q = clouds.bias(f, g)
    new_f = torch.empty_like(f)
    top = torch.full_like(g, -math.inf)
    total = torch.zeros_like(g)
    error = 0.0
    for rows in clouds.row_slices():
        Z = clouds.exponent(p, q, rows)
        log_ratio = clouds.a[rows].log() - Z.logsumexp(dim=1)
        error += float((clouds.a[rows] * (torch.exp(-log_ratio) - 1)).abs().sum())
        new_f[rows] = f[rows] + clouds.epsilon * log_ratio
        Z += log_ratio[:, None]
        new_top = torch.maximum(top, Z.amax(dim=0))
        total = total * (top - new_top).exp() + Z.sub_(new_top).exp_().sum(dim=0)
        top = new_top
    new_g = g + clouds.epsilon * (clouds.b.log() - top - total.log())
    return new_f, new_g, error


def _log_average(clouds: _Clouds, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor, float]:
    """The symmetric update by log-sum-exp."""
    p, q = clouds.bias(f, g)
    log_sums = torch.cat([clouds.exponent(p, q, rows).logsumexp(dim=1) for rows in clouds.row_slices()])
    log_ratio = clouds.a.log() - log_sums
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
    kernel: _Kernel, f: Tensor, g: Tensor, log_u: Tensor, log_v: Tensor, num_iters: int, tol: float
) -> Solution:
    """Dual value and marginal error of the plan ``diag(u) K diag(v)``."""
    c = kernel.clouds
    if not c.symmetric:
        column_sums = torch.zeros_like(log_v)
        for rows, K in kernel.blocks():
            column_sums += log_u[rows].exp() @ K
        new_v = c.b.log() - column_sums.log()
        g, log_v = g + c.epsilon * (new_v - log_v), new_v
    row_sums = log_u.exp() * kernel.row_sums(log_v.exp())
    marginal_error = float((row_sums - c.a).abs().sum())
    excess_mass = float(row_sums.double().sum()) - 1.0
    dual = float((c.a.double() @ f.double()) + (c.b.double() @ g.double())) - c.epsilon * excess_mass
    return Solution(dual + c.mean_gap_sq, marginal_error, num_iters, marginal_error <= tol)
