"""trace.baselines.cot: the best assignment of labels, against linear programmes; marginals that are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment, linprog
from scipy.special import softmax
from torch.nn import functional as F

from tests.test_baselines import draw, uniform
from trace.baselines import Score, cot, msp


@pytest.mark.parametrize("seed", range(4))
def test_cot_is_the_best_assignment_of_labels(seed):
    """With counts n_k of each class the plan is an assignment of n inputs to n labels."""
    counts = [5, 9, 2, 4]
    z = draw(20, 4, seed=seed)
    p = softmax(z.numpy(), axis=1)
    labels = np.repeat(np.arange(4), counts)
    one_hot = np.eye(4)[labels]
    half_l1 = np.abs(p[:, None] - one_hot[None]).sum(axis=2) / 2
    largest = np.abs(p[:, None] - one_hot[None]).max(axis=2)
    np.testing.assert_allclose(half_l1, largest, atol=1e-15)
    rows, columns = linear_sum_assignment(half_l1)
    expected = half_l1[rows, columns].mean()
    assert cot(z, torch.tensor(counts).double()).value == pytest.approx(expected, rel=1e-12)
    assert cot(z, torch.tensor(counts).double() / 20).value == pytest.approx(expected, rel=1e-12)


def test_cot_with_any_marginal_solves_the_linear_programme():
    z, marginal = draw(12, 3), torch.tensor([0.21, 0.5, 0.29], dtype=torch.float64)
    cost = 1 - softmax(z.numpy(), axis=1)
    rows = np.kron(np.eye(12), np.ones(3))
    columns = np.kron(np.ones(12), np.eye(3))
    solution = linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.r_[np.full(12, 1 / 12), marginal.numpy()])
    assert cot(z, marginal).value == pytest.approx(solution.fun, rel=1e-9)


def test_cot_is_at_least_the_unconfidence_with_equality_at_the_predicted_marginal():
    z = draw(300, 5)
    predicted = torch.bincount(z.argmax(dim=1), minlength=5).double()
    floor = 1 - msp(z).value
    assert cot(z, predicted).value == pytest.approx(floor, rel=1e-12)
    assert cot(z, uniform(5)).value >= floor - 1e-12
    assert cot(z, torch.tensor([1.0, 0, 0, 0, 0])).value == pytest.approx(
        1 - float(z.softmax(dim=1)[:, 0].mean()), rel=1e-12
    )


def test_cot_of_certain_predictions_is_the_total_variation_between_marginals():
    z = 1e3 * F.one_hot(torch.tensor([0] * 7 + [1] * 2 + [2]), 3).double()
    marginal = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    assert cot(z, marginal) == Score(pytest.approx(0.5, rel=1e-12), "higher_is_harm")


@pytest.mark.parametrize(
    ("marginal", "message"),
    [
        (torch.ones(4), r"must be a torch tensor of shape \[3\]"),
        ([1.0, 1.0, 1.0], r"must be a torch tensor of shape \[3\]"),
        (torch.tensor([0.5, 0.6, -0.1]), "must be nonnegative"),
        (torch.zeros(3), "must be nonnegative with a positive sum"),
        (torch.tensor([0.5, 0.5, math.nan]), "holds NaN"),
        (torch.tensor([1, 2, 3]), "must be float32 or float64"),
    ],
)
def test_bad_marginals_are_refused(marginal, message):
    with pytest.raises(ValueError, match=f"^label_marginal {message}"):
        cot(draw(5, 3), marginal)


def test_an_unfinished_transport_is_refused():
    with pytest.warns(UserWarning, match="numItermax"), pytest.raises(ValueError, match="num_iters=1 did not suffice"):
        cot(draw(200, 5), uniform(5), num_iters=1)
