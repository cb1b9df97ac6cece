"""Closed forms of the ridge example against linear solves, exact fractions, Monte Carlo and limits."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from experiments.regression import forms as forms
from experiments.regression.forms import Problem, log_log_slope

M = np.logspace(-3, 2, 11)
PROBLEMS = [
    Problem(lam=0.1, dim=2, angle=0.0, sigma=0.5),
    Problem(lam=1.0, dim=5, angle=45.0, sigma=0.5, signal=2.0),
    Problem(lam=10.0, dim=50, angle=89.0, sigma=1.0),
    Problem(lam=1.0, dim=20, angle=135.0, sigma=0.1),
]
DRAWS = 1_000_000


@pytest.mark.parametrize("p", PROBLEMS)
def test_weights_solve_the_normal_equations(p):
    true = np.zeros(p.dim)
    true[:2] = p.true_weights
    for m, found, change in zip(M, forms.target_weights(p, M), forms.weight_change(p, M), strict=True):
        mu = np.zeros(p.dim)
        mu[:2] = m * p.direction
        second_moment = np.eye(p.dim) + np.outer(mu, mu)
        solved = np.linalg.solve(second_moment + p.lam * np.eye(p.dim), second_moment @ true)
        source = np.linalg.solve((1 + p.lam) * np.eye(p.dim), true)
        np.testing.assert_allclose(solved[:2], found, rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(solved[2:], 0, atol=1e-12)
        np.testing.assert_allclose(source[:2], forms.source_weights(p), rtol=1e-14)
        np.testing.assert_allclose((solved - source)[:2], change, atol=1e-12)


@pytest.mark.parametrize("lam", [Fraction(1, 10), Fraction(1), Fraction(10)])
def test_risk_change_and_cosp_in_exact_arithmetic(lam):
    """w~ by Cramer's rule in fractions, mu along (3/5, 4/5): no rounding in the oracle."""
    m_values = [Fraction(1, 1000), Fraction(1, 10), Fraction(3, 2), Fraction(100)]
    p = Problem(float(lam), 2, math.degrees(math.atan2(4, 3)), 0.5)
    found = forms.risk_change(p, np.array([float(m) for m in m_values]))
    shift = forms.cosp(p, np.array([float(m) for m in m_values]))
    for m, value, cosp in zip(m_values, found, shift, strict=True):
        a, b = 3 * m / 5, 4 * m / 5
        A, B, D = 1 + lam + a * a, a * b, 1 + lam + b * b
        right = (1 + a * a, a * b)
        det = A * D - B * B
        w_new = ((right[0] * D - right[1] * B) / det, (right[1] * A - right[0] * B) / det)
        exact = (w_new[0] - 1) ** 2 + w_new[1] ** 2 - (1 / (1 + lam) - 1) ** 2
        assert value == pytest.approx(float(exact), rel=1e-12)
        assert cosp == pytest.approx(float((a * (w_new[0] - 1) + b * w_new[1]) ** 2), rel=1e-12)


def moments(sample):
    return sample.mean(), sample.std() / math.sqrt(len(sample))


@pytest.mark.parametrize("p", PROBLEMS)
@pytest.mark.parametrize("m", [0.01, 1.0, 30.0])
def test_expectations_and_quantiles_by_monte_carlo(p, m):
    rng = np.random.default_rng(round(1000 * m) + p.dim)
    plane = rng.standard_normal((DRAWS, 2))
    rest = rng.chisquare(p.dim - 2, DRAWS) if p.dim > 2 else np.zeros(DRAWS)
    noise = p.sigma * rng.standard_normal(DRAWS)
    size = np.array([m])
    x = plane + m * p.direction
    w, w_new = forms.source_weights(p), forms.target_weights(p, size)[0]

    def residual(inputs, weights):
        return inputs @ (weights - p.true_weights) - noise

    expectations = {
        "model_change": np.abs(x @ (w_new - w)),
        "mean_norm": np.sqrt((x**2).sum(axis=1) + rest),
        "cosp": residual(x, w_new) ** 2 - residual(plane, w_new) ** 2,
        "risk_change": residual(plane, w_new) ** 2 - residual(plane, w) ** 2,
    }
    exact = forms.curves(p, size, 0.99)
    for name, sample in expectations.items():
        mean, error = moments(sample)
        assert abs(mean - exact[name][0]) < 4 * error, name

    below = 4 * math.sqrt(0.99 * 0.01 / DRAWS)
    slopes = {
        forms.source_sensitivity(p, 0.99): 2 * np.abs(residual(plane, w)) * np.linalg.norm(w),
        exact["shift_penalty"][0] / m: 2 * np.abs(residual(x, w_new)) * np.linalg.norm(w_new),
    }
    for level, norms in slopes.items():
        assert abs((norms <= level).mean() - 0.99) < below
    larger = max(np.quantile(2 * np.abs(residual(x, v)), 0.99) for v in (w, w_new))
    assert exact["loss_slope"][0] == pytest.approx(larger, rel=0.02)


