"""The entropic solver against a plain log-sum-exp Sinkhorn, in every domain, block size and dtype."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.benchmarks.estimators import geomloss_divergence, pot_divergence
from trace.estimators import self_transport, sinkhorn, sinkhorn_divergence, sinkhorn_floor
from trace.estimators.sinkhorn import solve

EPSILON = 0.1


def uniform(x):
    return torch.full((len(x),), 1 / len(x), dtype=torch.float64)


def plain_sinkhorn(x, a, y, b, num_iters=5000):
    """Textbook iteration in float64, run far beyond convergence."""
    x, a, y, b = x.double(), a.double(), y.double(), b.double()
    cost = torch.cdist(x, y).square()
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for _ in range(num_iters):
        f_new = -EPSILON * torch.logsumexp((g - cost) / EPSILON + b.log(), dim=1)
        g = -EPSILON * torch.logsumexp((f_new[:, None] - cost) / EPSILON + a.log()[:, None], dim=0)
        if (f_new - f).abs().max() < 1e-13:
            break
        f = f_new
    return float(a @ f_new + b @ g)


def run(x, y, *, a=None, b=None, **options):
    defaults = {"epsilon": EPSILON, "num_iters": 500, "tol": 1e-6, "domain": "auto", "memory_budget": 2**30}
    a, b = uniform(x) if a is None else a, uniform(y) if b is None else b
    return solve(x, a, y, b, **{**defaults, **options})


@pytest.fixture(params=["unit", "plane", "far_apart", "spread"])
def clouds(request, generator):
    """Unit features (kernel domain) and raw coordinates (log domain), up to costs of 4000 epsilon."""
    draw = lambda n, d: torch.randn(n, d, generator=generator, dtype=torch.float64)  # noqa: E731
    normalise = torch.nn.functional.normalize
    return {
        "unit": (normalise(draw(60, 16)), normalise(draw(50, 16) + 0.3)),
        "plane": (draw(60, 2), 1.3 * draw(50, 2) + 0.5),
        "far_apart": (draw(60, 2), draw(50, 2) + 100.0),
        "spread": (3 * draw(60, 2), 2 * draw(50, 2)),
    }[request.param]


def test_equals_plain_sinkhorn(clouds):
    x, y = clouds
    expected = plain_sinkhorn(x - x.mean(0), uniform(x), y - y.mean(0), uniform(y))
    expected += float((x.mean(0) - y.mean(0)).square().sum())
    found = run(x, y, num_iters=5000, tol=1e-9)
    assert found.converged
    assert found.value == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_potentials_are_those_of_the_clouds_as_given(clouds):
    """Each is the soft minimum of the cost against the other, on clouds that were not centred."""
    x, y = clouds
    found = run(x, y, num_iters=5000, tol=1e-10)
    cost = torch.cdist(x, y).square()
    expected = -EPSILON * torch.logsumexp((found.g - cost) / EPSILON - math.log(len(y)), dim=1)
    assert (found.f - found.f.mean()).numpy() == pytest.approx((expected - expected.mean()).numpy(), abs=1e-6)


def test_self_term_equals_plain_sinkhorn(clouds):
    x, _ = clouds
    a, cost, f = uniform(x), torch.cdist(x, x).square(), torch.zeros(len(x), dtype=x.dtype)
    for _ in range(200):
        f = (f - EPSILON * torch.logsumexp((f - cost) / EPSILON + a.log(), dim=1)) / 2
    assert run(x, x, a=a, b=a, tol=1e-10).value == pytest.approx(float(2 * a @ f), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_and_kernel_domain_agree(clouds, dtype):
    x, y = (z.to(dtype) for z in clouds)
    scale = 1.0 if dtype == torch.float64 else 0.3
    x, y = x * scale, (y - y.mean(0)) * scale  # within range of the kernel domain
    if float((x.norm(dim=1).max() + y.norm(dim=1).max()) ** 2) / EPSILON > (60 if dtype == torch.float32 else 600):
        with pytest.raises(ValueError, match=r"epsilon=0\.1 is too small for the kernel domain"):
            run(x, y, domain="kernel")
        x, y = x / 8, y / 8
    kernel, log = run(x, y, domain="kernel"), run(x, y, domain="log")
    assert kernel.value == pytest.approx(log.value, rel=1e-4 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("budget", [1, 3000, 100_000])
def test_blocks_do_not_change_the_value(clouds, budget):
    x, y = clouds
    whole, blocks = run(x, y), run(x, y, memory_budget=budget)
    assert blocks.value == pytest.approx(whole.value, rel=1e-10)
    assert blocks.num_iters == whole.num_iters
    a = uniform(x)
    assert run(x, x, a=a, b=a, memory_budget=budget).value == pytest.approx(run(x, x, a=a, b=a).value, rel=1e-10)


def test_float32_against_float64(clouds):
    x, y = clouds
    single = run(x.float(), y.float(), tol=1e-4)
    assert single.value == pytest.approx(run(x, y, tol=1e-4).value, rel=1e-4)


def test_value_is_a_lower_bound_at_any_stage(clouds):
    x, y = clouds
    final = run(x, y, num_iters=5000, tol=1e-9)
    for num_iters in (1, 2, 5, 20, 60):
        early = run(x, y, num_iters=num_iters, tol=1e-9)
        assert early.value <= final.value + 1e-9
        assert early.num_iters <= num_iters
        assert early.converged == (early.marginal_error <= 1e-9)


def test_marginal_error_is_that_of_the_plan(generator):
    x, y = torch.rand(8, 2, generator=generator), torch.rand(9, 2, generator=generator)
    unconverged = run(3 * x, 3 * y, num_iters=3, tol=1e-12)
    assert not unconverged.converged
    assert 1e-12 < unconverged.marginal_error < 2
    assert run(3 * x, 3 * y, num_iters=200, tol=1e-4).marginal_error <= 1e-4


def test_over_relaxation_beats_the_plain_iteration(generator):
    x, y = torch.randn(300, 2, generator=generator), torch.randn(300, 2, generator=generator) + 0.5
    relaxed = run(x.double(), y.double(), tol=1e-5)
    cost = torch.cdist(x.double() - x.mean(0), y.double() - y.mean(0)).square()
    f, g, plain_iters = torch.zeros(300, dtype=torch.float64), torch.zeros(300, dtype=torch.float64), 0
    while True:
        f_new = -EPSILON * (torch.logsumexp((g - cost) / EPSILON, dim=1) - math.log(300))
        if float((torch.exp((f - f_new) / EPSILON) - 1).abs().mean()) < 1e-5:
            break
        f, plain_iters = f_new, plain_iters + 1
        g = -EPSILON * (torch.logsumexp((f[:, None] - cost) / EPSILON, dim=0) - math.log(300))
    assert relaxed.converged
    assert relaxed.num_iters < 0.6 * plain_iters


def test_inputs_with_gradients_are_fine(generator):
    x = torch.randn(6, 2, generator=generator, requires_grad=True)
    assert run(x, x.detach() + 1, a=uniform(x), b=uniform(x)).value == pytest.approx(2.0, rel=0.3)


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


@pytest.mark.parametrize("draw", [lambda z: torch.nn.functional.normalize(z, dim=1), lambda z: z])
def test_a_kernel_in_bfloat16_moves_the_value_by_no_more_than_it_says(draw, monkeypatch):
    """Costs moved by ``-eps log(1 + r)``, ``|r| <= 2^-8``, move each of the three terms by at most that."""
    x, y = draw(cloud(0, 400, 8)).float(), draw(cloud(1, 300, 8) + 0.2).float()
    exact = sinkhorn_divergence(x.double(), y.double(), tol=1e-9, num_iters=5000)
    monkeypatch.setattr(sinkhorn, "NARROW_ABOVE", 0)
    found = sinkhorn_divergence(x, y)
    assert found.converged
    assert found.value_error >= 2 * 0.1 * math.log(1 / (1 - 2**-8)) - 1e-12
    assert abs(found.value - exact.value) <= found.value_error + exact.value_error
    assert found.value == pytest.approx(exact.value, rel=1e-3), "errors of rounding average out"
    streamed = sinkhorn_divergence(x, y, memory_budget=100_000)
    assert streamed.value == pytest.approx(found.value, rel=1e-5), "all sweeps see one kernel, kept or made anew"


def test_rounding_moves_one_problem_no_further_than_its_bound(monkeypatch):
    """Worst case: all entries of the kernel are alike and rounded the same way; every plan costs 1/2."""
    x, y = torch.tensor([[0.5, 0.0], [-0.5, 0.0]]), torch.tensor([[0.0, 0.5], [0.0, -0.5]])
    half = torch.full((2,), 0.5, dtype=torch.float64)
    options = {"epsilon": 0.07, "num_iters": 100, "tol": 1e-9, "domain": "auto", "memory_budget": None}
    monkeypatch.setattr(sinkhorn, "NARROW_ABOVE", 0)
    found = solve(x, half, y, half, **options)
    assert 1e-6 < abs(found.value - 0.5) <= found.rounding_error


def test_the_budget_is_a_share_of_what_is_free(monkeypatch):
    asked = []
    monkeypatch.setattr(sinkhorn, "free_bytes", lambda device: asked.append(device.type) or 64)
    x, y = cloud(0, 40, 3), cloud(1, 30, 3)
    streamed = sinkhorn_divergence(x, y)
    assert asked == ["cpu"] * 3
    monkeypatch.undo()
    assert streamed.value == pytest.approx(sinkhorn_divergence(x, y).value, rel=1e-9)


def test_a_gpu_subsamples_later():
    assert sinkhorn.most_samples(torch.device("cpu")) == 50_000
    assert sinkhorn.most_samples(torch.device("cuda")) == 200_000
