"""Anisotropic rescaling in 20 dimensions: some axes stretch, others shrink, the volume stays."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..sample import Sample
from . import Labels, coin, relabelled


@dataclass(frozen=True)
class World:
    severity: float = 1.0  # the axes' log-scales run from +severity/2 to -severity/2
    dim: int = 20
    labels: Labels = "travel"

    def source(self, n: int, *, generator: Generator) -> Sample:
        x = torch.randn(n, self.dim, generator=generator)
        return Sample(x, coin(self.posterior(x), generator=generator))

    def target(self, n: int, *, generator: Generator) -> Sample:
        base = self.source(n, generator=generator)
        x = base.x * torch.exp(self.severity * torch.linspace(0.5, -0.5, self.dim))
        return relabelled(Sample(x, base.y), self.labels, self.posterior, generator=generator)

    def posterior(self, x: Tensor) -> Tensor:
        return torch.sigmoid(2 * x[:, 0] + 2 * x[:, -1] + x[:, 1] * x[:, -2])
