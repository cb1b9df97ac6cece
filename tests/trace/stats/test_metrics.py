"""trace.stats.metrics against scipy and scikit-learn, bootstrap coverage by simulation, and every refusal."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from trace.stats.metrics import Metric, auprc, auroc, spearman

tied = arrays(np.float64, 12, elements=st.integers(0, 4).map(float))
labels = arrays(np.bool_, 12)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def correlated(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = rng(seed).normal(size=n)
    return x, x + rng(seed + 1000).normal(size=n)


@given(tied, tied)
def test_spearman_agrees_with_scipy_or_says_why_not(x, y):
    metric = spearman(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert math.isnan(metric.value)
        assert metric.reason == ("score is constant" if len(set(x)) == 1 else "target is constant")
    else:
        expected = np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1]
        assert metric == Metric(pytest.approx(expected, abs=1e-12))


@given(tied, labels)
def test_auroc_and_auprc_agree_with_scikit_learn_or_say_why_not(x, harmful):
    if len(set(harmful)) == 1:
        for metric in (auroc(x, harmful), auprc(x, harmful)):
            assert math.isnan(metric.value)
            assert metric.reason == f"one class only: {harmful.sum()} of 12 are harmful"
    else:
        pairs = x[harmful][:, None] - x[~harmful][None]
        assert auroc(x, harmful) == Metric(pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean(), abs=1e-12))
        assert auroc(x, harmful).value == roc_auc_score(harmful, x)
        assert auprc(x, harmful) == Metric(average_precision_score(harmful, x))


def test_rank_metrics_ignore_monotone_maps_and_the_order_of_rows():
    x, y = correlated(40)
    harmful, order = y > 0.5, rng(5).permutation(40)
    for metric, target in ((spearman, y), (auroc, harmful), (auprc, harmful)):
        value = metric(x, target).value
        assert metric(np.exp(x), target).value == pytest.approx(value, abs=1e-12)
        assert metric(x[order], target[order]).value == pytest.approx(value, abs=1e-12)
    assert spearman(-x, y).value == pytest.approx(-spearman(x, y).value, abs=1e-12)
    assert auroc(-x, harmful).value == pytest.approx(1 - auroc(x, harmful).value, abs=1e-12)


def test_a_perfect_score():
    x = np.arange(10.0)
    assert spearman(x, x**3).value == pytest.approx(1.0, abs=1e-12)
    assert auroc(x, x > 4).value == auprc(x, x > 4).value == 1.0


def test_inputs_may_be_lists_tensors_or_arrays():
    x, y = [1.0, 2.0, 4.0, 3.0], [1.0, 3.0, 2.0, 4.0]
    as_tensors = spearman(torch.tensor(x, requires_grad=True), torch.tensor(y, dtype=torch.float64))
    assert spearman(x, y) == spearman(np.array(x), tuple(y)) == as_tensors
    harmful = [False, True, False, True]
    assert (
        auroc(x, harmful) == auroc(x, torch.tensor(harmful)) == auroc(x, [0, 1, 0, 1]) == auroc(x, [0.0, 1.0, 0.0, 1.0])
    )


@pytest.mark.parametrize("n", [0, 1, 2])
def test_spearman_of_few_points_is_undefined(n):
    metric = spearman(np.arange(n), np.arange(n))
    assert math.isnan(metric.value)
    assert metric.reason == f"a rank correlation needs at least 3 points, got {n}"
    assert math.isnan(auroc([], []).value)


@pytest.mark.parametrize(
    ("metric", "second"), [(spearman, "target"), (auroc, "harmful"), (auprc, "harmful")], ids=["rho", "roc", "pr"]
)
def test_bad_vectors_are_refused(metric, second):
    good = [0.0, 1.0, 0.0, 1.0]
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=r"score holds NaN or infinity .first at 2."):
            metric([0.0, 1.0, bad, 1.0], good)
        with pytest.raises(ValueError, match=f"{second} holds NaN or infinity"):
            metric(good, [bad, 1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match=f"score has 4, {second} has 3"):
        metric(good, good[:3])
    with pytest.raises(ValueError, match=r"score must have shape \[n\], got \[2, 2\]"):
        metric([[0.0, 1.0], [1.0, 0.0]], good)
    with pytest.raises(ValueError, match="score must hold real numbers"):
        metric(["low", "high", "low", "high"], good)
    with pytest.raises(ValueError, match=f"{second} must hold real numbers"):
        metric(good, [1.0, [2.0], 0.0, 1.0])


@pytest.mark.parametrize("metric", [auroc, auprc])
def test_labels_must_be_binary(metric):
    with pytest.raises(ValueError, match="harmful must hold True and False"):
        metric([1.0, 2.0, 3.0], [0.0, 1.0, 2.0])
