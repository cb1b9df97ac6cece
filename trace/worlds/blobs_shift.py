"""Blobs-Shift (``app:synth-details``): two Gaussian blobs; the target turns and moves along the line between them."""

from dataclasses import dataclass
from math import cos, radians, sin

import torch
from torch import Generator, Tensor

from ..sample import Sample
from . import Labels, coin, relabelled


@dataclass(frozen=True)
class World:
    severity: float = 1.0  # translation; the blobs' centres lie 2 apart
    rotation: float = 0.0  # degrees about the origin
    spread: float = 0.55
    labels: Labels = "travel"

    def source(self, n: int, *, generator: Generator) -> Sample:
        y = coin(torch.full((n,), 0.5), generator=generator)
        x = self.spread * torch.randn(n, 2, generator=generator)
        return Sample(x + torch.stack([2.0 * y - 1, 0.0 * y], dim=1), y)

    def target(self, n: int, *, generator: Generator) -> Sample:
        base, t = self.source(n, generator=generator), radians(self.rotation)
        x = base.x @ torch.tensor([[cos(t), sin(t)], [-sin(t), cos(t)]]) + torch.tensor([self.severity, 0.0])
        return relabelled(Sample(x, base.y), self.labels, self.posterior, generator=generator)

    def posterior(self, x: Tensor) -> Tensor:
        return torch.sigmoid(2 * x[:, 0] / self.spread**2)
