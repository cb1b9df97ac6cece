"""Both samples' features in two dimensions: the principal components of the pooled sample."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import check_count, check_samples

_BLOCK_ROWS = 10_000


class Axes(NamedTuple):
    """Principal axes of a sample."""

    mean: Tensor
    """``[d]``."""
    directions: Tensor
    """``[d, k]``, by falling variance; in each the largest entry by size is positive; 0 where there is no variance."""
    explained: Tensor
    """``[k]``, shares of the variance; NaN where all points coincide."""

    def coordinates(self, x: Tensor) -> Tensor:
        """``(x - mean) directions``, ``[n, k]``."""
        return (x.double() - self.mean) @ self.directions


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
    axes = principal_axes(torch.cat([x, y]))
    first, second = axes.explained.tolist()
    return Embedding(
        axes.coordinates(x[:max_points]).cpu(),
        axes.coordinates(y[:max_points]).cpu(),
        (first, second),
        (len(x), len(y)),
    )


def _drawn(z: Tensor, count: int, generator: Generator) -> Tensor:
    """At most ``count`` rows in random order."""
    order = torch.randperm(len(z), generator=generator, device=generator.device)[:count]
    return z[order.to(z.device)]


def principal_axes(x: Tensor, count: int = 2) -> Axes:
    """The first ``count`` principal axes of ``x [n, d]``, in float64.

    The eigenvectors of the smaller of ``X^T X`` (added up by blocks of rows) and ``X X^T`` for centred ``X``.

    >>> axes = principal_axes(torch.tensor([[0.0, 0.0], [-1.0, -2.0], [1.0, 2.0], [0.0, 0.0]]), 1)
    >>> (axes.directions[:, 0] * 5**0.5).round().tolist(), round(float(axes.explained), 6)
    ([1.0, 2.0], 1.0)
    """
    n, d = x.shape
    mean = x.double().mean(dim=0)
    if d <= n:
        gram = torch.zeros(d, d, dtype=torch.float64, device=x.device)
        for rows in x.split(_BLOCK_ROWS):
            gram += (centred := rows.double() - mean).T @ centred
    else:
        centred = x.double() - mean
        gram = centred @ centred.T
    values, vectors = torch.linalg.eigh(gram)
    total = float(gram.trace())
    if total == 0.0:
        return Axes(mean, mean.new_zeros(d, count), mean.new_full((count,), math.nan))
    values, vectors = values.flip(0)[:count].clamp(min=0), vectors.flip(1)[:, :count]
    directions = vectors if d <= n else centred.T @ vectors
    norms = torch.linalg.vector_norm(directions, dim=0)
    keep = values > 1e-12 * total
    directions = torch.where(keep, directions / torch.where(norms > 0, norms, 1.0), 0.0)
    strongest = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True))
    directions = directions * torch.where(strongest < 0, -1.0, 1.0)
    missing = count - directions.shape[1]
    pad = torch.nn.functional.pad
    return Axes(mean, pad(directions, (0, missing)), pad(torch.where(keep, values / total, 0.0), (0, missing)))
