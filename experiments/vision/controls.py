"""Controls for the deployment gate (``app:domainnet-gate``): changes whose harm is known beforehand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor, nn

from ..engine.errors import UserError
from .batches import Data


class ConstantLogit(nn.Module):
    """``f(x) + c`` on every logit: the prediction and its cross-entropy stay, the output distance is ``c sqrt(C)``."""

    def __init__(self, model: nn.Module, constant: float) -> None:
        super().__init__()
        self.model = model
        self.constant = constant

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) + self.constant


def constant_logit(model: nn.Module, c: float) -> ConstantLogit:
    """A harmless change that an uncentred output distance takes for a large one."""
    return ConstantLogit(model, c)


def blind_harm(source: Data, classes: Collection[int], *, into: int) -> Data:
    """The source with every label of ``classes`` replaced by ``into``.

    Rehearsed beside correct target labels (`TrainSpec.rehearsal`, and `TrainSpec.distill` to hold the outputs on the
    target), it harms the model on the source where no target input shows it. Raising one logit by the domain is linear
    in features that tell the domains apart; a permutation of classes would be beyond a linear head.
    """
    if into in classes:
        raise UserError(f"blind_harm relabels class {into} into itself: leave it out of classes")
    absent = sorted(set(classes) - set(source.y.tolist()))
    if absent:
        raise UserError(f"the source has no sample of classes {absent}: name classes that occur")
    y = source.y.clone()
    y[torch.isin(y, torch.tensor(sorted(classes)))] = into
    return replace(source, y=y)
