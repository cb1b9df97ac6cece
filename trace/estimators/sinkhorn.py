"""Debiased Sinkhorn divergence between two samples (``app:common-impl``).

The paper calls it W1. With squared Euclidean cost it is close to W2^2 instead: moving a cloud by t costs t^2. It is
offered under its own name as the published quantity; `wasserstein1` is what the theory multiplies by a Lipschitz
constant.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import check_count, check_positive, check_sample, check_samples
from ..hardware import doubled, free_bytes, placed
from .draws import TransportEstimate, over_draws, pool, positive_weights
from .kernels import tiles

TOL = 1e-5
"""By how much marginals may be off in total, unless told."""
_BLOCK_BYTES = 64 * 2**20
_BLOCK_ROWS = 1024
_CACHE_BYTES = 8 * 2**20
"""Of a narrow kernel this much is widened at once: it stays in the processor's cache for both products."""
NARROW_ABOVE = 12 * 2**30
"""Bytes beyond which a float32 kernel is kept in bfloat16, whatever memory is free, so that values do not depend on it.

Half the memory, but a product takes longer: what fits is faster as it is.

Rounding ``K (1 + r)``, ``|r| <= delta``, is a change of the cost by ``-eps log(1 + r)``, and OT_eps moves by no more
than the largest change of the cost: ``eps log(1 / (1 - delta))``, 4e-4 at epsilon 0.1. It is part of ``value_error``.
"""
_EXPONENT_ROOM = {torch.float32: 80.0, torch.float64: 690.0}
"""``exp`` of anything below minus this is (nearly) lost."""


