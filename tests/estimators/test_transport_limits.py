"""Where the Sinkhorn divergence ends: no convergence, bad input, what a dtype cannot resolve, extreme weights."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.estimators.test_transport import cloud
from trace.estimators import sinkhorn_divergence


def test_says_when_it_did_not_converge():
    x, y = 5 * cloud(0, 100, 2), 5 * cloud(1, 100, 2)
    short = sinkhorn_divergence(x, y, num_iters=2)
    assert not short.converged
    assert short.num_iters == 2
    assert short.marginal_error > 1e-4


GOOD = torch.zeros(3, 2)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.full((3, 2), torch.nan), GOOD, "x holds NaN or infinity .first in row 0."),
        (GOOD, torch.tensor([[0.0, 0.0], [torch.inf, 0.0]]), "y holds NaN or infinity .first in row 1."),
        (torch.zeros(0, 2), GOOD, "x has 0 samples"),
        (GOOD, torch.zeros(3, 0), "y has no columns"),
        (GOOD, torch.zeros(3, 5), "differ in columns"),
        (GOOD, torch.zeros(3), "y must have shape .n, d."),
        (GOOD.long(), GOOD, "x must be float32 or float64"),
        (GOOD.half(), GOOD, "x must be float32 or float64"),
        (GOOD, GOOD.double(), "x is torch.float32 but y is torch.float64"),
        (GOOD, GOOD.to("meta"), "x is on cpu but y is on meta"),
        (GOOD.numpy(), GOOD, "x must be a torch tensor"),
        (GOOD.to("meta"), GOOD.to("meta"), "x is on the meta device"),
    ],
)
def test_bad_samples(x, y, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn_divergence(x, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be finite and positive"),
        ({"epsilon": math.nan}, "epsilon must be finite and positive"),
        ({"num_iters": 0}, "num_iters must be a whole number of at least 1"),
        ({"tol": -1.0}, "tol must be finite and positive"),
        ({"tol": math.nan}, "tol must be finite and positive"),
        ({"domain": "LOG"}, "domain must be 'auto', 'kernel' or 'log'"),
        ({"max_samples": 2, "subsample": 0, "generator": torch.Generator()}, "subsample must be a whole number"),
        ({"x_weights": torch.ones(2)}, "x_weights has 2 values for 3 samples"),
        ({"x_weights": torch.tensor([1.0, -1.0, 1.0])}, "x_weights must be nonnegative"),
        ({"y_weights": torch.zeros(3)}, "y_weights must be nonnegative with a positive sum"),
        ({"y_weights": torch.tensor([1.0, torch.nan, 1.0])}, "y_weights holds NaN"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn_divergence(GOOD, GOOD + 1, **options)


def test_one_sample_is_enough():
    assert sinkhorn_divergence(torch.zeros(1, 2), torch.ones(3, 2)).value == pytest.approx(2.0)


@pytest.mark.parametrize(("scale", "epsilon"), [(1e3, 0.1), (1.0, 1e-7), (1.0, 1e7), (1e-6, 0.1)])
def test_what_float32_cannot_resolve_is_solved_in_float64(scale, epsilon):
    x = scale * cloud(0, 50, 2)
    y = x + 0.3 * scale * cloud(1, 50, 2)
    x, y = x.float(), y.float()
    single = sinkhorn_divergence(x, y, epsilon=epsilon)
    double = sinkhorn_divergence(x.double(), y.double(), epsilon=epsilon)
    assert single.value == pytest.approx(double.value, rel=1e-9)
    assert sinkhorn_divergence(x, x, epsilon=epsilon).value == pytest.approx(0.0, abs=1e-9 * max(scale**2, epsilon))


def test_missing_mass_between_clusters_is_never_called_converged():
    """4e-5 of the mass must travel 100 units: that costs 0.4, and too short a run must not claim to know better."""
    x = torch.tensor([[0.0], [100.0]], dtype=torch.float64)
    a, b = torch.tensor([0.5, 0.5]).double(), torch.tensor([0.50004, 0.49996]).double()
    found = sinkhorn_divergence(x, x.clone(), x_weights=a, y_weights=b)
    assert not found.converged
    assert found.value <= 0.4 <= found.value + found.value_error


@given(st.integers(0, 10_000), st.integers(1, 60), st.floats(0.3, 10))
def test_value_error_bounds_what_more_sweeps_would_add(seed, num_iters, scale):
    x, y = scale * cloud(seed, 12, 2), scale * cloud(seed + 1, 9, 2)
    early = sinkhorn_divergence(x, y, num_iters=num_iters)
    late = sinkhorn_divergence(x, y, num_iters=2_000, tol=1e-9)
    assert abs(late.value - early.value) <= early.value_error + late.value_error + 1e-9


def test_distances_beyond_float64_are_refused():
    with pytest.raises(ValueError, match="more than float64 resolves: rescale the samples, drop outliers or raise"):
        sinkhorn_divergence(1e10 * cloud(0), 1e10 * cloud(1))


@pytest.mark.parametrize("weights", [[1e-50, 1.0, 1.0], [1e-30, 1.0, 1e20], [3e38, 3e38, 3e38], [1e-320, 1.0, 1.0]])
def test_extreme_weights(weights):
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    found = sinkhorn_divergence(x, x + 1, x_weights=torch.tensor(weights, dtype=torch.float64))
    assert math.isfinite(found.value)
    assert found.converged
