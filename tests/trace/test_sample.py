"""Stratified splits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trace import Sample, stratified_split


def labelled(counts):
    y = torch.cat([torch.full((n,), c) for c, n in enumerate(counts)])
    return Sample(torch.arange(float(len(y)))[:, None], y)


@given(st.lists(st.integers(2, 30), min_size=1, max_size=5), st.floats(0.05, 0.9), st.integers(0, 1000))
def test_every_class_gives_its_share_and_nothing_is_lost(counts, fraction, seed):
    train, val = stratified_split(labelled(counts), fraction=fraction, generator=torch.Generator().manual_seed(seed))
    for c, n in enumerate(counts):
        held_out = int((val.y == c).sum())
        assert 1 <= held_out <= n - 1
        rare = any(min(fraction, 1 - fraction) * count < 1 for count in counts)
        assert abs(held_out - fraction * n) <= (len(counts) if rare else 1)
    n = sum(counts)
    assert len(val.x) == min(max(round(fraction * n), len(counts)), n - len(counts))
    assert sorted(torch.cat([train.x, val.x]).flatten().tolist()) == list(range(sum(counts)))
    assert train.x.shape[0] == train.y.shape[0]


def test_labels_stay_with_their_inputs(generator):
    data = labelled([10, 20])
    for part in stratified_split(data, generator=generator):
        assert torch.equal(data.y[part.x[:, 0].long()], part.y)


def test_the_generator_decides(generator):
    data = labelled([50, 50])
    first = stratified_split(data, generator=generator)[1].x
    assert torch.equal(first, stratified_split(data, generator=torch.Generator().manual_seed(0))[1].x)
    assert not torch.equal(first, stratified_split(data, generator=generator)[1].x)


@pytest.mark.parametrize("y", [None, torch.rand(100)])
def test_without_classes_the_split_is_random(y, generator):
    train, val = stratified_split(Sample(torch.zeros(100, 2), y), generator=generator)
    assert (len(train.x), len(val.x)) == (85, 15)
    assert (val.y is None) == (y is None)


def test_bad_input(generator):
    with pytest.raises(ValueError, match="a sample of 1 cannot be split"):
        stratified_split(labelled([1]), generator=generator)
    with pytest.raises(ValueError, match="fraction must lie strictly between"):
        stratified_split(labelled([10]), fraction=1.0, generator=generator)
    with pytest.raises(ValueError, match=r"sample\.y has shape \[3\] for 5 samples"):
        stratified_split(Sample(torch.zeros(5, 2), torch.zeros(3).long()), generator=generator)


@pytest.mark.parametrize("n", [7, 50, 150, 333])
def test_sizes_depend_on_n_alone(n):
    sizes = set()
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        y = torch.randint(0, 2, (n,), generator=g)
        y[:4] = torch.tensor([0, 0, 1, 1])
        train, val = stratified_split(Sample(torch.rand(n, 1, generator=g), y), generator=g)
        sizes.add((len(train.x), len(val.x)))
        for label in (0, 1):
            share = 0.15 * int((y == label).sum())
            assert abs(int((val.y == label).sum()) - share) < 1 or share < 1
    held_out = max(2, round(0.15 * n))  # 7 rows give one, and either class one of its own
    assert sizes == {(n - held_out, held_out)}


def test_rare_classes_do_not_change_the_sizes():
    """3% of 200 rows: one to twelve of a class, by the seed, and the training parts of all seeds can be stacked."""
    sizes, rare = set(), set()
    for seed in range(40):
        g = torch.Generator().manual_seed(seed)
        y = (torch.rand(200, generator=g) < 0.03).long()
        train, val = stratified_split(Sample(torch.rand(200, 1, generator=g), y), generator=g)
        sizes.add((len(train.x), len(val.x)))
        rare.add(int(y.sum()))
        assert int(y.sum()) < 2 or 0 < int(val.y.sum()) < int(y.sum())
    assert min(rare) <= 3 < max(rare)
    assert sizes == {(170, 30)}


def test_more_classes_than_rows_to_hold_out(generator):
    train, val = stratified_split(labelled([2] * 9 + [1, 31]), fraction=0.1, generator=generator)
    assert sorted(val.y.tolist()) == [*range(9), 10]  # 10% of 50 rows are 5; a class of one row stays whole
    assert set(train.y.tolist()) == set(range(11))
    val, train = stratified_split(labelled([2] * 9 + [1, 31]), fraction=0.9, generator=generator)
    assert sorted(val.y.tolist()) == list(range(11))
