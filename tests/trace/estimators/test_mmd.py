"""MMD: scikit-learn and scipy kernels, closed forms, unbiasedness by Monte Carlo, invariants, bad input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist, pdist
from sklearn.metrics.pairwise import rbf_kernel

from trace.estimators import kernels, mmd
from trace.estimators.kernels import gram, median_bandwidth


def cloud(seed, n=30, d=3, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def reference_gram(x, y, kernel, bandwidth):
    if kernel == "rbf":
        return rbf_kernel(x, y, gamma=1 / (2 * bandwidth**2))
    return np.exp(-cdist(x, y) / bandwidth)


def reference_squared(x, y, kernel, bandwidth, *, unbiased):
    xx, yy, xy = (reference_gram(p, q, kernel, bandwidth) for p, q in ((x, x), (y, y), (x, y)))
    if not unbiased:
        return xx.mean() + yy.mean() - 2 * xy.mean()
    n, m = len(x), len(y)
    off = lambda k: k.sum() - np.trace(k)  # noqa: E731
    return off(xx) / (n * (n - 1)) + off(yy) / (m * (m - 1)) - 2 * xy.mean()


@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_equals_scikit_learn(kernel, estimator):
    x, y = cloud(0), cloud(1, n=25) + 0.5
    found = mmd(x, y, kernel=kernel, bandwidth=0.7, estimator=estimator)
    expected = reference_squared(x.numpy(), y.numpy(), kernel, 0.7, unbiased=estimator == "unbiased")
    assert found.squared == pytest.approx(expected, rel=1e-12)
    assert found.value == pytest.approx(math.sqrt(expected))


@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
def test_batched_gram(kernel):
    x, y = cloud(0, 12).view(3, 4, 3), cloud(1, 15).view(3, 5, 3)
    for i, K in enumerate(gram(x, y, kernel=kernel, bandwidth=1.3)):
        assert K.numpy() == pytest.approx(reference_gram(x[i].numpy(), y[i].numpy(), kernel, 1.3), rel=1e-12)


def test_gaussians_equal_the_closed_form(generator):
    """For N(0, I) against N(mu, I) and an RBF kernel, MMD^2 = 2 c (1 - exp(-|mu|^2 / (2 (s^2 + 2))))."""
    n, d, s, shift = 6000, 2, 1.5, 0.8
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y[:, 0] += shift
    scale = (s**2 / (s**2 + 2)) ** (d / 2)
    expected = 2 * scale * (1 - math.exp(-(shift**2) / (2 * (s**2 + 2))))
    assert mmd(x, y, bandwidth=s).squared == pytest.approx(expected, rel=0.05)
    for estimator in ("block", "linear"):
        found = mmd(x, y, bandwidth=s, estimator=estimator)
        assert abs(found.squared - expected) < 4 * found.standard_error


@pytest.mark.parametrize("estimator", ["unbiased", "block", "linear"])
def test_unbiased_under_no_shift_and_the_sign_is_kept(estimator):
    found = [mmd(cloud(s, 16), cloud(1000 + s, 16), bandwidth=1.0, estimator=estimator) for s in range(400)]
    squares = np.array([f.squared for f in found])
    assert abs(squares.mean()) < 4 * squares.std() / 20
    assert (squares < 0).mean() > 0.2
    for f in found:
        assert f.negative == (f.squared < 0)
        assert f.value == (0.0 if f.negative else math.sqrt(f.squared))


@pytest.mark.parametrize(("shift", "most"), [(0.8, 1.3), (0.0, 6.0)])
def test_standard_error_of_the_witness(shift, most):
    """Close to the spread of draws under a shift; without one too large, never too small and never 0."""
    for kernel in ("rbf", "laplace"):
        found = [mmd(cloud(s, 120), cloud(1000 + s, 90) + shift, kernel=kernel, bandwidth=2.0) for s in range(80)]
        ratio = np.mean([f.standard_error for f in found]) / np.std([f.squared for f in found])
        assert 0.9 < ratio < most


def test_margins_of_a_kernel_sum(monkeypatch):
    monkeypatch.setattr(kernels, "_TILE", 7)
    x, y = cloud(0, 30), cloud(1, 25)
    K, own = reference_gram(x, y, "rbf", 1.1), reference_gram(x, x, "rbf", 1.1) - np.eye(30)
    found, symmetric = (kernels.kernel_sum(x, z, kernel="rbf", bandwidth=1.1) for z in (y, x))
    assert found.rows.numpy() == pytest.approx(K.sum(axis=1), rel=1e-10)
    assert found.columns.numpy() == pytest.approx(K.sum(axis=0), rel=1e-10)
    assert symmetric.rows.numpy() == pytest.approx(own.sum(axis=1), rel=1e-10)
    assert symmetric.total == pytest.approx(own.sum(), rel=1e-10)


@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
@pytest.mark.parametrize("estimator", ["unbiased", "block"])
@pytest.mark.parametrize("gap", [20, 1000, 10_000])
def test_a_spread_far_beyond_the_bandwidth_in_single_precision(kernel, estimator, gap):
    x, y = 0.1 * cloud(0, 400, 1, torch.float32), 0.1 * cloud(1, 300, 1, torch.float32) + 0.05
    x[::4] += gap
    y[::4] += gap
    single, double = (mmd(*xy, kernel=kernel, bandwidth=0.19, estimator=estimator)
                      for xy in ((x, y), (x.double(), y.double())))  # fmt: skip
    assert single.squared == pytest.approx(double.squared, rel=1e-3)


def test_usual_features_stay_in_single_precision():
    x = torch.nn.functional.normalize(cloud(0, 500, 64, torch.float32), dim=1)
    assert kernels.centred(x, x, bandwidth=median_bandwidth(x, x))[0].dtype == torch.float32


def test_even_strides_of_a_very_large_sample():
    """Single precision has no odd integers beyond 2^24."""
    n = 2**24 + 2
    chosen = kernels.even_strides(n, n // 2 + 1)
    assert int(chosen[-1]) == n - 1
    assert len(chosen.unique()) == len(chosen)


def test_standard_error_is_the_spread_over_draws():
    for estimator in ("block", "linear"):
        found = [mmd(cloud(s, 400), cloud(1000 + s, 400) + 0.3, bandwidth=1.0, estimator=estimator) for s in range(80)]
        spread = np.std([f.squared for f in found])
        assert np.mean([f.standard_error for f in found]) == pytest.approx(spread, rel=0.25)


@given(st.integers(0, 10_000), st.integers(2, 20), st.integers(2, 20), st.sampled_from(["rbf", "laplace"]))
def test_invariants(seed, n, m, kernel):
    x, y = cloud(seed, n), cloud(seed + 1, m)
    squared = mmd(x, y, kernel=kernel, bandwidth=1.0).squared
    shuffled = x[torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
    assert mmd(y, x, kernel=kernel, bandwidth=1.0).squared == pytest.approx(squared, abs=1e-12)
    assert mmd(shuffled, y, kernel=kernel, bandwidth=1.0).squared == pytest.approx(squared, abs=1e-12)
    assert mmd(x + 50, y + 50, kernel=kernel, bandwidth=1.0).squared == pytest.approx(squared, abs=1e-9)
    assert mmd(3 * x, 3 * y, kernel=kernel, bandwidth=3.0).squared == pytest.approx(squared, abs=1e-9)
    assert mmd(x, x, kernel=kernel, bandwidth=1.0, estimator="biased").squared == pytest.approx(0.0, abs=1e-12)
    assert mmd(x, y, kernel=kernel, bandwidth=1.0, estimator="biased").squared >= -1e-12


@given(st.integers(0, 10_000), st.floats(-100, 100))
def test_float32_matches_float64(seed, offset):
    x, y = cloud(seed, 40), cloud(seed + 1, 30) + 0.5
    single = mmd((x + offset).float(), (y + offset).float(), bandwidth=1.0).squared
    assert single == pytest.approx(mmd(x, y, bandwidth=1.0).squared, abs=1e-4)


@pytest.mark.parametrize("tile", [1, 7, 64])
@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
def test_tile_size_does_not_change_the_value(monkeypatch, tile, kernel):
    x, y = cloud(0, 50), cloud(1, 40)
    whole = mmd(x, y, kernel=kernel)
    monkeypatch.setattr(kernels, "_TILE", tile)
    assert mmd(x, y, kernel=kernel).squared == pytest.approx(whole.squared, rel=1e-12)


def test_block_estimator_with_one_block_is_the_unbiased_one():
    x, y = cloud(0), cloud(1)
    one = mmd(x, y, bandwidth=1.0, estimator="block", block_size=30)
    assert one.squared == pytest.approx(mmd(x, y, bandwidth=1.0).squared, rel=1e-12)
    assert math.isnan(one.standard_error)


def test_shuffling_makes_sorted_data_safe(generator):
    """Samples sorted by class, the same classes on both sides: without shuffling, blocks see one class each."""
    classes = torch.arange(2.0).repeat_interleave(200)[:, None].double() * 10
    x, y = cloud(0, 400, 1) + classes, cloud(1, 400, 1) + classes.flip(0)
    for estimator in ("block", "linear"):
        assert abs(mmd(x, y, bandwidth=5.0, estimator=estimator).squared) > 0.5
        found = mmd(x, y, bandwidth=5.0, estimator=estimator, generator=generator)
        assert abs(found.squared) < 4 * found.standard_error


def test_median_heuristic_is_the_median_distance():
    x, y = cloud(0, 21), cloud(1, 20)
    distances = np.sort(pdist(torch.cat([x, y]).numpy()))
    assert median_bandwidth(x, y) == pytest.approx(distances[(len(distances) - 1) // 2], rel=1e-9)
    assert mmd(x, y).bandwidth == median_bandwidth(x, y)
    large = median_bandwidth(cloud(0, 3000), cloud(1, 3000), max_points=800)
    assert large == pytest.approx(median_bandwidth(cloud(0, 500), cloud(1, 500)), rel=0.05)


GOOD = cloud(0, 6)


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (GOOD * torch.nan, GOOD, {}, "x holds NaN"),
        (GOOD[:0], GOOD, {}, "x has 0 samples, at least 2"),
        (GOOD, GOOD[:1], {}, "y has 1 samples, at least 2"),
        (GOOD[:3], GOOD[:3], {"estimator": "linear"}, "x has 3 samples, at least 4"),
        (GOOD, GOOD[:, :2], {}, "differ in columns"),
        (GOOD, GOOD.float(), {}, "float64 but y is torch.float32"),
        (GOOD.long(), GOOD, {}, "x must be float32 or float64"),
        (GOOD, GOOD.to("meta"), {}, "y is on meta"),
        (GOOD, GOOD, {"kernel": "cosine"}, "kernel must be 'rbf' or 'laplace'"),
        (GOOD, GOOD, {"estimator": "median"}, "estimator must be one of"),
        (GOOD, GOOD, {"bandwidth": 0.0}, "bandwidth must be finite and positive"),
        (GOOD, GOOD, {"estimator": "block", "block_size": 7}, "block_size must lie between"),
        (torch.ones(4, 2), torch.ones(4, 2), {}, "the median distance is 0"),
        (torch.full((90, 512), 1 / 3), torch.randn(9, 512), {}, "the median distance is 0"),
        (GOOD, GOOD, {"bandwidth": 1e-200}, "bandwidth must be at least 1e-15"),
    ],
)
def test_bad_input(x, y, options, message):
    with pytest.raises(ValueError, match=message):
        mmd(x, y, **options)


def test_a_bandwidth_far_below_the_data_leaves_no_kernel_and_no_nan():
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(30, 3, generator=g), torch.randn(40, 3, generator=g)
    found = mmd(x, y, bandwidth=1e-15, estimator="biased")
    assert abs(found.squared - (1 / 30 + 1 / 40)) < 1e-6
