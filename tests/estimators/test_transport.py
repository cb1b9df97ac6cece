"""sinkhorn_divergence: closed forms, POT and geomloss, invariants, caching, subsampling, bad input."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trace.estimators import self_transport, sinkhorn_divergence, sinkhorn_floor
from trace.estimators.transport_peers import geomloss_divergence, pot_divergence


def cloud(seed, n=40, d=3, dtype=torch.float64):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def unit_cloud(seed, n=40, d=8, dtype=torch.float64):
    return torch.nn.functional.normalize(cloud(seed, n, d, dtype))


def test_diracs_cost_their_squared_distance():
    x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[4.0, 6.0]])
    assert sinkhorn_divergence(x, y).value == pytest.approx(25.0)


def test_well_separated_points_are_matched():
    x = 100 * cloud(0, n=12, d=2)
    moved = x[torch.randperm(12, generator=torch.Generator().manual_seed(1))] + torch.tensor([0.3, -0.4])
    assert sinkhorn_divergence(x, moved, num_iters=1000).value == pytest.approx(0.25, rel=1e-6)


@pytest.mark.parametrize("shift", [0.0, 0.01, 1.0, 50.0])
def test_translation_costs_its_square(shift):
    x = cloud(0)
    t = torch.tensor([shift, 0.0, 0.0], dtype=torch.float64)
    assert sinkhorn_divergence(x, x + t, tol=1e-8).value == pytest.approx(shift**2, rel=1e-7, abs=1e-8)


def test_translation_adds_the_squared_mean_gap():
    x, y = cloud(0), 1.5 * cloud(1)
    t = torch.tensor([3.0, -1.0, 2.0], dtype=torch.float64)
    gap = x.mean(0) - y.mean(0)
    centred = sinkhorn_divergence(x - x.mean(0), y - y.mean(0)).value
    assert sinkhorn_divergence(x, y + t).value == pytest.approx(centred + float((gap - t).square().sum()), rel=1e-10)


def test_gaussians_approach_the_closed_form(generator):
    """Entropic transport between isotropic Gaussians has a closed form (Mallasto et al., 2022); one dimension here."""
    n, s1, s2, eps = 4000, 1.0, 0.5, 0.1
    x = s1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    y = 2.0 + s2 * torch.randn(n, 1, generator=generator, dtype=torch.float64)

    def ot(a, b):
        """OT_eps between N(0, a^2) and N(0, b^2) for the cost |x - y|^2 (epsilon = 2 sigma^2 in the cited notation)."""
        kappa = math.sqrt(1 + 16 * a**2 * b**2 / eps**2)
        return a**2 + b**2 - eps / 2 * (kappa - math.log((1 + kappa) / 2) - 1)

    expected = 4.0 + ot(s1, s2) - (ot(s1, s1) + ot(s2, s2)) / 2
    assert sinkhorn_divergence(x, y).value == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("x", "y"), [(unit_cloud(0), unit_cloud(1, n=30) * 0.9), (cloud(0), cloud(1, n=30) + 0.5)])
def test_agrees_with_pot(x, y):
    assert sinkhorn_divergence(x, y, tol=1e-7).value == pytest.approx(
        pot_divergence(x, y, num_iters=20_000, tol=1e-6), rel=1e-5
    )


@pytest.mark.parametrize(("x", "y"), [(unit_cloud(0), unit_cloud(1) * 0.9), (cloud(0), cloud(1) + 0.5)])
def test_agrees_with_geomloss_up_to_its_annealing_error(x, y):
    fine = geomloss_divergence(x, y, scaling=0.99)
    assert sinkhorn_divergence(x, y).value == pytest.approx(fine, rel=2e-3)
    assert sinkhorn_divergence(x, y).value == pytest.approx(geomloss_divergence(x, y), rel=2e-2)


@given(st.integers(0, 10_000), st.integers(1, 12), st.integers(1, 12), st.integers(1, 5))
def test_symmetric_and_nonnegative(seed, n, m, d):
    x, y = cloud(seed, n, d), cloud(seed + 1, m, d)
    forward, backward = (sinkhorn_divergence(p, q, num_iters=2000, tol=1e-7).value for p, q in ((x, y), (y, x)))
    assert forward == pytest.approx(backward, rel=1e-4, abs=1e-6)
    assert forward >= -1e-6


@given(st.integers(0, 10_000), st.integers(1, 20), st.integers(1, 5))
def test_zero_on_itself_and_blind_to_order(seed, n, d):
    x = cloud(seed, n, d)
    shuffled = x[torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
    assert sinkhorn_divergence(x, x).value == pytest.approx(0.0, abs=1e-6)
    assert sinkhorn_divergence(x, shuffled).value == pytest.approx(0.0, abs=1e-6)
    y = cloud(seed + 1, 7, d)
    assert sinkhorn_divergence(shuffled, y).value == pytest.approx(sinkhorn_divergence(x, y).value, rel=1e-4, abs=1e-6)


@given(st.integers(0, 10_000), st.floats(0.1, 10))
def test_scales_with_the_square_when_epsilon_does(seed, scale):
    x, y = cloud(seed, 15), cloud(seed + 1, 12) + 1
    plain = sinkhorn_divergence(x, y, epsilon=0.1).value
    assert sinkhorn_divergence(scale * x, scale * y, epsilon=0.1 * scale**2).value == pytest.approx(
        scale**2 * plain, rel=1e-6
    )


@given(st.integers(0, 10_000), st.floats(-1000, 1000))
def test_float32_matches_float64_anywhere(seed, offset):
    x, y = cloud(seed, 20), cloud(seed + 1, 25) + 0.5
    exact = sinkhorn_divergence(x, y).value
    single = sinkhorn_divergence((x + offset).float(), (y + offset).float()).value
    assert single == pytest.approx(exact, rel=1e-3, abs=2e-5 + 2e-7 * abs(offset))


@given(st.integers(0, 10_000), st.integers(100, 10_000))
def test_block_size_does_not_change_the_value(seed, budget):
    x, y = cloud(seed, 30), cloud(seed + 1, 20)
    assert sinkhorn_divergence(x, y, memory_budget=budget).value == pytest.approx(
        sinkhorn_divergence(x, y).value, rel=1e-7, abs=1e-9
    )


def test_weights_mean_multiplicity():
    x, y = cloud(0, 6), cloud(1, 5)
    counts = torch.tensor([1.0, 3.0, 0.0, 2.0, 1.0, 0.0], dtype=torch.float64)
    repeated = x.repeat_interleave(counts.long(), dim=0)
    weighted = sinkhorn_divergence(x, y, x_weights=counts, tol=1e-9, num_iters=5000).value
    assert weighted == pytest.approx(sinkhorn_divergence(repeated, y, tol=1e-9, num_iters=5000).value, rel=1e-7)


@pytest.mark.parametrize(("shift", "scale"), [(0.7, 1.0), (0.0, 1.5)])
def test_standard_error_is_the_spread_over_draws(shift, scale):
    """The spread of 80 draws is known to 8%, their mean standard error much better."""
    found = [sinkhorn_divergence(cloud(s, 150, 2), scale * cloud(1000 + s, 100, 2) + shift) for s in range(80)]
    spread = float(torch.tensor([f.value for f in found]).std())
    assert sum(f.standard_error for f in found) / 80 == pytest.approx(spread, rel=0.2)


def test_standard_error_of_weighted_points():
    """Points without mass do not count, and a translation of Gaussians has a closed form: ``2 |t| sd`` a point."""
    x, y = cloud(0, 400), cloud(1, 300) + 1
    half = torch.tensor([2.0, 0.0])
    found = sinkhorn_divergence(x, y, x_weights=half.repeat(200), y_weights=half.repeat(150))
    assert found.standard_error == pytest.approx(sinkhorn_divergence(x[::2], y[::2]).standard_error, rel=1e-9)
    t = torch.tensor([5.0, 0.0, 0.0], dtype=torch.float64)
    expected = 2 * 5 * math.hypot(float(x[:, 0].std(correction=0)) / 20, float(y[:, 0].std(correction=0)) / 300**0.5)
    assert sinkhorn_divergence(x, y + t - 1).standard_error == pytest.approx(expected, rel=0.1)
    assert sinkhorn_divergence(x, x).standard_error < 1e-3


def test_self_term_is_reused_and_guarded():
    x, y = cloud(0), cloud(1)
    cached = self_transport(x)
    assert sinkhorn_divergence(x, y, x_self=cached).value == sinkhorn_divergence(x, y).value
    assert sinkhorn_divergence(y, x, y_self=cached).value == pytest.approx(sinkhorn_divergence(y, x).value)
    for wrong in ({"x_self": self_transport(y)}, {"x_self": cached, "epsilon": 0.2}, {"y_self": cached}):
        with pytest.raises(ValueError, match="was computed for another sample or epsilon"):
            sinkhorn_divergence(x, y, **wrong)
    permuted = self_transport(x[:, [1, 0, 2]])  # the same sum, size and mean length
    with pytest.raises(ValueError, match="x_self was computed for another"):
        sinkhorn_divergence(x, y, x_self=permuted)
    weights = torch.arange(1.0, 41.0, dtype=torch.float64)
    with pytest.raises(ValueError, match="x_self was computed for another"):
        sinkhorn_divergence(x, y, x_weights=weights, x_self=cached)
    with_weights = self_transport(x, weights=weights)
    assert sinkhorn_divergence(x, y, x_weights=weights, x_self=with_weights).converged


def test_subsampling_reports_the_spread(generator):
    x, y = cloud(0, 400, 2), cloud(1, 300, 2) + 1
    whole = sinkhorn_divergence(x, y)
    assert math.isnan(whole.spread)
    assert whole.sample_sizes == (400, 300)
    drawn = sinkhorn_divergence(x, y, max_samples=350, subsample=200, num_draws=8, generator=generator)
    assert drawn.sample_sizes == (200, 200)
    assert drawn.num_draws == 8
    assert abs(drawn.value - whole.value) < 4 * drawn.spread
    again = sinkhorn_divergence(
        x, y, max_samples=350, subsample=200, num_draws=8, generator=torch.Generator().manual_seed(0)
    )
    assert again == drawn
    with_self = sinkhorn_divergence(
        x, y, x_self=self_transport(x), max_samples=350, subsample=200, num_draws=8,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert with_self == drawn  # it belongs to the whole sample
    with pytest.raises(ValueError, match=r"pass a torch\.Generator"):
        sinkhorn_divergence(x, y, max_samples=350)
    with pytest.raises(ValueError, match="num_draws"):
        sinkhorn_divergence(x, y, max_samples=350, num_draws=1, generator=generator)


def test_floor_is_the_divergence_between_halves(generator):
    x = unit_cloud(0, n=200, d=64)
    floor = sinkhorn_floor(x, generator=generator, num_splits=4)
    between = sinkhorn_divergence(x[:100], x[100:]).value
    assert floor.value == pytest.approx(between, rel=0.1)
    assert floor.value > 0.1
    assert floor.num_draws == 4
    smaller = sinkhorn_floor(x, generator=generator, num_splits=4, max_half=30)
    assert smaller.sample_sizes == (30, 30)
    assert smaller.value > floor.value  # smaller samples lie further apart
    assert sinkhorn_floor(x, generator=generator, max_half=200).sample_sizes == (100, 100)
    with pytest.raises(ValueError, match="max_half must be a whole number"):
        sinkhorn_floor(x, generator=generator, max_half=0)
    with pytest.raises(ValueError, match="x has 3 samples, at least 4"):
        sinkhorn_floor(x[:3], generator=generator)
    with pytest.raises(ValueError, match="num_splits must be a whole number"):
        sinkhorn_floor(x, generator=generator, num_splits=0)
