"""Translation-invariant kernels on feature vectors, by tiles, and the median heuristic for their bandwidth."""

from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from ..checks import check_positive, check_samples
from ..hardware import doubled, wide

KernelName = Literal["rbf", "laplace"]

_TILE = 1024
_SMALLEST_BANDWIDTH = 1e-15
_BLUR = 1e-4
"""Largest rounding error of a squared distance, in squared bandwidths, that single precision may keep."""


def gram(x: Tensor, y: Tensor, *, kernel: KernelName, bandwidth: float) -> Tensor:
    """Kernel matrix ``[..., n, m]`` of ``x [..., n, d]`` and ``y [..., m, d]``; leading dimensions are batches.

    "rbf": ``exp(-|x - y|^2 / (2 bandwidth^2))``; "laplace": ``exp(-|x - y| / bandwidth)`` with the Euclidean norm.
    Bounded by 1, with 1 on the diagonal.
    """
    return of_squared_distances(squared_distances(x, y), kernel=kernel, bandwidth=bandwidth)


def of_squared_distances(sq: Tensor, *, kernel: KernelName, bandwidth: float) -> Tensor:
    """The kernel as a function of ``|x - y|^2``, in place."""
    return sq.mul_(-0.5 / bandwidth**2).exp_() if kernel == "rbf" else sq.sqrt_().div_(-bandwidth).exp_()


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """``|x_i - y_j|^2 >= 0``, ``[..., n, m]``, by one GEMM."""
    inner = x @ y.mT
    x_sq = torch.linalg.vector_norm(x, dim=-1).square()
    y_sq = torch.linalg.vector_norm(y, dim=-1).square()
    return inner.mul_(-2).add_(x_sq[..., :, None]).add_(y_sq[..., None, :]).clamp_(min=0)


class KernelSum(NamedTuple):
    """``sum_ij k(x_i, y_j)`` and its margins, in float64 where the device has it."""

    total: float
    rows: Tensor
    """``sum_j k(x_i, y_j)``, ``[n]``."""
    columns: Tensor
    """``sum_i k(x_i, y_j)``, ``[m]``."""


def kernel_sum(x: Tensor, y: Tensor, *, kernel: KernelName, bandwidth: float) -> KernelSum:
    """``sum_ij k(x_i, y_j)`` over tiles, accumulated in the `wide` dtype: no matrix of size n x m is held.

    For ``y is x`` each off-diagonal tile is made once, and the diagonal (exactly 1 an entry) is left out.
    """
    symmetric = y is x
    lifted = _lifted(x, y, bandwidth) if kernel == "rbf" else None
    total = torch.zeros((), dtype=wide(x.device), device=x.device)
    by_row = torch.zeros(len(x), dtype=wide(x.device), device=x.device)
    by_column = by_row if symmetric else torch.zeros(len(y), dtype=wide(x.device), device=x.device)
    for rows in tiles(len(x), _TILE):
        for columns in tiles(len(y), _TILE):
            if symmetric and columns.start < rows.start:
                continue
            if lifted is not None:
                K = (lifted[0][rows] @ lifted[1][columns].T).clamp_(max=0).exp_()
            else:
                K = gram(x[rows], y[columns], kernel=kernel, bandwidth=bandwidth)
            if symmetric and columns.start == rows.start:
                K.fill_diagonal_(0)
            weight = 2 if symmetric and columns.start > rows.start else 1
            row_sums = K.sum(dim=1)
            total += weight * row_sums.sum(dtype=total.dtype)
            by_row[rows] += row_sums
            if not (symmetric and columns.start == rows.start):
                by_column[columns] += K.sum(dim=0)
    return KernelSum(float(total), by_row, by_column)


def _lifted(x: Tensor, y: Tensor, bandwidth: float) -> tuple[Tensor, Tensor] | None:
    """Rows with ``left_i . right_j = -|x_i - y_j|^2 / (2 bandwidth^2)``: the product is the kernel's exponent at once.

    None where a squared norm in units of the bandwidth overflows.
    """
    u = x / bandwidth
    v = u if y is x else y / bandwidth
    p, q = (-0.5 * z.square().sum(dim=1, keepdim=True) for z in (u, v))
    if not torch.isfinite(p.sum() + q.sum()):
        return None
    return torch.cat([u, p, torch.ones_like(p)], dim=1), torch.cat([v, torch.ones_like(q), q], dim=1)


