"""How often each high-probability statement holds, over many draws of a world with known risks.

Inputs ``N(0, I_2)``, labels from a logistic model, two fixed linear models, a translated target. Expectations over the
Gaussian come from Gauss-Hermite quadrature. Every statement must hold at least as often as promised (minus three
binomial standard errors); the ones that are sharp enough are also seen to fail at a level that asks for little.
"""

import math

import numpy as np
import pytest
import torch

from trace import Sample, Settings, diagnose
from trace.estimators import anchor_terms, gradient_norms, gradient_quantile, mmd
from trace.estimators.remainders import label_noise_remainder, mmd_remainder, validation_remainder
from trace.losses import ClippedCrossEntropy, ZeroOne
from trace.stats.intervals import mean_interval

LOSS = ClippedCrossEntropy()
W_TRUE = torch.tensor([2.0, 0.5], dtype=torch.float64)
W_OLD = torch.tensor([1.8, 0.4], dtype=torch.float64)
W_NEW = torch.tensor([0.9, 1.4], dtype=torch.float64)
SHIFT = torch.tensor([0.7, 0.0], dtype=torch.float64)
DRAWS = 400


def margin_model(w):
    return lambda x: torch.stack([-(x @ w) / 2, (x @ w) / 2], dim=1)


OLD, NEW = margin_model(W_OLD), margin_model(W_NEW)


def draw(n, generator, shift=0.0):
    x = torch.randn(n, 2, generator=generator, dtype=torch.float64) + shift
    return Sample(x, torch.bernoulli((x @ W_TRUE).sigmoid(), generator=generator).long())


def quadrature(function):
    """``E function(x)`` for ``x ~ N(0, I_2)``; function maps ``[n, 2]`` to ``[n]``."""
    nodes, weights = (torch.as_tensor(a) for a in np.polynomial.hermite_e.hermegauss(120))
    x = torch.cartesian_prod(nodes, nodes)
    w = torch.outer(weights, weights).flatten() / (2 * math.pi)
    return float(w @ function(x))


def expected(loss, model, x):
    """``E[ell | x]`` under the true labels."""
    p, ones = (x @ W_TRUE).sigmoid(), torch.ones(len(x), dtype=torch.long)
    return p * loss(model(x), ones) + (1 - p) * loss(model(x), 0 * ones)


def risk(model, x):
    return expected(LOSS, model, x)


RISK_CHANGE = quadrature(lambda x: risk(NEW, x) - risk(OLD, x))


def holds(successes, level):
    """The statement held often enough, and the count."""
    rate = np.mean(successes)
    assert rate >= level - 3 * math.sqrt(level * (1 - level) / len(successes)), f"held in {rate:.3f}, promised {level}"
    return rate


def generators():
    return (torch.Generator().manual_seed(seed) for seed in range(DRAWS))


def test_quadrature_agrees_with_monte_carlo(generator):
    sample = draw(1_000_000, generator)
    change = (LOSS(NEW(sample.x), sample.y) - LOSS(OLD(sample.x), sample.y)).numpy()
    assert pytest.approx(change.mean(), abs=4 * change.std() / 1000) == RISK_CHANGE
    assert RISK_CHANGE > 0.05


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_mean_intervals(delta):
    """Means of a skewed bounded variable, the label noise of one model."""
    truth, bound = quadrature(lambda x: risk(OLD, x)), 8.0
    losses = [LOSS(OLD(s.x), s.y).clamp(max=bound) for g in generators() for s in [draw(300, g)]]
    found = [mean_interval(float(v.mean()), float(v.std()), 300, 0, bound, delta) for v in losses]
    holds([i.lower <= truth <= i.upper for i in found], 1 - delta)
    assert np.mean([i.upper - i.lower for i in found]) < bound / 3


def test_fixed_intervals_are_seen_to_fail_where_they_may():
    """Fair coins are Hoeffding's worst case: at delta = 0.9 the interval must miss sometimes."""
    coins = [torch.randint(0, 2, (200,), generator=g).double() for g in generators()]
    found = [mean_interval(float(v.mean()), float(v.std()), 200, 0, 1, 0.9) for v in coins]
    rate = holds([i.lower <= 0.5 <= i.upper for i in found], 0.1)
    assert rate < 0.95