@pytest.mark.parametrize("name", ["weight_change", "model_change", "model_change_bound", "cosp", "risk_change"])
@pytest.mark.parametrize(
    "p", [Problem(1.0, 5, 90.0, 0.5), Problem(0.0, 5, 30.0, 0.5)], ids=["orthogonal", "no penalty"]
)
def test_nothing_changes_without_overlap_or_penalty(p, name):
    assert (forms.curves(p, M, 0.99)[name] == 0).all()


def test_risk_change_is_never_positive_and_saturates():
    for p in PROBLEMS:
        change = forms.risk_change(p, np.append(M, 1e6))
        assert (change < 0).all()
        assert (np.diff(change) < 0).all()
        assert change[-1] == pytest.approx(forms.risk_change_limit(p), rel=1e-9)


@pytest.mark.parametrize("p", PROBLEMS)
def test_cauchy_schwarz_and_the_bound_hold(p):
    found = forms.curves(p, M, 0.99)
    assert (found["model_change"] <= found["model_change_bound"]).all()
    assert (np.abs(found["risk_change"]) <= found["bound"]).all()
    np.testing.assert_allclose(
        found["bound"],
        found["shift_penalty"] + forms.source_sensitivity(p, 0.99) * M + found["loss_slope"] * found["model_change"],
    )


def test_mean_norm_of_a_chi_and_of_a_far_point():
    assert forms.mean_norm(Problem(1.0, 2, 0.0, 1.0), np.zeros(1))[0] == pytest.approx(math.sqrt(math.pi / 2))
    assert forms.mean_norm(Problem(1.0, 100, 0.0, 1.0), np.array([1e4]))[0] == pytest.approx(1e4, rel=1e-4)
    with pytest.raises(ValueError, match="use fewer"):
        forms.mean_norm(Problem(1.0, 1000, 0.0, 1.0), np.array([10.0]))


def test_sensitivity_has_no_supremum():
    p = PROBLEMS[0]
    levels = [forms.source_sensitivity(p, 1 - 10.0**-nines) for nines in range(1, 13)]
    assert all(b > 1.03 * a for a, b in pairwise(levels))


def test_slope_recovers_a_power_and_its_interval_covers_noise():
    m = np.logspace(-3, 2, 26)
    exact = log_log_slope(m, -7 * m**1.5, within=(0.0, 0.1))
    assert exact.estimate == pytest.approx(1.5, abs=1e-12)
    assert exact.num_points == 11
    assert exact.upper - exact.lower < 1e-9
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(500):
        fit = log_log_slope(m, m * np.exp(0.3 * rng.standard_normal(26)), within=(0.0, 0.1))
        covered += fit.lower <= 1 <= fit.upper
    assert 0.92 <= covered / 500 <= 0.98


def test_slope_of_a_constant_is_zero():
    m = np.logspace(-3, 2, 26)
    assert log_log_slope(m, np.full(26, 0.3), within=(0.0, 100.0)) == (0.0, 0.0, 0.0, 26)


def test_slope_and_interval_agree_with_scipy():
    m, rng = np.logspace(-3, 2, 26), np.random.default_rng(1)
    y = m**2 * np.exp(rng.standard_normal(26))
    found = log_log_slope(m, y, within=(0.0, 100.0), level=0.9)
    fit = stats.linregress(np.log(m), np.log(y))
    assert found.estimate == pytest.approx(fit.slope)
    assert found.upper - found.estimate == pytest.approx(stats.t.ppf(0.95, 24) * fit.stderr)


def test_slope_is_undefined_without_points():
    m = np.logspace(-3, 2, 26)
    assert math.isnan(log_log_slope(m, np.zeros(26), within=(0.0, 1.0)).estimate)
    assert log_log_slope(m, m, within=(90.0, 100.0)).num_points == 1
