"""Upper bounds on the operator norm of a convolution: the largest singular value of the unrolled operator, from above.

Power iteration approaches that value from below, so it certifies nothing. The three bounds here lie above it for every
input size, stride, dilation and number of groups, with zeros around the input; the smallest of them is taken.
"""

import math
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

_MOST_WORK = 2e9
"""Multiplications that the symbol's singular values may cost; beyond, its grid is coarser, or it is left out."""


def convolution_norm(weight: Tensor, *, stride: Sequence[int], dilation: Sequence[int], groups: int = 1) -> float:
    """An upper bound on ``sup |A x| / |x|`` for the convolution A with a kernel ``[O, I / groups, k_1, ..., k_D]``.

    Groups work on separate channels, so that A is block diagonal, and its norm the largest of its blocks'. Of a block
    the smallest of three bounds is taken: `symbol_norm`, `patch_norm`, `absolute_norm`.

    >>> identity = torch.zeros(1, 1, 3)
    >>> identity[0, 0, 1] = 2.0
    >>> round(convolution_norm(identity, stride=[1], dilation=[1]), 9)
    2.0
    """
    blocks = weight.detach().cpu().double().chunk(groups)
    classes = _touching(weight.shape[2:], stride, dilation)
    return max(min(symbol_norm(w), patch_norm(w, classes), absolute_norm(w, classes)) for w in blocks)


def spectral_norm(matrices: Tensor) -> float:
    """The largest singular value of matrices ``[..., a, b]``, from the smaller of their Gram matrices."""
    a, b = matrices.shape[-2:]
    gram = matrices @ matrices.mH if a <= b else matrices.mH @ matrices
    return math.sqrt(max(0.0, float(torch.linalg.eigvalsh(gram)[..., -1].max())))


def symbol_norm(weight: Tensor) -> float:
    """From the symbol ``K(t) = sum_k weight[:, :, k] exp(i k.t)``: ``sup_t |K(t)|``, from its values on a grid.

    On the infinite grid ``Z^D`` a convolution of stride 1 is a multiplication by K in the Fourier domain, with norm
    ``sup_t |K(t)|``. Zeros around the input embed it into that grid, and the outputs that are kept, with a stride
    fewer, are a projection; both shrink. Dilation decouples the cosets of ``Z^D``, which all have the same norm. Rows
    of a circular convolution take values of K at some t.

    Between grid points: for unit u, v the number ``u* K(t) v`` is, up to a phase, a trigonometric polynomial of degree
    ``d = k // 2`` in each variable. Where the real part of one such attains its maximum m, it is at least
    ``m cos(d s)`` at a distance ``s <= pi / d`` (M. Riesz), and the nearest of N points lies within ``pi / N``. So the
    supremum is at most ``prod_j 1 / cos(pi d_j / N_j)`` times the maximum over the grid.
    """
    channels = weight.shape[:2]
    degrees = [size // 2 for size in weight.shape[2:]]
    work = 20 * max(channels) * min(channels) ** 2
    for points in (32, 16, 8, 4):
        grid = [1 if degree == 0 else points * degree for degree in degrees]
        if work * math.prod(grid) <= _MOST_WORK:
            symbol = torch.fft.fftn(weight, s=grid, dim=tuple(range(2, weight.ndim))).flatten(start_dim=2)
            between = math.prod(math.cos(math.pi * d / n) for d, n in zip(degrees, grid, strict=True))
            return spectral_norm(symbol.permute(2, 0, 1)) / between
    return math.inf


def patch_norm(weight: Tensor, classes: list[list[int]]) -> float:
    """``|W| sqrt(N)`` with W the kernel as a matrix ``[O, I k_1 ... k_D]`` and N the patches that share an entry of x.

    The output at p is ``W patch_p``, so ``|A x|^2 <= |W|^2 sum_p |patch_p|^2 <= |W|^2 N |x|^2``. Exact where patches do
    not overlap. The kernel's places that can meet one entry of x are ``classes``; N is the size of the largest.
    """
    return spectral_norm(weight.flatten(start_dim=1)) * math.sqrt(max(map(len, classes)))


def absolute_norm(weight: Tensor, classes: list[list[int]]) -> float:
    """``sqrt(|A|_1 |A|_inf)``: the largest absolute column sum and row sum of the unrolled operator.

    A row holds the kernel of one output channel; a column that of one input channel at the places of one class.
    """
    absolute = weight.abs().flatten(start_dim=2)
    rows = absolute.sum(dim=(1, 2)).max()
    columns = max(float(absolute[:, :, places].sum(dim=(0, 2)).max()) for places in classes)
    return math.sqrt(float(rows) * columns)


def overlap(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> int:
    """Most windows that share an entry of the input."""
    return max(map(len, _touching(kernel, stride, dilation)))


def _touching(kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[list[int]]:
    """Places of the kernel by ``k dilation mod stride``: those of one class can meet the same entry of the input."""
    classes: dict[tuple[int, ...], list[int]] = {}
    for flat, place in enumerate(product(*map(range, kernel))):
        residue = tuple(k * d % s for k, d, s in zip(place, dilation, stride, strict=True))
        classes.setdefault(residue, []).append(flat)
    return list(classes.values())
