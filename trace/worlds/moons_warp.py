"""Moons-Warp (``app:synth-details``): two moons in the complex plane; the target's points turn by an angle that grows
with their distance from the centre, a twist that can be undone."""

from dataclasses import dataclass
from math import pi

import torch
from torch import Generator, Tensor

from ..sample import Sample
from . import Labels, coin, relabelled


@dataclass(frozen=True)
class World:
    severity: float = 1.0  # alpha: a point at distance r from the centre turns by alpha r / 2
    noise: float = 0.2
    labels: Labels = "travel"

    def source(self, n: int, *, generator: Generator) -> Sample:
        y = coin(torch.full((n,), 0.5), generator=generator)
        x = torch.view_as_real(moon(pi * torch.rand(n, generator=generator), y))
        return Sample(x + self.noise * torch.randn(n, 2, generator=generator), y)

    def target(self, n: int, *, generator: Generator) -> Sample:
        base, centre = self.source(n, generator=generator), 0.5 + 0.25j
        z = torch.view_as_complex(base.x) - centre
        x = torch.view_as_real(z * torch.polar(torch.ones(n), self.severity / 2 * z.abs()) + centre)
        return relabelled(Sample(x, base.y), self.labels, self.posterior, generator=generator)

    def posterior(self, x: Tensor) -> Tensor:
        arcs = (torch.view_as_real(moon(pi * (torch.arange(200) + 0.5) / 200, torch.tensor(y))) for y in (0, 1))
        log_p = [(torch.cdist(x, arc).square() / (-2 * self.noise**2)).logsumexp(dim=1) for arc in arcs]
        return torch.sigmoid(log_p[1] - log_p[0])


def moon(t: Tensor, y: Tensor) -> Tensor:
    """Upper (0) or lower (1), as in scikit-learn's make_moons."""
    return torch.where(y == 0, torch.polar(torch.ones_like(t), t), 1 + 0.5j - torch.polar(torch.ones_like(t), t))
