"""`w1min`: the batch to which the source is cheapest to transport (``app:domainnet-active``).

Every source has mass 1/n and every chosen point takes mass 1/b. In whole units of mass, so that shares never round:
a source holds ``b / gcd(n, b)`` of them and a point takes ``n / gcd(n, b)``, whether or not b divides n.
"""

import math
from typing import NamedTuple

import ot
import torch
from torch import Generator, Tensor

from ..checks import check_count
from ..estimators.kernels import squared_distances, tiles
from ..sample import drawn
from .pool import Selection, check_features, rows_left

_TILE_ENTRIES = 2**22
"""Distances, or coordinates, in one tile."""
_FIRST_BLOCK = 64
"""Points whose bounds are made exact at first in one step of the lazy greedy search; then twice as many, and so on."""
_NUM_ITERS = 10_000_000


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
    check_features(source, pool)
    available = rows_left(len(pool), count, chosen, pool.device)
    check_count(max_sources, "max_sources")
    if max_refinements < 0:
        raise ValueError(f"max_refinements must be at least 0, got {max_refinements}: 0 keeps the greedy batch")
    if len(source) > max_sources:
        if generator is None:
            raise ValueError(
                f"source has {len(source)} samples, more than max_sources={max_sources}: pass a torch.Generator"
            )
        source = drawn(source, max_sources, generator)
    n = len(source)
    shared = math.gcd(n, count)
    units = torch.full((n,), count // shared, device=source.device)
    batch, _ = claim_greedily(source, pool, available.nonzero()[:, 0], count, units, n // shared)
    batch, costs = refine(source, pool, batch, available=available, max_refinements=max_refinements)
    return Selection(batch, costs[-1], tuple(costs))


class Plan(NamedTuple):
    """An exact optimal plan with uniform weights."""

    plan: Tensor
    """``[n, b]``, float64, on the CPU."""
    cost: float
    """``sum_ij plan_ij |x_i - y_j|^2``, in squared units of x."""


class Claims(NamedTuple):
    """What each point pays for its share of the sources, and what it takes from which."""

    cost: Tensor
    """``[b]``, the mean of ``|y_j - x_i|^2`` over the mass that it takes."""
    nearest: Tensor
    """``[b, k]``, indices of sources."""
    taken: Tensor
    """``[b, k]``, units taken from them; each row sums to the quota."""


def exact_plan(x: Tensor, y: Tensor) -> Plan:
    """Optimal plan from ``x [n, d]`` to ``y [b, d]``, uniform weights, squared Euclidean cost; float64, by POT.

    >>> exact_plan(torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([[5.0], [0.0]])).cost
    0.5
    """
    x, y = x.detach().cpu().double(), y.detach().cpu().double()
    centre = x.mean(dim=0)
    cost = squared_distances(x - centre, y - centre)
    a, b = (torch.full((len(z),), 1.0 / len(z), dtype=torch.float64).numpy() for z in (x, y))
    plan = torch.as_tensor(ot.emd(a, b, cost.numpy(), numItermax=_NUM_ITERS))
    return Plan(plan, float((plan * cost).sum()))


def nearest_share(points: Tensor, sources: Tensor, units: Tensor, quota: int) -> Claims:
    """The cheapest ``quota`` units for each of ``points [b, d]`` from ``sources [n, d]`` that hold ``units [n] > 0``.

    >>> x, one_each = torch.tensor([[3.0], [1.0], [9.0]]), torch.ones(3, dtype=torch.long)
    >>> cost, nearest, _ = nearest_share(torch.zeros(1, 1), x, one_each, 2)
    >>> cost.tolist(), nearest.tolist()
    ([5.0], [[1, 0]])
    """
    k = int((units.sort().values.cumsum(dim=0) < quota).sum()) + 1  # any k sources hold the quota
    costs, nearest = squared_distances(points, sources).topk(min(k, len(units)), dim=1, largest=False)
    held = units[nearest]
    before = held.cumsum(dim=1) - held
    taken = torch.minimum(held, (quota - before).clamp_(min=0))
    return Claims((costs * taken).sum(dim=1) / quota, nearest, taken)


def claim_greedily(
    source: Tensor, pool: Tensor, candidates: Tensor, count: int, units: Tensor, quota: int
) -> tuple[Tensor, Tensor]:
    """Take ``count`` times the candidate whose nearest unclaimed ``quota`` units cost least, and claim them.

    Lazy: claims take mass away, so no candidate's cost ever falls and an old cost is a lower bound. Only candidates
    whose bound is not above the best exact cost are computed again; the result is that of the full search.

    Args:
        source, pool: ``[n, d]`` and ``[m, d]``; candidates: rows of the pool ``[c]``, ``c >= count``.
        units: mass that each source holds ``[n]``, at least ``count * quota`` in total.

    Returns:
        The rows taken, in order ``[count]``, and the units left ``[n]``.

    >>> x = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
    >>> pool = torch.tensor([[9.0], [0.5], [0.4], [5.5]])
    >>> claim_greedily(x, pool, torch.arange(4), 2, torch.ones(4).long(), 2)[0].tolist()
    [1, 3]
    """
    centre = source.mean(dim=0)
    bounds = torch.full((len(candidates),), -torch.inf, dtype=pool.dtype, device=pool.device)
    taken = []
    for _ in range(count):
        free = units.nonzero()[:, 0]
        sources, held = source[free] - centre, units[free]
        fresh = torch.isposinf(bounds)
        best, block, largest_block = math.inf, _FIRST_BLOCK, _tile_rows(len(free), pool.shape[1])
        while True:
            rows = bounds.masked_fill(fresh, torch.inf).topk(min(block, largest_block, len(bounds)), largest=False)
            stale = rows.indices[(rows.values <= best) & ~fresh[rows.indices]]
            if len(stale) == 0:
                break
            bounds[stale] = nearest_share(pool[candidates[stale]] - centre, sources, held, quota).cost
            fresh[stale] = True
            best = float(bounds.masked_fill(~fresh, torch.inf).min())
            block *= 2
        row = int(bounds.argmin())
        claims = nearest_share(pool[candidates[row], None] - centre, sources, held, quota)
        units = units.index_add(0, free[claims.nearest[0]], -claims.taken[0])
        bounds[row] = torch.inf
        taken.append(row)
    return candidates[torch.tensor(taken, dtype=torch.long, device=candidates.device)], units


def nearest_rows(points: Tensor, pool: Tensor, available: Tensor) -> Tensor:
    """Nearest row of ``pool [m, d]`` to each of ``points [b, d]`` among those marked in ``available [m]``; by tiles.

    >>> nearest_rows(torch.tensor([[0.4]]), torch.tensor([[0.0], [1.0]]), torch.tensor([False, True])).tolist()
    [1]
    """
    best = torch.full((len(points),), torch.inf, dtype=pool.dtype, device=pool.device)
    rows = torch.zeros(len(points), dtype=torch.long, device=pool.device)
    centre = points.mean(dim=0)
    for tile in tiles(len(pool), _tile_rows(len(points), pool.shape[1])):
        sq = squared_distances(points - centre, pool[tile] - centre)
        distance, row = sq.masked_fill_(~available[tile], torch.inf).min(dim=1)
        closer = distance < best
        best, rows = torch.where(closer, distance, best), torch.where(closer, row + tile.start, rows)
    return rows


def refine(
    source: Tensor, pool: Tensor, batch: Tensor, *, available: Tensor, max_refinements: int
) -> tuple[Tensor, list[float]]:
    """Lower the exact cost from ``source [n, d]`` to ``pool[batch]`` by moving the batch.

    For a plan held still, a batch point costs ``|y_j - bar x_j|^2`` times its mass plus a constant, with ``bar x_j``
    the barycentre of what it is sent. So a nearer row of the pool is a better one, all batch points can move at once,
    and the optimal plan for the new batch is better still. Ends where no point moves, or after ``max_refinements``.

    Args:
        available: rows of the pool that the batch may use ``[m]``, its own included.

    Returns:
        The batch, a moved point in the place of the old one, and the exact cost at the start and after each sweep.
    """
    plan, cost = exact_plan(source, pool[batch])
    costs = [cost]
    for _ in range(max_refinements):
        mass = plan.to(source.device, source.dtype)
        barycentres = mass.T @ source / mass.sum(dim=0)[:, None]
        moved = _moved(barycentres, pool, batch, available)
        if torch.equal(moved, batch):
            break
        plan, cost = exact_plan(source, pool[moved])
        if cost >= costs[-1]:
            break
        batch = moved
        costs.append(cost)
    return batch, costs


def _moved(barycentres: Tensor, pool: Tensor, batch: Tensor, available: Tensor) -> Tensor:
    """The batch with each point at the nearest unused row to its barycentre, if that is nearer; largest gain first."""
    unused = available.clone()
    unused[batch] = False
    if not bool(unused.any()):
        return batch
    nearest = nearest_rows(barycentres, pool, unused)
    now, then = ((pool[rows] - barycentres).square().sum(dim=1) for rows in (batch, nearest))
    moved = batch.clone()
    taken: set[int] = set()
    for j in (now - then).argsort(descending=True).tolist():
        row = int(nearest[j])
        if now[j] > then[j] and row not in taken:
            taken.add(row)
            moved[j] = row
    return moved


def _tile_rows(columns: int, d: int) -> int:
    return max(1, _TILE_ENTRIES // max(columns, d))
