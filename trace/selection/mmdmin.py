"""`mmdmin`: the batch whose MMD to the source is least, chosen greedily (``app:domainnet-active``)."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..estimators.kernels import (
    centred,
    gram,
    in_dtype,
    kernel_sum,
    of_squared_distances,
    resolve_bandwidth,
    resolving_dtype,
    thinned,
    tiles,
)
from ..hardware import wide
from .pool import Selection, check_features, rows_left

_TILE = 2048
_MAX_WITHIN = 20_000
"""A larger source is thinned evenly for its mean kernel with itself, which is the same for all batches."""


class KernelMeans(NamedTuple):
    """Mean kernel values, kept so that all rounds of one selection pay for them once."""

    within: float
    """``mean_ii' k(x_i, x_i')`` over the source, or over 20,000 rows of a larger one."""
    to_pool: Tensor
    """``mean_i k(x_i, y_j)``, ``[m]``, in the `wide` dtype."""
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
    if prepared is not None:
        _check_reuse(prepared, source, pool, bandwidth)
    means = prepared or prepare(source, pool, bandwidth=bandwidth)
    y, _ = centred(pool, pool, bandwidth=means.bandwidth)
    y_squared = torch.linalg.vector_norm(y, dim=1).square()

    def kernel_to(row: Tensor) -> Tensor:
        row = row.to(y.device)
        sq = (y @ y[row][0]).mul_(-2).add_(y_squared).add_(y_squared[row]).clamp_(min=0).index_fill_(0, row, 0)
        return of_squared_distances(sq, kernel="rbf", bandwidth=means.bandwidth).to(to_members)

    to_members = torch.zeros_like(means.to_pool)  # sum_B k(y, y_j)
    members_sum, cross_sum = torch.zeros_like(to_members[:1]), torch.zeros_like(to_members[:1])
    members: list[Tensor] = []
    values: list[Tensor] = []
    for size in range(1, count + 1):
        score = to_members / size - means.to_pool
        row = score.masked_fill_(~available, torch.inf).argmin(dim=0, keepdim=True)
        members_sum = members_sum + (2 * to_members[row] + 1)
        cross_sum = cross_sum + means.to_pool[row]
        to_members += kernel_to(row)
        available.index_fill_(0, row, False)
        members.append(row)
        values.append(means.within + members_sum / size**2 - 2 * cross_sum / size)
    history = torch.cat(values).tolist()
    return Selection(torch.cat(members), history[-1], tuple(history))


def _kernel_sums(x: Tensor, y: Tensor, bandwidth: float) -> Tensor:
    """``sum_j k(x_i, y_j)``, ``[n]`` in the `wide` dtype, by tiles: unlike `kernel_sum` with no copy of a sample."""
    sums = torch.zeros(len(x), dtype=wide(x.device), device=x.device)
    dtype = resolving_dtype(x, y, x.mean(dim=0), bandwidth)
    centre = in_dtype(x.mean(dim=0), dtype)
    for rows in tiles(len(x), _TILE):
        x_tile = in_dtype(x[rows], dtype) - centre
        for columns in tiles(len(y), _TILE):
            K = gram(x_tile, in_dtype(y[columns], dtype) - centre, kernel="rbf", bandwidth=bandwidth)
            sums[rows] += K.sum(dim=1).to(sums.device)
    return sums


def _check_reuse(means: KernelMeans, source: Tensor, pool: Tensor, bandwidth: float | None) -> None:
    if not (torch.equal(means.source, source) and torch.equal(means.pool, pool)):
        raise ValueError("prepared was computed for another source or pool: call prepare on these samples")
    if bandwidth not in (None, means.bandwidth):
        raise ValueError(f"prepared was computed with bandwidth {means.bandwidth:g}, not {bandwidth:g}: leave it out")
