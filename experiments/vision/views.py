"""Q and an update of any depth as heads on features that were computed once.

Below the head the two models differ, so they share no input but the image, and every term of the diagnostic would run
both of them from there again. A `HeadView` holds a domain's unit features under one model; two of them side by side,
``[n, 2 k]``, are inputs that both heads can read, and nothing but the heads is run after that.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trace import Sample

from .batches import Pictures, Rows, in_order
from .classifier import Classifier

IMAGES = 32
"""Maps or pictures at once through what is below the head: more leave the processor's cache."""


class Columns(nn.Module):
    """Columns ``[start, stop)`` of every row."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.start : self.stop]


class HeadView(NamedTuple):
    """The unit features of a domain under one model, ``[n, k]`` a split."""

    train: Tensor
    val: Tensor
    test: Tensor


@torch.no_grad()
def features_of(model: Classifier, rows: Rows | Pictures, *, device: str) -> Tensor:
    """Unit features ``[n, k]`` of all rows in their order."""
    return torch.cat([model.features(x.to(device)).cpu() for x in rows.stream(in_order(len(rows), IMAGES))])


def beside(old: Tensor, new: Tensor, y: Tensor) -> Sample:
    """Features under Q and under the update as the inputs ``[n, 2 k]`` of `heads`."""
    return Sample(torch.cat([old, new], dim=1), y)


def heads(old: Classifier, new: Classifier) -> tuple[Classifier, Classifier]:
    """Both models on rows of `beside`; their ``features`` are their own halves. Q reads rows ``[n, k]`` as well."""
    k = old.head.in_features
    q, update = (
        Classifier("head", half, copy.deepcopy(model.head), model.scale).cpu().eval()
        for model, half in ((old, Columns(0, k)), (new, Columns(k, 2 * k)))
    )
    return q, update
