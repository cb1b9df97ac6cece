"""`mmdmin`: the batch whose MMD to the source is least, chosen greedily (``app:domainnet-active``)."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..estimators.kernels import (
    centred,
    gram,
    kernel_sum,
    of_squared_distances,
    resolve_bandwidth,
    resolving_dtype,
    thinned,
)
from .pool import Selection, check_features, rows_left

_TILE = 2048
_MAX_WITHIN = 20_000
"""A larger source is thinned evenly for its mean kernel with itself, which is the same for all batches."""


class KernelMeans(NamedTuple):
    """Mean kernel values, kept so that all rounds of one selection pay for them once."""

    within: float
    """``mean_ii' k(x_i, x_i')`` over the source, or over 20,000 rows of a larger one."""
    to_pool: Tensor
    """``mean_i k(x_i, y_j)``, ``[m]``, float64."""
    bandwidth: float
    source: Tensor
    pool: Tensor
    """The samples they belong to: reuse with any others is refused."""


@torch.no_grad()
def prepare(source: Tensor, pool: Tensor, *, bandwidth: float | None = None) -> KernelMeans:
    """Mean RBF kernel values of ``source [n, d]`` with itself and with each row of ``pool [m, d]``, by tiles.

    O(n m d) time; memory does not grow with n m. By default the bandwidth is the median heuristic.

    >>> x = torch.tensor([[0.0], [1.0]])
    >>> means = prepare(x, x[:1], bandwidth=1.0)  # the kernel at distance 1 is 0.6065
    >>> round(means.within, 4), [round(k, 4) for k in means.to_pool.tolist()]
    (0.8033, [0.8033])
    """
    check_features(source, pool)
    s = resolve_bandwidth(source, pool, "rbf", bandwidth)
    x = thinned(source, _MAX_WITHIN)
    x, _ = centred(x, x, bandwidth=s)
    within = (kernel_sum(x, x, kernel="rbf", bandwidth=s).total + len(x)) / len(x) ** 2
    return KernelMeans(within, _kernel_sums(pool, source, s) / len(source), s, source, pool)


@torch.no_grad()
def mmdmin(
    source: Tensor,
    pool: Tensor,
    count: int,
    *,
    bandwidth: float | None = None,
    chosen: Tensor | None = None,
    prepared: KernelMeans | None = None,
    generator: Generator | None = None,
) -> Selection:
    """``count`` rows of the pool, each the best next one for MMD^2 to the source: kernel herding without replacement.

    ``MMD^2(B) = mean k(x, x') + sum_BB k(y, y') / |B|^2 - 2 sum_B mean k(x, y) / |B|``, the biased value with an RBF
    kernel (``app:domainnet-active``). The greedy step is exact: the next row minimises
    ``sum_B k(y, y_j) / (|B| + 1) - mean_i k(x_i, y_j)``. Ties go to the lower index.

    Args:
        source, pool: features ``[n, d]`` and ``[m, d]``, one dtype and device.
        bandwidth: the median distance in source and pool if absent.
        chosen: rows of earlier rounds ``[c]``, not to be taken again.
        prepared: result of `prepare` for the same samples; a pick then costs O(m d) and nothing else is computed.
        generator: is not used, nothing is drawn.

    Raises:
        ValueError: for invalid samples, ``count`` below 1 or above the rows left, ``chosen`` that are not distinct
            rows of the pool, or ``prepared`` of other samples or another bandwidth.

    >>> pool = torch.tensor([[9.0], [0.1], [0.2], [2.1]])
    >>> mmdmin(torch.tensor([[0.0], [2.0]]), pool, 2, bandwidth=1.0).indices.tolist()
    [2, 3]
    """
    check_features(source, pool)
    available = rows_left(len(pool), count, chosen, pool.device)
    reused = None if prepared is None else _reuse(prepared, source, pool, bandwidth)
    means = reused or prepare(source, pool, bandwidth=bandwidth)
    y, _ = centred(pool, pool, bandwidth=means.bandwidth)
    y_squared = torch.linalg.vector_norm(y, dim=1).square()

    def kernel_to(row: int) -> Tensor:
        sq = (y @ y[row]).mul_(-2).add_(y_squared).add_(y_squared[row]).clamp_(min=0)
        sq[row] = 0
        return of_squared_distances(sq, kernel="rbf", bandwidth=means.bandwidth).double()

    to_members = torch.zeros_like(means.to_pool)  # sum_B k(y, y_j)
    members_sum, cross_sum = 0.0, 0.0
    members: list[int] = []
    values: list[float] = []
    for size in range(1, count + 1):
        score = to_members / size - means.to_pool
        row = int(score.masked_fill_(~available, torch.inf).argmin())
        members_sum += 2 * float(to_members[row]) + 1
        cross_sum += float(means.to_pool[row])
        to_members += kernel_to(row)
        available[row] = False
        members.append(row)
        values.append(means.within + members_sum / size**2 - 2 * cross_sum / size)
    return Selection(torch.tensor(members, device=pool.device), values[-1], tuple(values))


def _kernel_sums(x: Tensor, y: Tensor, bandwidth: float) -> Tensor:
    """``sum_j k(x_i, y_j)``, ``[n]`` in float64, by tiles: unlike `kernel_sum`, with no copy of either sample."""
    sums = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    dtype = resolving_dtype(x, y, x.mean(dim=0), bandwidth)
    centre = x.mean(dim=0).to(dtype)
    for rows in range(0, len(x), _TILE):
        x_tile = x[rows : rows + _TILE].to(dtype) - centre
        for columns in range(0, len(y), _TILE):
            K = gram(x_tile, y[columns : columns + _TILE].to(dtype) - centre, kernel="rbf", bandwidth=bandwidth)
            sums[rows : rows + _TILE] += K.sum(dim=1)
    return sums


def _reuse(means: KernelMeans, source: Tensor, pool: Tensor, bandwidth: float | None) -> KernelMeans:
    if not (torch.equal(means.source, source) and torch.equal(means.pool, pool)):
        raise ValueError("prepared was computed for another source or pool: call prepare on these samples")
    if bandwidth not in (None, means.bandwidth):
        raise ValueError(f"prepared was computed with bandwidth {means.bandwidth:g}, not {bandwidth:g}: leave it out")
    return means
