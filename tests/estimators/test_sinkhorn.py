"""The entropic solver against a plain log-sum-exp Sinkhorn, in every domain, block size and dtype."""

import math

import pytest
import torch

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
