"""RKHS norm of a risk map by kernel ridge regression (``app:mmd_details``)."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_sample, check_vector
from .kernels import KernelName, centred, even_strides, gram, resolve_bandwidth


class RKHSNorm(NamedTuple):
    """The norm of the fitted risk map and the settings that decide it."""

    value: float
    ridge: float
    """The chosen lambda of ``alpha = (K + m lambda I)^-1 t``."""
    at_edge: bool
    """The chosen lambda is the smallest or largest of the grid: the norm is then set by the grid, not by the data."""
    cv_error: float
    """Leave-one-out mean squared error at the chosen lambda."""
    kernel: KernelName
    bandwidth: float
    num_samples: int


@torch.no_grad()
def rkhs_norm(
    features: Tensor,
    losses: Tensor,
    *,
    kernel: KernelName = "rbf",
    bandwidth: float | None = None,
    ridges: Tensor | None = None,
    max_samples: int = 3000,
) -> RKHSNorm:
    """``sqrt(alpha^T K alpha)`` with ``alpha = (K + m lambda I)^-1 t`` (``app:mmd_details``).

    lambda minimises the leave-one-out error. One eigendecomposition ``K = V diag(s) V^T`` serves all of them: with
    ``r = m lambda / (s + m lambda)`` the leave-one-out residuals are ``(V (r * V^T t)) / (V^2 r)``. All in float64.

    Args:
        features: ``[m, d]``, held-out features u_i.
        losses: ``[m]``, their losses t_i.
        bandwidth: of the kernel; the median heuristic if absent.
        ridges: candidate lambdas, increasing; 49 from 1e-10 to 1e2 if absent.
        max_samples: of more pairs, this many at even strides are used; the decomposition costs ``m^3``.

    Warns:
        RuntimeWarning: when the chosen lambda is on the edge of the grid.

    >>> u = torch.linspace(0, 6, 30)[:, None]
    >>> t = u[:, 0].sin() + 0.3 * (torch.arange(30) % 3 - 1)
    >>> round(rkhs_norm(u, t, bandwidth=1.0).value, 2)
    1.37
    """
    check_sample(features, "features", min_samples=3)
    check_vector(losses, "losses", length=len(features))
    if len(features) > max_samples:
        chosen = even_strides(len(features), max_samples).to(features.device)
        features, losses = features[chosen], losses[chosen]
    s = resolve_bandwidth(features, features, kernel, bandwidth)
    u, _ = centred(features.double(), features.double())
    t = losses.double()
    grid = (
        torch.logspace(-10, 2, 49, dtype=torch.float64, device=u.device) if ridges is None else _check_grid(ridges, u)
    )
    eigenvalues, V = torch.linalg.eigh(gram(u, u, kernel=kernel, bandwidth=s))
    eigenvalues = eigenvalues.clamp(min=0)
    c = V.T @ t
    m_ridge = len(u) * grid
    r = m_ridge / (eigenvalues[:, None] + m_ridge)
    loo = (V @ (r * c[:, None])) / (V.square() @ r)
    cv_errors = loo.square().mean(dim=0)
    best = int(cv_errors.argmin())
    at_edge = len(grid) > 1 and best in (0, len(grid) - 1) and bool(t.abs().max() > 0)
    if at_edge:
        warnings.warn(
            f"the ridge chosen by cross-validation, {float(grid[best]):.1e}, is on the edge of its grid, so the "
            "RKHS norm depends on the grid: widen ridges, or read the norm as a scale only",
            RuntimeWarning,
            stacklevel=3,
        )
    squared = float((eigenvalues * (c / (eigenvalues + m_ridge[best])).square()).sum())
    return RKHSNorm(math.sqrt(squared), float(grid[best]), at_edge, float(cv_errors[best]), kernel, s, len(u))


def _check_grid(ridges: Tensor, u: Tensor) -> Tensor:
    grid = check_vector(ridges, "ridges").to(u)
    if bool((grid <= 0).any()) or bool((grid.diff() <= 0).any()):
        raise ValueError("ridges must be positive and increasing: sort them and drop duplicates")
    return grid
