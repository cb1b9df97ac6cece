"""Both samples' features in two dimensions: the principal components of the pooled sample."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from .checks import check_count, check_samples


class Embedding(NamedTuple):
    """Coordinates of some rows of both samples on the two axes of largest variance."""

    source: Tensor
    """``[p, 2]``, float64, on the CPU."""
    target: Tensor
    """``[q, 2]``."""
    explained: tuple[float, float]
    """Share of the variance along each axis; NaN where all points coincide."""
    sizes: tuple[int, int]
    """Rows of each sample that the axes were fitted on; the points are the first of them."""


@torch.no_grad()
def embedding(
    source: Tensor, target: Tensor, *, generator: Generator, max_points: int = 400, max_rows: int = 512
) -> Embedding:
    """Principal components of features ``source [n, k]`` and ``target [m, k]``, fitted on both together.

    An axis points to where its largest loading is positive, so the picture does not flip between runs.

    Args:
        generator: draws the rows, without replacement, where a sample has more than ``max_rows`` of them.
        max_points: coordinates kept per sample.
        max_rows: rows per sample that the axes are fitted on; at most as many as there are.

    Raises:
        ValueError: for invalid samples or counts.

    >>> x = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    >>> embedding(x, x + torch.tensor([4.0, 0.0]), generator=torch.Generator()).target[:, 0].sort().values.tolist()
    [1.0, 3.0]
    """
    check_samples(source, target, "source", "target")
    check_count(max_points, "max_points")
    check_count(max_rows, "max_rows")
    x, y = (_drawn(z, max_rows, generator).double() for z in (source, target))
    pooled = torch.cat([x, y])
    pooled = pooled - pooled.mean(dim=0)
    axes, explained = _principal_axes(pooled)
    coordinates = (pooled @ axes).cpu()
    return Embedding(
        coordinates[: min(len(x), max_points)],
        coordinates[len(x) :][:max_points],
        explained,
        (len(x), len(y)),
    )


def _drawn(z: Tensor, count: int, generator: Generator) -> Tensor:
    """At most ``count`` rows in random order."""
    order = torch.randperm(len(z), generator=generator, device=generator.device)[:count]
    return z[order.to(z.device)]


def _principal_axes(x: Tensor) -> tuple[Tensor, tuple[float, float]]:
    """Two axes ``[k, 2]`` and their shares of the variance, from centred rows ``[r, k]``.

    The eigenvectors of the smaller of ``X^T X`` and ``X X^T``; an axis without variance is 0.
    """
    rows, k = x.shape
    total = float(x.square().sum())
    if total == 0.0:
        return x.new_zeros(k, 2), (math.nan, math.nan)
    values, vectors = torch.linalg.eigh(x.T @ x if k <= rows else x @ x.T)
    values, vectors = values[-2:].flip(0).clamp(min=0), vectors[:, -2:].flip(1)
    axes = vectors if k <= rows else x.T @ vectors
    norms = torch.linalg.vector_norm(axes, dim=0)
    keep = values > 1e-12 * total
    axes = torch.where(keep, axes / torch.where(norms > 0, norms, 1.0), 0.0)
    strongest = axes.gather(0, axes.abs().argmax(dim=0, keepdim=True))
    axes = axes * torch.where(strongest < 0, -1.0, 1.0)
    shares = [*torch.where(keep, values / total, 0.0).tolist(), 0.0]
    return torch.nn.functional.pad(axes, (0, 2 - axes.shape[1])), (shares[0], shares[1])
