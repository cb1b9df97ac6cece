"""What the benchmark measures: one file a subject, with `cases(size) -> list[BenchmarkCase]`.

Here is what a case is, at which sizes it is measured, and the features that most of them start from.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

Contender = Callable[..., float]
"""A function of a case's inputs."""


class Target(NamedTuple):
    """A promise about one contender, relative to ours: ``quantity`` is at least / at most ``value``."""

    contender: str
    quantity: str
    """"time": its time over ours; "memory": its peak over ours; "bytes", "seconds": its own peak and time."""
    at_least: float = -math.inf
    at_most: float = math.inf


class BenchmarkCase(NamedTuple):
    """Something to compute, and those who compute it: ours first, then its peers."""

    name: str
    size: str
    inputs: Callable[[Generator], tuple[Any, ...]]
    """Draws what every contender is given."""
    contenders: dict[str, Contender]
    targets: tuple[Target, ...] = ()
    once: bool = False
    """A case of minutes with ``ours`` alone: time and value are those of the one call that its memory is taken on."""

    def calls(self, generator: Generator) -> dict[str, Callable[[], float]]:
        """The contenders, each holding the same inputs."""
        inputs = self.inputs(generator)
        return {name: partial(contender, *inputs) for name, contender in self.contenders.items()}


SIZES = {
    "cpu": {"n": 5000, "d": 2048, "n_large": 20_000, "d_large": 512, "n_plane": 3000, "m_ridge": 1000, "n_mlp": 4096,
            "k_stack": 132, "n_stack": 640,
            "n_source": 120_906, "n_pool": 50_416, "d_features": 2048, "count_selected": 250,
            "n_images": 64, "n_steps": 8, "n_anchor": 1_000_000, "n_told": 10_000},
    "smoke": {"n": 60, "d": 16, "n_large": 90, "d_large": 8, "n_plane": 50, "m_ridge": 40, "n_mlp": 64,
              "k_stack": 3, "n_stack": 64,
              "n_source": 90, "n_pool": 60, "d_features": 16, "count_selected": 5,
              "n_images": 2, "n_steps": 2, "n_anchor": 300, "n_told": 20},
}  # fmt: skip


def unit_features(n: int, d: int, shift: float, generator: Generator) -> Tensor:
    """Rectified features of a 64-dimensional source, l2-normalised: like a network's penultimate layer."""
    weights = torch.randn(64, d, generator=torch.Generator().manual_seed(1))
    latent = torch.randn(n, 64, generator=generator) + shift
    rows = torch.randn(n, d, generator=generator).mul_(3).add_(latent @ weights).relu_()
    return rows.div_(torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(1e-12))


def unit_samples(n: int, m: int, d: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Features of a source ``[n, d]`` and of a shifted target ``[m, d]``."""
    return unit_features(n, d, 0.0, generator), unit_features(m, d, 0.3, generator)
