"""Validation gaps: how much better a model does on its training sample than on held-out data."""

import math
from typing import NamedTuple

from torch import Tensor

from ..checks import check_vector
from ..hardware import doubled
from ..stats.betting import Tally, tally


class Gap(NamedTuple):
    """A generalisation gap and the two risks it comes from."""

    value: float
    train_risk: float
    val_risk: float
    tally: Tally | None = None
    """Of the held-out losses; None where the loss is unbounded."""


def validation_gap(train_losses: Tensor, val_losses: Tensor, bound: float = math.inf) -> Gap:
    """``|R_V(Q) - R_S(Q)|`` (``cor:practical-trace``) from losses ``[n]`` in training and ``[m]`` held out.

    ``bound`` is M, the largest loss.

    >>> import torch
    >>> validation_gap(torch.tensor([1.0, 3.0]), torch.tensor([2.5])).value
    0.5
    """
    check_vector(train_losses, "train_losses")
    check_vector(val_losses, "val_losses")
    train_risk, val_risk = float(doubled(train_losses).mean()), float(doubled(val_losses).mean())
    held_out = tally(val_losses, 0, bound) if math.isfinite(bound) else None
    return Gap(abs(val_risk - train_risk), train_risk, val_risk, held_out)
