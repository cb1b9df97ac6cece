"""Both samples' features in two dimensions: the principal components of the pooled sample."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from ..checks import check_count, check_samples
from ..hardware import doubled
from ..sample import drawn

_NO_VARIANCE = 1e-12
"""Share of the variance up to which an axis is rounding."""


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
        return (doubled(x) - self.mean) @ self.directions


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
    x, y = (doubled(drawn(z, check_count(max_rows, "max_rows"), generator)) for z in (source, target))
    axes = principal_axes(torch.cat([x, y]))
    first, second = axes.explained.tolist()
    return Embedding(
        axes.coordinates(x[:max_points]).cpu(),
        axes.coordinates(y[:max_points]).cpu(),
        (first, second),
        (len(x), len(y)),
    )


def principal_axes(x: Tensor, count: int = 2) -> Axes:
    """The first ``count`` principal axes of ``x [n, d]``, in float64, by scikit-learn, which also fixes the signs.

    >>> axes = principal_axes(torch.tensor([[0.0, 0.0], [-1.0, -2.0], [1.0, 2.0], [0.0, 0.0]]), 1)
    >>> (axes.directions[:, 0] * 5**0.5).round().tolist(), round(float(axes.explained), 6)
    ([1.0, 2.0], 1.0)
    """
    from sklearn.decomposition import PCA  # takes a second to import

    n, d = x.shape
    mean = doubled(x).mean(dim=0)
    pca = PCA(min(count, n, d), svd_solver="covariance_eigh" if d <= n else "full")
    with np.errstate(invalid="ignore"):
        pca.fit((doubled(x) - mean).cpu().numpy())
    shares = torch.as_tensor(pca.explained_variance_ratio_, device=x.device)
    directions = torch.where(shares > _NO_VARIANCE, torch.as_tensor(pca.components_.T, device=x.device), 0.0)
    missing = (0, count - len(shares))
    return Axes(mean, nn.functional.pad(directions, missing), nn.functional.pad(shares, missing))
