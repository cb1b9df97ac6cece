"""Rows worth looking at: distances of all pairs, closed forms of the total variation, bad input."""

import math

import pytest
import torch

from trace.report.case import most_disagreeing, most_shifted


def points(n, k, seed):
    return torch.randn(n, k, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("columns", [2, 40])
def test_distances_are_those_of_all_pairs(columns):
    """Of few columns, where neighbours are found by a tree, and of many."""
    x, y = points(40, columns, 0), points(33, columns, 1) + 50
    found = most_shifted(x, y, num_examples=33, neighbours=4)
    distances = torch.cdist(y, x).sort(dim=1).values[:, :4].mean(dim=1)
    assert found.rows == tuple(distances.argsort(descending=True).tolist())
    assert found.values == pytest.approx(distances.sort(descending=True).values.tolist())
    within = torch.cdist(x, x).fill_diagonal_(math.inf).sort(dim=1).values[:, :4].mean(dim=1)
    assert found.typical == pytest.approx(float(within.quantile(0.5)))


def test_a_row_that_occurs_twice_is_its_own_neighbour():
    x = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    assert most_shifted(x, x, num_examples=1, neighbours=1).typical == 0.0


def test_far_from_the_origin_in_single_precision():
    x, y = points(50, 3, 2).float(), points(20, 3, 3).float()
    near, far = (most_shifted(x + c, y + c, num_examples=5) for c in (0, 1000))
    assert near.rows == far.rows
    assert far.values == pytest.approx(near.values, rel=1e-3)


def test_one_far_row_in_single_precision():
    x, y = points(50, 3, 2).float(), points(20, 3, 3).float()
    alone = most_shifted(x, y, num_examples=20)
    y[7] += 10_000
    found = most_shifted(x, y, num_examples=20)
    assert found.rows[0] == 7
    assert found.typical == pytest.approx(alone.typical, rel=1e-3)
    kept = [(row, value) for row, value in zip(alone.rows, alone.values, strict=True) if row != 7]
    assert found.rows[1:] == tuple(row for row, _ in kept)
    assert found.values[1:] == pytest.approx([value for _, value in kept], rel=1e-3)


def test_a_large_source_is_thinned_by_the_generator():
    x, y = points(300, 2, 4), points(10, 2, 5)
    first, same = (
        most_shifted(x, y, num_examples=3, max_source=100, generator=torch.Generator().manual_seed(0)) for _ in range(2)
    )
    assert first == same
    assert min(first.values) > min(most_shifted(x, y, num_examples=3).values)
    with pytest.raises(ValueError, match="pass a generator"):
        most_shifted(x, y, num_examples=3, max_source=100)


def test_ties_go_to_the_earlier_row():
    x = torch.zeros(3, 1)
    assert most_shifted(x, torch.tensor([[1.0], [2.0], [-2.0]]), num_examples=3, neighbours=2).rows == (1, 2, 0)


def test_total_variation_of_two_classes_is_the_difference_of_probabilities():
    p, q = torch.tensor([0.9, 0.5, 0.2]).double(), torch.tensor([0.4, 0.5, 0.9]).double()
    logits, new_logits = (torch.stack([r.log(), (1 - r).log()], dim=1) for r in (p, q))
    found = most_disagreeing(logits, new_logits, num_examples=2)
    assert found.rows == (2, 0)
    assert found.values == pytest.approx((0.7, 0.5))
    assert found.typical == pytest.approx(0.4)


def test_total_variation_of_one_class_against_all():
    C, z = 5, 3.0
    certain = torch.zeros(1, C)
    certain[0, 2] = z
    p = math.exp(z) / (math.exp(z) + C - 1)
    assert most_disagreeing(torch.zeros(1, C), certain, num_examples=1).values[0] == pytest.approx(p - 1 / C)
    opposite = most_disagreeing(torch.tensor([[800.0, 0.0]]), torch.tensor([[0.0, 800.0]]), num_examples=4)
    assert opposite.values == (1.0,)


def test_a_constant_added_to_all_logits_changes_nothing():
    z = points(6, 4, 6)
    assert max(most_disagreeing(z, z + 7, num_examples=6).values) < 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: most_shifted(points(4, 2, 0), points(4, 3, 0), num_examples=1), "differ in columns"),
        (lambda: most_shifted(points(4, 2, 0), points(4, 2, 0), num_examples=0), "num_examples"),
        (
            lambda: most_shifted(points(4, 2, 0), points(4, 2, 0), num_examples=1, neighbours=4),
            "less than the 4 source",
        ),
        (lambda: most_shifted(points(4, 2, 0), points(4, 2, 0) / 0, num_examples=1), "target holds NaN or infinity"),
        (lambda: most_disagreeing(points(4, 1, 0), points(4, 1, 0), num_examples=1), "one logit per class"),
        (lambda: most_disagreeing(points(4, 2, 0), points(5, 2, 0), num_examples=1), "run both models on the same"),
        (lambda: most_disagreeing(points(4, 2, 0), points(4, 3, 0), num_examples=1), "same outputs"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
