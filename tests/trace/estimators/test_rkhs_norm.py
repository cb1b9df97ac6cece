"""Kernel ridge norm: scikit-learn's grid search with leave-one-out, known functions, the edge warning, bad input."""

import math

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, LeaveOneOut

from trace.estimators import rkhs_norm
from trace.estimators.kernels import gram
from trace.estimators.rkhs_norm import kernel_spectrum

M, BANDWIDTH = 40, 0.8
GRID = torch.logspace(-6, 1, 15, dtype=torch.float64)


@pytest.fixture
def noisy(generator):
    u = torch.rand(M, 2, generator=generator, dtype=torch.float64) * 3
    t = (2 * u[:, 0]).sin() + 0.2 * torch.randn(M, generator=generator, dtype=torch.float64)
    return u, t


def sklearn_norm(u, t, ridge):
    fitted = KernelRidge(alpha=M * ridge, kernel="rbf", gamma=1 / (2 * BANDWIDTH**2)).fit(u, t)
    K = gram(u, u, kernel="rbf", bandwidth=BANDWIDTH).numpy()
    return math.sqrt(fitted.dual_coef_ @ K @ fitted.dual_coef_)


def test_equals_scikit_learn_grid_search(noisy):
    u, t = noisy
    search = GridSearchCV(
        KernelRidge(kernel="rbf", gamma=1 / (2 * BANDWIDTH**2)),
        {"alpha": (M * GRID).numpy()},
        cv=LeaveOneOut(),
        scoring="neg_mean_squared_error",
    ).fit(u.numpy(), t.numpy())
    found = rkhs_norm(u, t, bandwidth=BANDWIDTH, ridges=GRID)
    assert M * found.ridge == pytest.approx(search.best_params_["alpha"], rel=1e-9)
    assert found.cv_error == pytest.approx(-search.best_score_, rel=1e-8)
    assert found.value == pytest.approx(sklearn_norm(u, t, found.ridge), rel=1e-8)
    assert not found.at_edge


@pytest.mark.parametrize("kernel", ["rbf", "laplace"])
def test_recovers_the_norm_of_a_known_function(kernel, generator):
    """psi = sum_j c_j k(v_j, .) has norm sqrt(c^T K_vv c); dense noiseless data must find it."""
    u = torch.rand(300, 1, generator=generator, dtype=torch.float64) * 4
    v, c = torch.tensor([[1.0], [2.5]], dtype=torch.float64), torch.tensor([2.0, -1.0], dtype=torch.float64)
    t = gram(u, v, kernel=kernel, bandwidth=1.0) @ c
    expected = float(c @ gram(v, v, kernel=kernel, bandwidth=1.0) @ c) ** 0.5
    with pytest.warns(RuntimeWarning, match="edge of its grid"):
        found = rkhs_norm(u, t, kernel=kernel, bandwidth=1.0)
    assert found.value == pytest.approx(expected, rel=0.02)


def test_warns_at_the_edge(noisy):
    u, t = noisy
    with pytest.warns(RuntimeWarning, match="is on the edge of its grid, so the RKHS norm depends on the grid"):
        assert rkhs_norm(u, t, ridges=torch.tensor([1e-12, 1e-11], dtype=torch.float64)).at_edge


def test_scales_and_ignores_order_and_position(noisy, generator):
    u, t = noisy
    base = rkhs_norm(u, t, bandwidth=BANDWIDTH)
    assert rkhs_norm(u, 5 * t, bandwidth=BANDWIDTH).value == pytest.approx(5 * base.value, rel=1e-8)
    order = torch.randperm(M, generator=generator)
    assert rkhs_norm(u[order] + 7, t[order], bandwidth=BANDWIDTH).value == pytest.approx(base.value, rel=1e-6)
    assert rkhs_norm(u.float(), t.float(), bandwidth=BANDWIDTH).value == pytest.approx(base.value, rel=1e-4)


def test_one_ridge_is_no_edge_and_many_samples_are_thinned(noisy):
    u, t = noisy
    assert not rkhs_norm(u, t, bandwidth=BANDWIDTH, ridges=torch.tensor([0.01], dtype=torch.float64)).at_edge
    thinned = rkhs_norm(u, t, bandwidth=BANDWIDTH, max_samples=20)
    chosen = torch.linspace(0, M - 1, 20).round().long()
    assert thinned == rkhs_norm(u[chosen], t[chosen], bandwidth=BANDWIDTH)
    assert thinned.num_samples == 20


def test_zero_losses_have_norm_zero_without_a_warning(noisy):
    u, _ = noisy
    assert rkhs_norm(u, torch.zeros(M, dtype=torch.float64)).value == 0.0


@pytest.mark.parametrize(
    ("u", "t", "ridges", "message"),
    [
        (torch.rand(2, 2), torch.rand(2), None, "features has 2 samples, at least 3"),
        (torch.rand(5, 2), torch.rand(4), None, "losses has 4 values for 5 samples"),
        (torch.rand(5, 2), torch.full((5,), torch.nan), None, "losses holds NaN"),
        (torch.rand(5, 2), torch.ones(5, dtype=torch.long), None, "losses must be float32 or float64"),
        (torch.rand(5, 2), torch.rand(5), torch.tensor([1.0, 0.5]), "ridges must be positive and increasing"),
        (torch.rand(5, 2), torch.rand(5), torch.tensor([0.0, 0.5]), "ridges must be positive"),
        (torch.ones(5, 2), torch.rand(5), None, "the median distance is 0"),
    ],
)
def test_bad_input(u, t, ridges, message):
    with pytest.raises(ValueError, match=message):
        rkhs_norm(u, t, ridges=ridges)


def test_unknown_kernel(noisy):
    with pytest.raises(ValueError, match="kernel must be"):
        rkhs_norm(*noisy, kernel="linear")
    assert np.isfinite(rkhs_norm(*noisy).bandwidth)


def test_one_spectrum_serves_many_losses(noisy):
    u, t = noisy
    shared = kernel_spectrum(u, bandwidth=BANDWIDTH)
    for losses in (t, t.square(), -t):
        alone = rkhs_norm(u, losses, bandwidth=BANDWIDTH)
        assert rkhs_norm(u.clone(), losses, bandwidth=BANDWIDTH, spectrum=shared) == alone
    thinned = kernel_spectrum(u, bandwidth=BANDWIDTH, max_samples=20)
    assert rkhs_norm(u, t, spectrum=thinned) == rkhs_norm(u, t, bandwidth=BANDWIDTH, max_samples=20)


@pytest.mark.parametrize(
    ("change", "match"),
    [({"bandwidth": 1.0}, "another kernel or bandwidth"), ({"kernel": "laplace"}, "another kernel or bandwidth")],
)
def test_a_spectrum_of_something_else_is_refused(noisy, change, match):
    u, t = noisy
    shared = kernel_spectrum(u, bandwidth=BANDWIDTH)
    with pytest.raises(ValueError, match=match):
        rkhs_norm(u, t, **{"bandwidth": BANDWIDTH, "spectrum": shared, **change})
    with pytest.raises(ValueError, match="belongs to other features"):
        rkhs_norm(u + 1, t, bandwidth=BANDWIDTH, spectrum=shared)