class Clouds:
    """Two centred clouds with positive weights; makes ``Z = log(a b^T) + (f + g - C) / eps`` by row blocks.

    Vectors (weights, potentials) are float64 wherever the device has it, matrices have the dtype of the samples.
    """

    def __init__(self, x: Tensor, a: Tensor, y: Tensor, b: Tensor, epsilon: float, memory_budget: int) -> None:
        self.symmetric = x is y and a is b
        centre_x, centre_y = a.to(x.dtype) @ x, b.to(y.dtype) @ y
        self.x = x - centre_x
        self.y = self.x if self.symmetric else y - centre_y
        self.gap = gap = (centre_x - centre_y).to(a.dtype)
        rounding = (a.to(x.dtype) @ self.x - b.to(y.dtype) @ self.y).to(a.dtype)
        self.a, self.b, self.epsilon = a, b, epsilon
        self.x_sq = torch.linalg.vector_norm(self.x, dim=1).to(a.dtype).square()
        self.y_sq = self.x_sq if self.symmetric else torch.linalg.vector_norm(self.y, dim=1).to(a.dtype).square()
        known = [gap @ (gap + 2 * rounding), self.x_sq.max(), self.y_sq.max(), a.min(), b.min()]
        self.centring, *largest, self.least_a, self.least_b = torch.stack(known).tolist()
        self.max_exponent = sum(map(math.sqrt, largest)) ** 2 / epsilon
        """An upper bound on ``C / eps``, from the norms alone."""
        row_bytes = len(y) * x.element_size()
        self.memory_budget = memory_budget
        self.narrow = x.dtype == torch.float32 and len(x) * row_bytes > NARROW_ABOVE
        self.row_slices = list(tiles(len(x), max(1, min(_BLOCK_ROWS, min(_BLOCK_BYTES, memory_budget) // row_bytes))))

    def uncentred(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Potentials of the clouds before centring: ``f + 2 <x, gap>``, ``g - 2 <y, gap>``, up to constants."""
        if self.symmetric:
            return f, g
        slope = 2 * self.gap.to(self.x.dtype)
        return f + (self.x @ slope).to(f.dtype), g - (self.y @ slope).to(g.dtype)

    def resolved(self) -> bool:
        """Whether rounding moves exponents by less than 0.01, and potentials (of size eps) by little against C."""
        rounding = torch.finfo(self.x.dtype).eps
        return 1e4 * rounding <= self.max_exponent <= 0.01 / rounding

    def plain_kernel_in_range(self) -> bool:
        """Whether no entry of ``a b^T exp(-C / eps)`` underflows."""
        log_weights = math.log(self.least_a) + math.log(self.least_b)
        return self.max_exponent - log_weights <= _EXPONENT_ROOM[self.x.dtype]

    def bias(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """p, q with ``Z_ij = p_i + q_j + (2 / eps) <x_i, y_j>``."""
        p = (f - self.x_sq) / self.epsilon + self.a.log()
        q = (g - self.y_sq) / self.epsilon + self.b.log()
        return p.to(self.x.dtype), q.to(self.x.dtype)

    def exponent(self, p: Tensor, q: Tensor, rows: slice, columns: slice = slice(None)) -> Tensor:
        return torch.addmm(q[columns], self.x[rows], self.y[columns].T, alpha=2.0 / self.epsilon).add_(p[rows, None])


class GibbsKernel:
    """``K = exp(Z)`` for potentials f, g by row blocks: as many as fit the budget are kept, the others made on demand.

    Of a symmetric kernel only the part from the diagonal block to the right exists. A narrow one is rounded to bfloat16
    whether its blocks are kept or not, so that all sweeps see one kernel.
    """

    def __init__(self, clouds: Clouds, f: Tensor, g: Tensor) -> None:
        self.clouds = clouds
        self.p, self.q = clouds.bias(f, g)
        self._held: list[Tensor] = []
        room = clouds.memory_budget
        entry_bytes = 2 if clouds.narrow else clouds.x.element_size()
        for rows in clouds.row_slices:
            room -= (rows.stop - rows.start) * (len(clouds.y) - self._right(rows).start) * entry_bytes
            if room < 0:
                break
            self._held.append(self._block(rows))

    @property
    def rounding_error(self) -> float:
        """How far rounding the kernel may move OT_eps."""
        return -self.clouds.epsilon * math.log1p(-torch.finfo(torch.bfloat16).eps / 2) if self.clouds.narrow else 0.0

    def _right(self, rows: slice) -> slice:
        return slice(rows.start if self.clouds.symmetric else 0, len(self.clouds.y))

    def _block(self, rows: slice) -> Tensor:
        K = self.clouds.exponent(self.p, self.q, rows, self._right(rows)).exp_()
        return K.bfloat16() if self.clouds.narrow else K

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Rows, and the entries of K in them from column ``rows.start`` of a symmetric kernel on, else all."""
        for number, rows in enumerate(self.clouds.row_slices):
            K = self._held[number] if number < len(self._held) else self._block(rows)
            if not self.clouds.narrow:
                yield rows, K
                continue
            for part in tiles(len(K), max(1, _CACHE_BYTES // (4 * K.shape[1]))):
                start = part.start if self.clouds.symmetric else 0
                yield slice(rows.start + part.start, rows.start + part.stop), K[part, start:].float()

    def row_sums(self, v: Tensor) -> Tensor:
        """``K v``, ``[n]``."""
        sums = v.new_zeros(len(self.clouds.x))
        for rows, K in self.blocks():
            sums[rows] += product(K, v[self._right(rows)])
            if self.clouds.symmetric:
                sums[rows.stop :] += product(K[:, rows.stop - rows.start :].T, v[rows])
        return sums


def product(K: Tensor, v: Tensor) -> Tensor:
    """``K v`` in the dtype of K, returned in that of v."""
    return (K @ v.to(K.dtype)).to(v.dtype)


def resolved_clouds(x: Tensor, a: Tensor, y: Tensor, b: Tensor, epsilon: float, memory_budget: int) -> Clouds:
    """The clouds in their own dtype if it resolves ``C / eps`` and ``eps``, else in float64, else an error."""
    clouds = Clouds(x, a, y, b, epsilon, memory_budget)
    if clouds.resolved():
        return clouds
    if x.dtype != torch.float64:
        x64, a64 = doubled(x), doubled(a)
        y64, b64 = (x64, a64) if clouds.symmetric else (doubled(y), doubled(b))
        clouds = Clouds(x64, a64, y64, b64, epsilon, memory_budget)
    if not clouds.max_exponent <= 0.01 / torch.finfo(torch.float64).eps:
        raise ValueError(
            f"squared distances reach {clouds.max_exponent:.0e} epsilon, more than float64 resolves: "
            "rescale the samples, drop outliers or raise epsilon (on the command line --set epsilon=...)"
        )
    return clouds


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
    rounding_error: float = 0.0
    """What a kernel in bfloat16 may change either way (`NARROW_ABOVE`)."""


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
    memory_budget: int | None,
) -> Solution:
    """OT_eps between ``x [n, d]`` and ``y [m, d]``, with positive float64 weights that sum to 1.

    The same tensors on both sides (``y is x``, ``b is a``) are solved by symmetry. The potentials are
    ``f + eps log u`` and ``g + eps log v``: f, g sit inside the kernel, u, v scale it. Sweeps stop when the marginals
    are off by at most ``tol`` in total, or after ``num_iters``.
    """
    budget = memory_for_kernels(x.device) if memory_budget is None else memory_budget
    clouds = resolved_clouds(x, a, y, b, epsilon, budget)
    absorb = domain == "log" or not clouds.plain_kernel_in_range()
    if domain == "kernel" and absorb:
        raise ValueError(
            f"epsilon={epsilon:g} is too small for the kernel domain in {clouds.x.dtype}: use domain='auto'"
        )
    log_step, scaling_step = (_log_average, _scaling_average) if clouds.symmetric else (_log_sweep, _scaling_sweep)
    f, g = torch.zeros_like(clouds.a), torch.zeros_like(clouds.b)
    errors: list[float] = [math.inf]
    omega, goal, drift_room = 1.0, tol, math.inf
    while True:
        if absorb:
            f, g, error = log_step(clouds, f, g)
            errors.append(float(error))
            drift_room = _DRIFT_ROOM[clouds.x.dtype]
        kernel = GibbsKernel(clouds, f, g)
        log_u, log_v = torch.zeros_like(f), torch.zeros_like(g)
        while True:
            used = len(errors) - 1
            if errors[-1] <= goal or used >= num_iters:
                solution = _finish(kernel, f + epsilon * log_u, g + epsilon * log_v, log_u, log_v, used, tol)
                if solution.converged or used >= num_iters:
                    return solution._replace(f=solution.f.to(a), g=solution.g.to(b))
                goal /= 2  # the error that met it was measured before the last sweep
            new_u, new_v, found = scaling_step(kernel, log_u, log_v, omega)
            error, *drifts = torch.stack([found, new_u.abs().max(), new_v.abs().max()]).tolist()
            if not all(drift <= drift_room for drift in drifts):  # NaN too
                break
            log_u, log_v = new_u, new_v
            errors.append(error)
            omega = _relaxation(errors, omega)
        f, g, absorb = f + epsilon * log_u, g + epsilon * log_v, True


def _scaling_sweep(kernel: GibbsKernel, log_u: Tensor, log_v: Tensor, omega: float) -> tuple[Tensor, Tensor, Tensor]:
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
    return new_u, new_v, error


def _scaling_average(
    kernel: GibbsKernel, log_u: Tensor, _log_v: Tensor, _omega: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Symmetric update ``u <- sqrt(u a / K u)`` (Feydy et al., 2019): a self-term needs about ten of them."""
    a = kernel.clouds.a
    row_sums = kernel.row_sums(log_u.exp())
    error = (log_u.exp() * row_sums - a).abs().sum()
    new_u = (log_u + a.log() - row_sums.log()) / 2
    return new_u, new_u, error


def _log_sweep(clouds: Clouds, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One Sinkhorn sweep by streamed log-sum-exp: safe for any cost, two exponentials an entry."""
    p, q = clouds.bias(f, g)
    new_f = torch.empty_like(f)
    top = torch.full_like(q, -math.inf)
    total = torch.zeros_like(g)
    error = f.new_zeros(())
    for rows in clouds.row_slices:
        Z = clouds.exponent(p, q, rows)
        log_ratio = clouds.a[rows].log() - Z.logsumexp(dim=1).to(f.dtype)
        error += (clouds.a[rows] * (torch.exp(-log_ratio) - 1)).abs().sum()
        new_f[rows] = f[rows] + clouds.epsilon * log_ratio
        Z += log_ratio[:, None].to(Z.dtype)
        new_top = torch.maximum(top, Z.amax(dim=0))
        total = total * (top - new_top).exp() + Z.sub_(new_top).exp_().sum(dim=0, dtype=g.dtype)
        top = new_top
    new_g = g + clouds.epsilon * (clouds.b.log() - top.to(g.dtype) - total.log())
    return new_f, new_g, error


def _log_average(clouds: Clouds, f: Tensor, _g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The symmetric update by log-sum-exp."""
    p, q = clouds.bias(f, f)
    log_sums = torch.cat([clouds.exponent(p, q, rows).logsumexp(dim=1) for rows in clouds.row_slices])
    log_ratio = clouds.a.log() - log_sums.to(f.dtype)
    error = (clouds.a * (torch.exp(-log_ratio) - 1)).abs().sum()
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
    off = (u * kernel.row_sums(new_v.exp()) - c.a).abs().sum()
    a, b, f64, g64 = map(doubled, (c.a, c.b, f, g))
    value, marginal_error, width = torch.stack([a @ f64 + b @ g64, doubled(off), f64.max() - f64.min()]).tolist()
    value += c.centring
    value_error = marginal_error * (c.max_exponent * c.epsilon + width) / 2
    f, g = c.uncentred(f, g)
    converged = marginal_error <= tol
    return Solution(value, value_error, marginal_error, num_iters, converged, f, g, kernel.rounding_error)


def memory_for_kernels(device: torch.device) -> int:
    """Bytes that one kernel matrix may take by default: half of what is free."""
    return free_bytes(device) // 2


def most_samples(device: torch.device) -> int:
    """Samples beyond which the divergence is that of subsamples by default: more on a GPU than a CPU has time for."""
    return 50_000 if device.type == "cpu" else 200_000


class SelfTransport(NamedTuple):
    """``OT_eps(x, x)``, kept so that a source compared with many targets pays for it once."""

    solution: Solution
    epsilon: float
    x: Tensor
    weights: Tensor
    """The points that carry mass and their weights: reuse with any others is refused."""

    def to(self, device: str | torch.device) -> "SelfTransport":
        """The same on a device."""
        there = torch.device(device)
        f, g, x, weights = (placed(z, there) for z in (self.solution.f, self.solution.g, self.x, self.weights))
        return self._replace(solution=self.solution._replace(f=f, g=g), x=x, weights=weights)


def self_transport(
    x: Tensor,
    *,
    weights: Tensor | None = None,
    epsilon: float = 0.1,
    num_iters: int = 200,
    tol: float = TOL,
    domain: Domain = "auto",
    memory_budget: int | None = None,
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
    tol: float = TOL,
    domain: Domain = "auto",
    memory_budget: int | None = None,
    x_self: SelfTransport | None = None,
    y_self: SelfTransport | None = None,
    max_samples: int | None = None,
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
        memory_budget: bytes one kernel matrix may take, by default half of what is free on the device; above it blocks
            are made anew in each sweep. Float32 kernels beyond 12 GiB are kept in bfloat16: the value is then that of
            costs moved by up to ``eps / 255``, which ``value_error`` knows.
        x_self, y_self: results of `self_transport` for the same sample and epsilon; of no use beyond ``max_samples``.
        max_samples: beyond this size of either sample, by default 50,000 and on a GPU 200,000, the mean over
            ``num_draws`` subsamples of size ``subsample`` is returned with its spread, and ``generator`` is needed.
            Smaller samples lie further apart: the mean is biased upwards by about the difference of their floors
            (`sinkhorn_floor`).

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
        transport = partial(
            solve, epsilon=epsilon, num_iters=num_iters, tol=tol, domain=domain, memory_budget=memory_budget
        )
        xx = _reuse(x_self, x_kept, a, epsilon, "x_self") or transport(x_kept, a, x_kept, a)
        yy = _reuse(y_self, y_kept, b, epsilon, "y_self") or transport(y_kept, b, y_kept, b)
        xy = transport(x_kept, a, y_kept, b)
        return TransportEstimate(
            value=xy.value - (xx.value + yy.value) / 2,
            cost="squared_euclidean",
            converged=all(s.converged for s in (xy, xx, yy)),
            num_iters=xy.num_iters,
            marginal_error=max(s.marginal_error for s in (xy, xx, yy)),
            value_error=max(xy.value_error, (xx.value_error + yy.value_error) / 2)
            + xy.rounding_error
            + (xx.rounding_error + yy.rounding_error) / 2,
            sample_sizes=(len(x), len(y)),
            standard_error=math.hypot(_weighted_error(xy.f - xx.f, a), _weighted_error(xy.g - yy.f, b)),
        )

    if max(len(x), len(y)) <= (most_samples(x.device) if max_samples is None else max_samples):
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
    tol: float = TOL,
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
            x[order[:half]],
            x[order[half : 2 * half]],
            epsilon=epsilon,
            num_iters=num_iters,
            tol=tol,
            generator=generator,
        )

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
