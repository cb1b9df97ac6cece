"""Validation gaps: how much better a model does on its training sample than on held-out data."""

from typing import NamedTuple

from torch import Tensor

from ..checks import check_vector


class Gap(NamedTuple):
    """A generalisation gap and the two risks it comes from."""

    value: float
    train_risk: float
    val_risk: float


def validation_gap(train_losses: Tensor, val_losses: Tensor) -> Gap:
    """``|R_V(Q) - R_S(Q)|`` (``cor:practical-trace``) from losses ``[n]`` in training and ``[m]`` held out.

    >>> import torch
    >>> validation_gap(torch.tensor([1.0, 3.0]), torch.tensor([2.5])).value
    0.5
    """
    check_vector(train_losses, "train_losses")
    check_vector(val_losses, "val_losses")
    train_risk, val_risk = float(train_losses.double().mean()), float(val_losses.double().mean())
    return Gap(abs(val_risk - train_risk), train_risk, val_risk)