def tiles(n: int, size: int) -> Iterator[slice]:
    """Slices that cover ``0..n-1`` in turn."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def centred(x: Tensor, y: Tensor, *, bandwidth: float | None = None) -> tuple[Tensor, Tensor]:
    """Both samples minus their pooled mean: kernels do not change, cancellation far from the origin goes away.

    With a bandwidth, in the `resolving_dtype`.
    """
    mean = (x.sum(dim=0) + y.sum(dim=0)) / (len(x) + len(y))
    dtype = x.dtype if bandwidth is None else resolving_dtype(x, y, mean, bandwidth)
    mean = in_dtype(mean, dtype)
    x_centred = in_dtype(x, dtype) - mean
    return x_centred, x_centred if y is x else in_dtype(y, dtype) - mean


def in_dtype(x: Tensor, dtype: torch.dtype) -> Tensor:
    """``x`` in a dtype that its device may lack (`doubled`)."""
    return doubled(x) if dtype == torch.float64 else x.to(dtype)


def resolving_dtype(x: Tensor, y: Tensor, centre: Tensor, bandwidth: float) -> torch.dtype:
    """The samples' dtype, or float64 where rounding of ``|x - y|^2`` in it would show at the scale of the bandwidth.

    Squared distances by one GEMM are off by about ``eps max |x - centre|^2``.
    """
    blocks = (z[rows] - centre for z in (x, y) for rows in tiles(len(z), _TILE))
    reach = float(torch.stack([torch.linalg.vector_norm(block, dim=1).max() for block in blocks]).max())
    return torch.float64 if reach**2 * torch.finfo(x.dtype).eps > _BLUR * bandwidth**2 else x.dtype


class NoBandwidthError(ValueError):
    """The median heuristic found 0."""


@torch.no_grad()
def median_bandwidth(x: Tensor, y: Tensor, *, max_points: int = 1000) -> float:
    """Median of the pairwise Euclidean distances in the pooled sample, the usual bandwidth.

    Samples ``[n, d]``, ``[m, d]``. At most ``max_points`` points enter, taken at even strides, so the result needs no
    random numbers.

    >>> median_bandwidth(torch.tensor([[0.0], [3.0]]), torch.tensor([[4.0]]))
    3.0
    """
    check_samples(x, y)
    pooled = torch.cat(centred(x, y))
    largest = float(torch.linalg.vector_norm(pooled, dim=1).max())
    pooled = doubled(thinned(pooled, max_points))
    upper = torch.triu_indices(len(pooled), len(pooled), offset=1, device=pooled.device)
    distances = squared_distances(pooled, pooled)[upper[0], upper[1]]
    median = float(distances.median().sqrt()) if len(distances) else 0.0
    if median <= 1e-6 * largest:
        raise NoBandwidthError(
            "the median distance is 0 (most points coincide), so it gives no bandwidth: pass bandwidth=..."
        )
    return median


def even_strides(n: int, count: int) -> Tensor:
    """``count`` indices spread evenly over ``0..n-1``: a thinning that needs no random numbers."""
    return torch.linspace(0, n - 1, count, dtype=torch.float64).round().long()


def thinned(x: Tensor, count: int) -> Tensor:
    """At most ``count`` rows of ``x [n, d]``, at even strides: of data sorted by class, each class its share."""
    return x if len(x) <= count else x[even_strides(len(x), count).to(x.device)]


def resolve_bandwidth(x: Tensor, y: Tensor, kernel: str, bandwidth: float | None) -> float:
    """The given bandwidth if it is valid, else the median heuristic; refuses unknown kernels."""
    check_kernel(kernel, bandwidth)
    return median_bandwidth(x, y) if bandwidth is None else bandwidth


def check_kernel(kernel: str, bandwidth: float | None) -> None:
    """A known kernel, with a bandwidth that is valid or still to be found."""
    if kernel not in get_args(KernelName):
        raise ValueError(f"kernel must be 'rbf' or 'laplace', got {kernel!r}")
    if bandwidth is not None and check_positive(bandwidth, "bandwidth") < _SMALLEST_BANDWIDTH:
        raise ValueError(f"bandwidth must be at least {_SMALLEST_BANDWIDTH:g}, got {bandwidth:g}: rescale the features")
