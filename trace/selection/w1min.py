"""`w1min`: the batch to which the source is cheapest to transport (``app:domainnet-active``)."""

import math

import torch
from torch import Generator, Tensor

from ..checks import check_count
from .matching import claim_greedily, refine
from .pool import Selection, check_features, rows_left


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
        source = _subsample(source, max_sources, generator)
    n = len(source)
    shared = math.gcd(n, count)
    units = torch.full((n,), count // shared, device=source.device)
    batch, _ = claim_greedily(source, pool, available.nonzero()[:, 0], count, units, n // shared)
    batch, costs = refine(source, pool, batch, available=available, max_refinements=max_refinements)
    return Selection(batch, costs[-1], tuple(costs))


def _subsample(source: Tensor, size: int, generator: Generator | None) -> Tensor:
    if generator is None:
        raise ValueError(f"source has {len(source)} samples, more than max_sources={size}: pass a torch.Generator")
    return source[torch.randperm(len(source), generator=generator, device=generator.device)[:size].to(source.device)]
