"""Exact W1: closed forms, scipy, duality, bad input."""

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance

from trace.estimators import sinkhorn_divergence, wasserstein1
from trace.estimators.wasserstein1 import assignment_cost, entropic_potentials


def cloud(seed, n=20, d=3):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_translation_costs_its_length(dtype):
    x = cloud(0).to(dtype)
    found = wasserstein1(x, x + torch.tensor([3.0, 4.0, 0.0], dtype=dtype))
    assert found.value == pytest.approx(5.0, rel=1e-6)
    assert found.cost == "euclidean"
    assert found.converged


def test_small_shift_tells_w1_from_the_published_proxy():
    x = cloud(0)
    moved = x + torch.tensor([0.1, 0.0, 0.0], dtype=torch.float64)
    assert wasserstein1(x, moved).value == pytest.approx(0.1)
    assert sinkhorn_divergence(x, moved).value == pytest.approx(0.01, rel=1e-5)


@given(st.integers(0, 10_000), st.integers(1, 15))
def test_equals_the_best_assignment(seed, n):
    x, y = cloud(seed, n), cloud(seed + 1, n)
    cost = torch.cdist(x, y).numpy()
    rows, columns = linear_sum_assignment(cost)
    assert wasserstein1(x, y).value == pytest.approx(cost[rows, columns].mean(), rel=1e-9)


def clustered(seed, n, d):
    centres = cloud(seed, 4, d)
    return centres.repeat(n // 4, 1) + 1e-3 * cloud(seed + 1, n, d)


@pytest.mark.parametrize("d", [2, 4, 8, 64])
@pytest.mark.parametrize("drawn", [cloud, clustered])
def test_equals_pot_whichever_solver_is_taken(drawn, d):
    x, y = drawn(0, 200, d), drawn(2, 200, d) + 0.1
    expected = ot.emd2([], [], ot.dist(x.numpy(), y.numpy(), metric="euclidean"))
    assert wasserstein1(x, y).value == pytest.approx(float(expected), rel=1e-12)
    assert wasserstein1(x.float(), y.float()).value == pytest.approx(float(expected), rel=1e-5)


def test_potentials_are_offered_where_they_tell_whom_to_assign():
    """Spread points have few partners in the entropic plan; points in tight clusters have their whole cluster."""
    costs = {d: torch.cdist(drawn(0, 200, d), drawn(2, 200, d)).numpy() for d, drawn in ((32, cloud), (3, clustered))}
    assert entropic_potentials(costs[32]) is not None
    assert entropic_potentials(costs[3]) is None
    assert entropic_potentials(np.ones((5, 5))) is None


@given(st.integers(0, 10_000), st.integers(1, 12))
def test_potentials_change_no_assignment(seed, n):
    cost = torch.cdist(cloud(seed, n), cloud(seed + 1, n)).numpy()
    f, g = (cloud(seed + k, n, 1)[:, 0].numpy() for k in (2, 3))
    rows, columns = linear_sum_assignment(cost)
    assert assignment_cost(cost.copy(), f, g) == pytest.approx(cost[rows, columns].mean(), rel=1e-12)


def test_unequal_weights_are_not_an_assignment():
    x, y = cloud(0, 100, 16), cloud(1, 100, 16)
    weights = torch.arange(1.0, 101.0, dtype=torch.float64)
    cost = ot.dist(x.numpy(), y.numpy(), metric="euclidean")
    expected = ot.emd2((weights / weights.sum()).numpy(), [], cost)
    assert wasserstein1(x, y, x_weights=weights).value == pytest.approx(float(expected), rel=1e-12)
    assert wasserstein1(x, y, x_weights=weights[:1].expand(100)).value == wasserstein1(x, y).value


@given(st.integers(0, 10_000), st.integers(1, 30), st.integers(1, 30))
def test_one_dimension_equals_scipy(seed, n, m):
    x, y = cloud(seed, n, 1), cloud(seed + 1, m, 1) + 0.3
    weights = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.01
    expected = wasserstein_distance(x[:, 0], y[:, 0], weights)
    assert wasserstein1(x, y, x_weights=weights).value == pytest.approx(expected, rel=1e-9)


@given(st.integers(0, 10_000))
def test_bounds_lipschitz_functions(seed):
    """Kantorovich-Rubinstein duality: the difference in means of a 1-Lipschitz function is at most W1."""
    x, y = cloud(seed, 12), cloud(seed + 1, 9) * 1.4
    centre = cloud(seed + 2, 1)[0]
    difference = abs(float((x - centre).norm(dim=1).mean() - (y - centre).norm(dim=1).mean()))
    assert difference <= wasserstein1(x, y).value + 1e-9


def test_weights_mean_multiplicity():
    x, y = cloud(0, 4), cloud(1, 5)
    counts = torch.tensor([2.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    repeated = x.repeat_interleave(counts.long(), dim=0)
    assert wasserstein1(x, y, x_weights=counts).value == pytest.approx(wasserstein1(repeated, y).value)


def test_subsamples_large_samples(generator):
    x, y = cloud(0, 300), cloud(1, 200) + 1
    drawn = wasserstein1(x, y, max_samples=250, subsample=150, generator=generator)
    assert drawn.sample_sizes == (150, 150)
    assert math.isfinite(drawn.spread)
    assert drawn.value == pytest.approx(wasserstein1(x, y).value, rel=0.2)
    with pytest.raises(ValueError, match=r"pass a torch\.Generator"):
        wasserstein1(x, y, max_samples=250)


def test_one_dimension_is_sorted_whole_whatever_its_size():
    x, y = cloud(0, 300, 1), cloud(1, 200, 1) + 1
    found = wasserstein1(x, y, max_samples=250)
    assert found.value == pytest.approx(wasserstein_distance(x[:, 0], y[:, 0]), rel=1e-9)
    assert found.sample_sizes == (300, 200)
    assert math.isnan(found.spread)


@pytest.mark.filterwarnings("ignore:numItermax reached")
def test_says_when_the_solver_stopped_early():
    x, y = cloud(0, 200), cloud(1, 200)
    assert not wasserstein1(x, y, num_iters=5).converged


def test_bad_samples():
    with pytest.raises(ValueError, match="x holds NaN"):
        wasserstein1(torch.full((2, 2), torch.nan), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="differ in columns"):
        wasserstein1(torch.zeros(2, 2), torch.zeros(2, 3))
