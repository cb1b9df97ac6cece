"""RKHS norm of a risk map by kernel ridge regression (``app:mmd_details``)."""

import math
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_sample, check_vector
from ..hardware import doubled
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


class Spectrum(NamedTuple):
    """``K = V diag(s) V^T`` of a sample's kernel matrix, kept so that many losses on it pay for it once."""

    features: Tensor
    """What it was asked for, before thinning: reuse with other features is refused."""
    chosen: Tensor
    """Rows that entered, at even strides where there were too many."""
    eigenvalues: Tensor
    vectors: Tensor
    kernel: KernelName
    bandwidth: float


@torch.no_grad()
def kernel_spectrum(
    features: Tensor, *, kernel: KernelName = "rbf", bandwidth: float | None = None, max_samples: int = 3000
) -> Spectrum:
    """The eigendecomposition behind `rkhs_norm`, in float64, of features ``[m, d]``; arguments as there."""
    check_sample(features, "features", min_samples=3)
    chosen = even_strides(len(features), min(len(features), max_samples))
    kept = features[chosen.to(features.device)]
    s = resolve_bandwidth(kept, kept, kernel, bandwidth)
    kept = doubled(kept)
    u, _ = centred(kept, kept)
    eigenvalues, V = torch.linalg.eigh(gram(u, u, kernel=kernel, bandwidth=s))
    return Spectrum(features, chosen, eigenvalues.clamp(min=0), V, kernel, s)


@torch.no_grad()
def rkhs_norm(
    features: Tensor,
    losses: Tensor,
    *,
    kernel: KernelName = "rbf",
    bandwidth: float | None = None,
    ridges: Tensor | None = None,
    max_samples: int = 3000,
    spectrum: Spectrum | None = None,
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
        spectrum: `kernel_spectrum` of the same features, where several models' losses share them; it brings its own
            ``max_samples``.

    Raises:
        ValueError: for invalid features, losses or ridges, or a spectrum of another sample, kernel or bandwidth.

    Warns:
        RuntimeWarning: when the chosen lambda is on the edge of the grid.

    >>> u = torch.linspace(0, 6, 30)[:, None]
    >>> t = u[:, 0].sin() + 0.3 * (torch.arange(30) % 3 - 1)
    >>> round(rkhs_norm(u, t, bandwidth=1.0).value, 2)
    1.37
    """
    check_vector(losses, "losses", length=len(features))
    if spectrum is None:
        spectrum = kernel_spectrum(features, kernel=kernel, bandwidth=bandwidth, max_samples=max_samples)
    else:
        _check_reuse(spectrum, features, kernel, bandwidth)
    eigenvalues, V = spectrum.eigenvalues, spectrum.vectors
    t = doubled(losses[spectrum.chosen.to(losses.device)])
    grid = torch.logspace(-10, 2, 49, dtype=V.dtype, device=V.device) if ridges is None else _check_grid(ridges, V)
    c = V.T @ t
    m_ridge = len(t) * grid
    r = m_ridge / (eigenvalues[:, None] + m_ridge)
    loo = (V @ (r * c[:, None])) / (V.square() @ r)
    cv_errors = loo.square().mean(dim=0)
    best = int(cv_errors.argmin())
    at_edge = len(grid) > 1 and best in (0, len(grid) - 1) and bool(t.abs().max() > 0)
    if at_edge:
        warnings.warn(
            f"the ridge chosen by cross-validation, {float(grid[best]):.1e}, is on the edge of its grid, so the "
            "RKHS norm depends on the grid: give more held-out target rows, or read the norm as a scale only",
            RuntimeWarning,
            stacklevel=3,
        )
    squared = float((eigenvalues * (c / (eigenvalues + m_ridge[best])).square()).sum())
    return RKHSNorm(
        math.sqrt(squared), float(grid[best]), at_edge, float(cv_errors[best]), kernel, spectrum.bandwidth, len(t)
    )


def _check_reuse(spectrum: Spectrum, features: Tensor, kernel: KernelName, bandwidth: float | None) -> None:
    if spectrum.kernel != kernel or (bandwidth is not None and spectrum.bandwidth != bandwidth):
        raise ValueError("spectrum was made with another kernel or bandwidth: call kernel_spectrum with these")
    if spectrum.features is not features and not torch.equal(spectrum.features, features):
        raise ValueError("spectrum belongs to other features: call kernel_spectrum on these")


def _check_grid(ridges: Tensor, like: Tensor) -> Tensor:
    grid = check_vector(ridges, "ridges").to(like)
    if bool((grid <= 0).any()) or bool((grid.diff() <= 0).any()):
        raise ValueError("ridges must be positive and increasing: sort them and drop duplicates")
    return grid
