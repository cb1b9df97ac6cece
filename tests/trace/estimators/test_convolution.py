"""Bounds on convolutions against the largest singular value of the unrolled operator."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trace.estimators.convolution import absolute_norm, convolution_norm, overlap, patch_norm, symbol_norm

KINDS = {1: nn.Conv1d, 2: nn.Conv2d}


def unrolled(layer, shape):
    """The operator as a matrix: its images of all unit vectors."""
    eye = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)
    with torch.no_grad():
        return layer.double()(eye).flatten(start_dim=1).T


def drawn(layer, seed):
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=torch.Generator().manual_seed(seed)))
    return layer


@settings(max_examples=60)
@given(
    dims=st.integers(1, 2),
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 3),
    groups=st.integers(1, 2),
    channels=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    seed=st.integers(0, 10_000),
)
def test_no_singular_value_exceeds_any_of_the_bounds(dims, kernel, stride, dilation, padding, groups, channels, seed):
    inner, outer = (groups * c for c in channels)
    options = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups, "bias": False}
    layer = drawn(KINDS[dims](inner, outer, kernel, **options), seed)
    true = float(torch.linalg.matrix_norm(unrolled(layer, (inner, *[9] * dims)), ord=2))
    found = convolution_norm(layer.weight, stride=layer.stride, dilation=layer.dilation, groups=groups)
    assert true <= found * (1 + 1e-9)


@settings(max_examples=30)
@given(
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    groups=st.integers(1, 2),
    seed=st.integers(0, 10_000),
)
def test_transposed_convolutions_have_the_norm_of_their_adjoint(kernel, stride, padding, groups, seed):
    options = {"stride": stride, "padding": min(padding, kernel - 1), "groups": groups, "bias": False}
    layer = drawn(nn.ConvTranspose2d(2, 4, kernel, **options), seed)
    true = float(torch.linalg.matrix_norm(unrolled(layer, (2, 5, 5)), ord=2))
    assert true <= convolution_norm(layer.weight, stride=layer.stride, dilation=(1, 1), groups=groups) * (1 + 1e-9)


def test_sharp_on_large_inputs():
    layer = drawn(nn.Conv1d(2, 3, 3, padding=1, bias=False), 0)
    true = float(torch.linalg.matrix_norm(unrolled(layer, (2, 200)), ord=2))
    found = convolution_norm(layer.weight, stride=[1], dilation=[1])
    assert true <= found <= 1.006 * true


def test_each_bound_lies_above_and_is_the_best_somewhere():
    """Patches that do not overlap are exact; a positive kernel has its sum as symbol and as absolute norm."""
    patches = drawn(nn.Conv2d(3, 5, 4, stride=4, bias=False), 1)
    true = float(torch.linalg.matrix_norm(unrolled(patches, (3, 8, 8)), ord=2))
    assert convolution_norm(patches.weight, stride=(4, 4), dilation=(1, 1)) == pytest.approx(true, rel=1e-9)
    positive = torch.ones(1, 1, 3, dtype=torch.float64)
    whole = [[0, 1, 2]]
    assert absolute_norm(positive, whole) == pytest.approx(3.0)
    assert patch_norm(positive, whole) == pytest.approx(3.0)
    assert 3.0 <= symbol_norm(positive) <= 3.02
    signs = torch.tensor([[[1.0, 1.0, -1.0]]], dtype=torch.float64)
    assert symbol_norm(signs) < min(absolute_norm(signs, whole), patch_norm(signs, whole))


def test_the_grid_never_misses_a_peak_between_its_points():
    """Kernels whose symbol peaks at a frequency of the test's choice."""
    for frequency in torch.linspace(0.0, math.pi, 41, dtype=torch.float64):
        taps = torch.cos(frequency * torch.arange(4, dtype=torch.float64)).view(1, 1, 4)
        fine = torch.fft.fft(taps, n=100_000).abs().max()
        assert float(fine) <= symbol_norm(taps) * (1 + 1e-12)


def test_wide_layers_leave_the_symbol_out():
    assert symbol_norm(torch.zeros(1, 1, 1).expand(600, 600, 1)) == math.inf


@given(kernel=st.integers(1, 5), stride=st.integers(1, 4), dilation=st.integers(1, 3))
def test_overlap_counts_windows_that_share_an_entry(kernel, stride, dilation):
    length = 60
    starts = range(0, length - dilation * (kernel - 1), stride)
    counted = [
        sum((q - p) % dilation == 0 and 0 <= (q - p) // dilation < kernel for p in starts) for q in range(length)
    ]
    assert overlap([kernel], [stride], [dilation]) == max(counted)