@pytest.mark.parametrize("eta", [0.05, 0.5])
def test_quantile_band(generator, eta):
    """The true quantile comes from 2e6 samples. The promise is for all n at once, so one holds more often."""
    big = draw(2_000_000, generator)
    truth = float(torch.quantile(gradient_norms(OLD, big.x, big.y, LOSS, batch_size=250_000), 0.9))
    found = [gradient_quantile(OLD, s.x, s.y, LOSS, q=0.9, eta=eta) for g in generators() for s in [draw(500, g)]]
    rate = holds([f.lower <= truth <= f.upper for f in found], 1 - eta)
    assert all(math.isfinite(f.upper) for f in found)
    if eta == 0.5:
        assert rate < 1.0


def test_label_noise_remainder():
    """Losses of 0 or M with equal odds are the worst case: the remainder holds, and a third of it would not."""
    M, n, n_target, delta = 8.0, 100, 150, 0.5

    def noise(size, g):
        return abs(float(M * torch.randint(0, 2, (size,), generator=g).double().mean() - M / 2))

    found = [noise(n, g) + noise(n_target, g) for g in generators()]
    remainder = label_noise_remainder(n, n_target, M, delta)
    holds([f <= remainder for f in found], 1 - delta)
    assert np.mean([f <= remainder / 3 for f in found]) < 1 - delta


def test_validation_remainder():
    M, m, m_target, eta = 8.0, 60, 40, 0.5

    def error(size, g):
        return abs(float(M * torch.randint(0, 2, (size,), generator=g).double().mean() - M / 2))

    found = [error(m, g) + error(m_target, g) for g in generators()]
    remainder = validation_remainder(m, m_target, M, eta / 2, eta / 2)
    holds([f <= remainder for f in found], 1 - eta)
    assert np.mean([f <= remainder / 3 for f in found]) < 1 - eta


def test_mmd_remainder():
    """Gretton's inequality for a true shift, whose MMD has a closed form."""
    n, m, s = 80, 60, 1.5
    scale = s**2 / (s**2 + 2)
    gap = float(SHIFT.square().sum())
    truth = math.sqrt(2 * scale * (1 - math.exp(-gap / (2 * (s**2 + 2)))))
    for estimator in ("biased", "unbiased"):
        samples = [(draw(n, g).x, draw(m, g, SHIFT).x) for g in generators()]
        found = [truth - mmd(x, y, bandwidth=s, estimator=estimator).value for x, y in samples]
        remainder = mmd_remainder(n, m, 0.05, unbiased=estimator == "unbiased")
        holds([f <= remainder for f in found], 0.95)
        assert max(found) > 0.1 * remainder


def test_anchor_terms():
    """Each population value lies in its intervals, and the true change below the bounds' upper ends."""
    truths = {
        "worst_label": quadrature(lambda x: LOSS.worst_label_change(OLD(x), NEW(x))),
        "plug_in": quadrature(lambda x: LOSS.expected_change(OLD(x), NEW(x))),
        "disagreement": math.acos(float(W_OLD @ W_NEW / (W_OLD.norm() * W_NEW.norm()))) / math.pi,
    }
    found = [anchor_terms(OLD(x), NEW(x), LOSS) for g in generators() for x in [draw(400, g).x]]
    for name, truth in truths.items():
        intervals = [getattr(f, name).interval(0.05) for f in found]
        holds([i.lower <= truth <= i.upper for i in intervals], 0.95)
    assert truths["worst_label"] >= abs(RISK_CHANGE)
    for name in ("worst_label", "lipschitz"):
        holds([abs(RISK_CHANGE) <= getattr(f, name).interval(0.05).upper for f in found], 0.95)
    error_change = quadrature(lambda x: expected(ZeroOne(), NEW, x) - expected(ZeroOne(), OLD, x))
    holds([abs(error_change) <= f.disagreement.interval(0.05).upper for f in found], 0.95)


@pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation")
def test_full_bound():
    """|Delta R| <= bound_full with probability at least 1 - delta - eta, here with the true W1 instead of its proxy.

    The bound is loose, so this cannot tell a wrong remainder from a right one; the tests above do that term by term.
    """
    settings = Settings(distance="wasserstein1", q=0.95, delta=0.1, eta=0.1)
    found = [
        diagnose(OLD, NEW, draw(120, g), draw(100, g, SHIFT), source_val=draw(60, g), target_val=draw(60, g, SHIFT),
                 settings=settings)
        for g in [torch.Generator().manual_seed(seed) for seed in range(60)]
    ]  # fmt: skip
    for form in ("ot", "hybrid"):
        holds([abs(RISK_CHANGE) <= d.bound_full(form) for d in found], 0.8)
