"""Columns of a table in common units: the standard deviation of each in the sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..io.rows import Part
from ..sample import Sample


class Scaling(NamedTuple):
    """``z = (x - mean) / deviation``, a change of coordinates: models of z undo it first, so nothing else changes."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, sources: Sequence[Part]) -> Scaling:
        """From the sources' inputs; a constant column keeps its units."""
        x = torch.cat([part.sample.x for part in sources]).double()
        deviation = x.std(dim=0, correction=0)
        return cls(x.mean(dim=0), torch.where(deviation > 0, deviation, torch.ones_like(deviation)))

    def scaled(self, part: Part) -> Part:
        x = ((part.sample.x.double() - self.mean) / self.deviation).to(part.sample.x.dtype)
        return part._replace(sample=Sample(x, part.sample.y))

    def undone_before(self, model: nn.Module) -> nn.Module:
        """``z -> model(mean + deviation z)``."""
        return _Undone(model, self)


class _Undone(nn.Module):
    def __init__(self, model: nn.Module, scaling: Scaling) -> None:
        super().__init__()
        self.model, self.scaling = model, scaling

    def forward(self, z: Tensor) -> Tensor:
        return self.model((z.double() * self.scaling.deviation + self.scaling.mean).to(z.dtype))
