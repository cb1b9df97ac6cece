"""`random`: the baseline of all policies."""

import math

import torch
from torch import Generator, Tensor

from ..checks import check_sample
from .pool import Selection, rows_left


def random(
    source: Tensor, pool: Tensor, count: int, *, chosen: Tensor | None = None, generator: Generator | None = None
) -> Selection:
    """``count`` rows of the pool drawn uniformly without replacement; the source is not looked at.

    Args:
        source, pool: features ``[n, d]`` and ``[m, d]``.
        chosen: rows of earlier rounds ``[c]``, not to be taken again.
        generator: must be given.

    Raises:
        ValueError: without a generator, for ``count`` below 1 or above the rows left, or ``chosen`` that are not
            distinct rows of the pool.

    >>> pool = torch.zeros(5, 1)
    >>> chosen = torch.tensor([0, 1, 2])
    >>> random(pool, pool, 2, chosen=chosen, generator=torch.Generator()).indices.sort().values.tolist()
    [3, 4]
    """
    check_sample(pool, "pool")
    if generator is None:
        raise ValueError("a random choice needs a generator: pass a torch.Generator")
    available = rows_left(len(pool), count, chosen, pool.device)
    order = torch.randperm(len(pool), generator=generator, device=generator.device).to(pool.device)
    return Selection(order[available[order]][:count], math.nan)
