"""Model change: how far two models' outputs lie apart on one sample (``prop:model_change_bound``)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_paired, check_positive
from ..hardware import doubled
from ..losses import centred_change_norms
from ..stats.betting import Tally, tally


class OutputDistance(NamedTuple):
    """Mean distances between two models' clipped logits."""

    value: float
    """``mean |z~ - z|``, the M_l2 of the paper's text."""
    squared: float
    """``mean |z~ - z|^2``, the reading that fits the sizes in the paper's tables."""
    centred: float
    """``mean |(z~ - z) - mean_c(z~ - z)|``: cross-entropy ignores a constant added to all logits."""
    centred_squared: float
    standard_error: float
    """Of ``value``; NaN for one sample."""
    num_samples: int
    tally: Tally | None = None
    """Of the distances, between 0 and the largest that clipped logits can have; None where there is no largest."""


def output_distance(
    logits: Tensor, new_logits: Tensor, *, clip_at: float | None = 10.0, reach: float | None = None
) -> OutputDistance:
    """``M_l2 = (1 / n) sum_i |f_Q(x_i) - f_Q~(x_i)|_2`` (``prop:model_change_bound``, ``app:common-impl``).

    Args:
        logits, new_logits: ``[n, C]``, both models on the same inputs.
        clip_at: logits are clipped to ``[-clip_at, clip_at]`` first, as the loss does; None leaves them.
        reach: the largest distance there can be; without it, what clipping leaves.

    >>> output_distance(torch.zeros(2, 2), torch.tensor([[3.0, 4.0], [1.0, 1.0]])).value > 3
    True
    """
    check_paired(logits, new_logits, "logits", "new_logits")
    if clip_at is not None:
        check_positive(clip_at, "clip_at")
        logits, new_logits = logits.clamp(-clip_at, clip_at), new_logits.clamp(-clip_at, clip_at)
    change = doubled(new_logits - logits)
    norms = torch.linalg.vector_norm(change, dim=1).cpu()
    centred_norms = centred_change_norms(change).cpu()
    if reach is None:
        reach = math.inf if clip_at is None else 2 * clip_at * math.sqrt(change.shape[1])
    return OutputDistance(
        value=float(norms.mean()),
        squared=float(norms.square().mean()),
        centred=float(centred_norms.mean()),
        centred_squared=float(centred_norms.square().mean()),
        standard_error=float(norms.std(correction=1) / math.sqrt(len(norms))) if len(norms) > 1 else math.nan,
        num_samples=len(norms),
        tally=tally(norms, 0, reach) if math.isfinite(reach) else None,
    )
