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
        assert abs(held_out - fraction * n) <= 1
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
    assert sizes == {(n - round(0.15 * n), round(0.15 * n))} or n == 7
