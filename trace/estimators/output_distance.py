"""Model change: how far two models' outputs lie apart on one sample (``prop:model_change_bound``)."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_paired, check_positive
from ..losses import centred_change_norms


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
    reach: float = math.inf
    """The largest distance that clipped logits can have."""


def output_distance(logits: Tensor, new_logits: Tensor, *, clip_at: float | None = 10.0) -> OutputDistance:
    """``M_l2 = (1 / n) sum_i |f_Q(x_i) - f_Q~(x_i)|_2`` (``prop:model_change_bound``, ``app:common-impl``).

    Args:
        logits, new_logits: ``[n, C]``, both models on the same inputs.
        clip_at: logits are clipped to ``[-clip_at, clip_at]`` first, as the loss does; None leaves them.

    >>> output_distance(torch.zeros(2, 2), torch.tensor([[3.0, 4.0], [1.0, 1.0]])).value > 3
    True
    """
    check_paired(logits, new_logits, "logits", "new_logits")
    if clip_at is not None:
        check_positive(clip_at, "clip_at")
        logits, new_logits = logits.clamp(-clip_at, clip_at), new_logits.clamp(-clip_at, clip_at)
    change = (new_logits - logits).double()
    norms = torch.linalg.vector_norm(change, dim=1)
    centred_norms = centred_change_norms(change)
    return OutputDistance(
        value=float(norms.mean()),
        squared=float(norms.square().mean()),
        centred=float(centred_norms.mean()),
        centred_squared=float(centred_norms.square().mean()),
        standard_error=float(norms.std(correction=1) / math.sqrt(len(norms))) if len(norms) > 1 else math.nan,
        num_samples=len(norms),
        reach=math.inf if clip_at is None else 2 * clip_at * math.sqrt(change.shape[1]),
    )
