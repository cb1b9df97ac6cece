"""Which rows of a pool to label next: a batch that lies close to the source (``app:domainnet-active``).

The paper writes ``B_t = argmin over |B| = b of Distance(h(S_src), h(B))``, recomputed in each round. That is a search
over subsets; `mmdmin` is its greedy solution, `w1min` greedy with refinement, and `random` the baseline of both.
Rows are returned as indices into the pool, and ``chosen`` holds those of earlier rounds, which are not taken again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from .checks import check_count, check_samples
from .estimators.kernels import (
    centred,
    gram,
    kernel_sum,
    of_squared_distances,
    resolve_bandwidth,
    resolving_dtype,
    thinned,
)
from .matching import claim_greedily, refine

_TILE = 2048
_MAX_WITHIN = 20_000
"""A larger source is thinned evenly for its mean kernel with itself, which is the same for all batches."""


class Selection(NamedTuple):
    """Rows of a pool, and how close to the source they are."""

    indices: Tensor
    """``[count]``, int64, in the order chosen, on the device of the pool."""
    objective: float
    """What was minimised, for these rows: MMD^2 or the exact transport cost; NaN for a random choice."""
    history: tuple[float, ...] = ()
    """`mmdmin`: the objective after each pick. `w1min`: after the greedy search, then after each sweep. Ends with
    ``objective``."""


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
def kernel_means(source: Tensor, pool: Tensor, *, bandwidth: float | None = None) -> KernelMeans:
    """Mean RBF kernel values of ``source [n, d]`` with itself and with each row of ``pool [m, d]``, by tiles.

    O(n m d) time; memory does not grow with n m. By default the bandwidth is the median heuristic.

    >>> x = torch.tensor([[0.0], [1.0]])
    >>> means = kernel_means(x, x[:1], bandwidth=1.0)  # the kernel at distance 1 is 0.6065
    >>> round(means.within, 4), [round(k, 4) for k in means.to_pool.tolist()]
    (0.8033, [0.8033])
    """
    _check_features(source, pool)
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
    means: KernelMeans | None = None,
) -> Selection:
    """``count`` rows of the pool, each the best next one for MMD^2 to the source: kernel herding without replacement.

    ``MMD^2(B) = mean k(x, x') + sum_BB k(y, y') / |B|^2 - 2 sum_B mean k(x, y) / |B|``, the biased value with an RBF
    kernel (``app:domainnet-active``). The greedy step is exact: the next row minimises
    ``sum_B k(y, y_j) / (|B| + 1) - mean_i k(x_i, y_j)``. Ties go to the lower index.

    Args:
        source, pool: features ``[n, d]`` and ``[m, d]``, one dtype and device.
        bandwidth: the median distance in source and pool if absent.
        chosen: rows of earlier rounds ``[c]``, not to be taken again.
        means: result of `kernel_means` for the same samples; a pick then costs O(m d) and nothing else is computed.

    Raises:
        ValueError: for invalid samples, ``count`` below 1 or above the rows left, ``chosen`` that are not distinct
            rows of the pool, or ``means`` of other samples or another bandwidth.

    >>> pool = torch.tensor([[9.0], [0.1], [0.2], [2.1]])
    >>> mmdmin(torch.tensor([[0.0], [2.0]]), pool, 2, bandwidth=1.0).indices.tolist()
    [2, 3]
    """
    _check_features(source, pool)
    available = _rows(len(pool), count, chosen, pool.device)
    means = kernel_means(source, pool, bandwidth=bandwidth) if means is None else _reuse(means, source, pool, bandwidth)
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


@torch.no_grad()
def w1min(
    source: Tensor,
    pool: Tensor,
    count: int,
    *,
    chosen: Tensor | None = None,
    max_sources: int = 2000,
    max_refinements: int = 100,
    generator: Generator | None = None,
) -> Selection:
    """``count`` rows of the pool to which the source is cheap to transport, with squared Euclidean cost.

    The objective is ``min over plans of sum_ij P_ij |x_i - y_j|^2`` with uniform weights, in squared units of the
    features (``app:domainnet-active``, where it is called W1). First greedily, each pick serving 1/count of the source:
    the row with the least mean cost to its nearest unclaimed sources takes them. Then each row moves to the unused one
    nearest to the barycentre of what the exact plan sends it, which never costs more, until none moves.

    Args:
        source, pool: features ``[n, d]`` and ``[m, d]``, one dtype and device.
        chosen: rows of earlier rounds ``[c]``, not to be taken again.
        max_sources: a larger source is replaced by a random subsample of this size, in the objective too; needs
            ``generator``.
        max_refinements: most sweeps; 0 for the greedy batch.

    Raises:
        ValueError: for invalid samples, ``count`` below 1 or above the rows left, ``chosen`` that are not distinct
            rows of the pool, or a subsample without a generator.

    >>> pool = torch.tensor([[9.0], [0.1], [0.5], [2.1]])
    >>> w1min(torch.tensor([[0.0], [2.0]]), pool, 2).indices.tolist()
    [1, 3]
    """
    _check_features(source, pool)
    available = _rows(len(pool), count, chosen, pool.device)
    check_count(max_sources, "max_sources")
    if max_refinements < 0:
        raise ValueError(f"max_refinements must be at least 0, got {max_refinements}: 0 keeps the greedy batch")
    if len(source) > max_sources:
        source = _subsample(source, max_sources, generator)
    n = len(source)
    shared = math.gcd(n, count)
    units = torch.full((n,), count // shared, device=source.device)
    batch, _ = claim_greedily(source, pool, available.nonzero()[:, 0], count, units, n // shared)
    batch, costs = refine(source, pool, batch, available=available, max_refinements=max_refinements)
    return Selection(batch, costs[-1], tuple(costs))


def random(pool_size: int, count: int, *, chosen: Tensor | None = None, generator: Generator) -> Selection:
    """``count`` rows drawn uniformly without replacement from those of ``0..pool_size-1`` that are not in ``chosen``.

    Raises:
        ValueError: for ``count`` below 1 or above the rows left, or ``chosen`` that are not distinct rows of the pool.

    >>> random(5, 2, chosen=torch.tensor([0, 1, 2]), generator=torch.Generator()).indices.sort().values.tolist()
    [3, 4]
    """
    check_count(pool_size, "pool_size")
    device = chosen.device if isinstance(chosen, Tensor) else torch.device("cpu")
    available = _rows(pool_size, count, chosen, device)
    order = torch.randperm(pool_size, generator=generator, device=generator.device).to(device)
    return Selection(order[available[order]][:count], math.nan)


def _check_features(source: Tensor, pool: Tensor) -> None:
    check_samples(source, pool, "source", "pool")
    for x, name in ((source, "source"), (pool, "pool")):
        if not bool(torch.isfinite(4 * torch.linalg.vector_norm(x, dim=1).max().square())):
            raise ValueError(f"squared distances overflow {x.dtype} (see the rows of {name}): rescale the features")


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
        raise ValueError("means were computed for another source or pool: call kernel_means on these samples")
    if bandwidth not in (None, means.bandwidth):
        raise ValueError(f"means were computed with bandwidth {means.bandwidth:g}, not {bandwidth:g}: leave it out")
    return means


def _rows(pool_size: int, count: int, chosen: Tensor | None, device: torch.device) -> Tensor:
    """Which rows are left after those of earlier rounds, ``[pool_size]``."""
    check_count(count, "count")
    earlier = torch.empty(0, dtype=torch.long) if chosen is None else chosen
    if not isinstance(earlier, Tensor) or earlier.ndim != 1 or earlier.dtype not in (torch.int32, torch.int64):
        raise ValueError("chosen must be an integer tensor of shape [c]: pass the indices of an earlier Selection")
    if len(earlier) and not (int(earlier.min()) >= 0 and int(earlier.max()) < pool_size):
        raise ValueError(
            f"chosen holds rows {int(earlier.min())} to {int(earlier.max())}, but the pool has rows "
            f"0 to {pool_size - 1}: pass indices into this pool"
        )
    available = torch.ones(pool_size, dtype=torch.bool, device=device)
    available[earlier.to(device, torch.long)] = False
    left = int(available.sum())
    if left != pool_size - len(earlier):
        raise ValueError("chosen holds a row more than once: pass each row of the pool once")
    if count > left:
        raise ValueError(f"count is {count}, but the pool has {left} rows left: ask for fewer or enlarge the pool")
    return available


def _subsample(source: Tensor, size: int, generator: Generator | None) -> Tensor:
    if generator is None:
        raise ValueError(f"source has {len(source)} samples, more than max_sources={size}: pass a torch.Generator")
    return source[torch.randperm(len(source), generator=generator, device=generator.device)[:size].to(source.device)]
