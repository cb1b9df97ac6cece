"""Mixture proportions in 20 dimensions: rare groups become common; no point moves, so P(y|x) cannot change."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..sample import Sample
from . import coin


@dataclass(frozen=True)
class World:
    severity: float = 1.0  # log-odds that each group gains over the one before it
    dim: int = 20
    groups: int = 4

    def source(self, n: int, *, generator: Generator) -> Sample:
        return self.draw(n, torch.zeros(self.groups), generator)

    def target(self, n: int, *, generator: Generator) -> Sample:
        return self.draw(n, self.severity * torch.arange(self.groups), generator)

    def draw(self, n: int, log_odds: Tensor, generator: Generator) -> Sample:
        group = torch.multinomial(log_odds.softmax(0), n, replacement=True, generator=generator)
        x = torch.randn(n, self.dim, generator=generator) + 3 * torch.eye(self.groups, self.dim)[group]
        nearest = x[:, : self.groups].argmax(dim=1, keepdim=True)  # each region has a decisive axis of its own
        return Sample(x, coin(torch.sigmoid(4 * x.gather(1, self.groups + nearest)[:, 0]), generator=generator))
