"""`random`: the baseline of all policies."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from ..checks import check_count
from .pool import Selection, rows_left


def random(pool_size: int, count: int, *, chosen: Tensor | None = None, generator: Generator) -> Selection:
    """``count`` rows drawn uniformly without replacement from those of ``0..pool_size-1`` that are not in ``chosen``.

    Raises:
        ValueError: for ``count`` below 1 or above the rows left, or ``chosen`` that are not distinct rows of the pool.

    >>> random(5, 2, chosen=torch.tensor([0, 1, 2]), generator=torch.Generator()).indices.sort().values.tolist()
    [3, 4]
    """
    check_count(pool_size, "pool_size")
    device = chosen.device if isinstance(chosen, Tensor) else torch.device("cpu")
    available = rows_left(pool_size, count, chosen, device)
    order = torch.randperm(pool_size, generator=generator, device=generator.device).to(device)
    return Selection(order[available[order]][:count], math.nan)
