"""Rows of the pool and of the source: duplicates, kernels shared by rounds, large sources, bad rows."""

from __future__ import annotations

import math

import pytest
import torch

from tests.test_selection import herd, samples, seeded
from trace import selection
from trace.selection import kernel_means, mmdmin, random, w1min


def test_duplicates_in_the_pool_are_rows_of_their_own():
    x = torch.randn(9, 2, generator=seeded(0))
    pool = torch.ones(6, 2)
    for policy in (herd, w1min):
        found = policy(x, pool, 6)
        assert sorted(found.indices.tolist()) == list(range(6))
        assert math.isfinite(found.objective)


def test_kernel_means_serve_all_rounds():
    x, pool = samples(9, n=25)
    means = kernel_means(x, pool)
    assert means.within == pytest.approx(float((torch.cdist(x, x).square() / (-2 * means.bandwidth**2)).exp().mean()))
    first = mmdmin(x, pool, 3, means=means)
    assert torch.equal(first.indices, mmdmin(x, pool, 3).indices)
    assert mmdmin(x, pool, 3, chosen=first.indices, means=means, bandwidth=means.bandwidth).objective > first.objective
    with pytest.raises(ValueError, match="means were computed for another source or pool"):
        mmdmin(x + 1, pool, 3, means=means)
    with pytest.raises(ValueError, match=r"means were computed with bandwidth .*, not 9: leave it out"):
        mmdmin(x, pool, 3, means=means, bandwidth=9.0)


def test_a_thinned_source_changes_the_constant_and_no_pick(monkeypatch, generator):
    x, y = torch.randn(300, 3, generator=generator), torch.randn(40, 3, generator=generator)
    whole, exact = kernel_means(x, y), mmdmin(x, y, 5)
    monkeypatch.setattr(selection, "_MAX_WITHIN", 150)
    thinned, thin = kernel_means(x, y), mmdmin(x, y, 5)
    assert thinned.to_pool.equal(whole.to_pool)
    assert thin.indices.equal(exact.indices)
    assert thin.objective - exact.objective == pytest.approx(thinned.within - whole.within)
    assert thinned.within == pytest.approx(whole.within, rel=0.05)


def test_a_large_source_is_subsampled_with_a_generator():
    x, pool = samples(10, n=50)
    found = w1min(x, pool, 3, max_sources=20, generator=seeded(1))
    subsample = x[torch.randperm(50, generator=seeded(1))[:20]]
    expected = w1min(subsample, pool, 3)
    assert torch.equal(found.indices, expected.indices)
    assert found.history == expected.history
    with pytest.raises(ValueError, match=r"50 samples, more than max_sources=20: pass a torch.Generator"):
        w1min(x, pool, 3, max_sources=20)


def test_random_is_uniform_over_what_is_left():
    g, chosen = seeded(2), torch.tensor([0, 4])
    counts = torch.zeros(6)
    for _ in range(3000):
        found = random(6, 2, chosen=chosen, generator=g)
        assert len(found.indices.unique()) == 2
        counts[found.indices] += 1
    assert counts[chosen].sum() == 0
    assert counts[[1, 2, 3, 5]].div(3000).tolist() == pytest.approx([0.5] * 4, abs=0.05)
    assert math.isnan(found.objective)
    assert torch.equal(random(9, 4, generator=seeded(3)).indices, random(9, 4, generator=seeded(3)).indices)


def choose_random(x, pool, count, **options):
    return random(len(pool), count, generator=seeded(0), **options)


@pytest.mark.parametrize("policy", [herd, w1min, choose_random])
def test_bad_rows_are_refused(policy):
    x, pool = samples(0)
    for count in (0, -1, 2.0):
        with pytest.raises(ValueError, match="count must be a whole number of at least 1"):
            policy(x, pool, count)
    with pytest.raises(ValueError, match="count is 9, but the pool has 8 rows left: ask for fewer"):
        policy(x, pool, 9, chosen=torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="chosen holds rows 2 to 10, but the pool has rows 0 to 9"):
        policy(x, pool, 2, chosen=torch.tensor([2, 10]))
    with pytest.raises(ValueError, match="chosen holds rows -1 to 3"):
        policy(x, pool, 2, chosen=torch.tensor([3, -1]))
    with pytest.raises(ValueError, match="chosen holds a row more than once"):
        policy(x, pool, 2, chosen=torch.tensor([3, 3]))
    for bad in ([1, 2], torch.tensor([1.0]), torch.tensor([[1]]), torch.ones(10, dtype=torch.bool)):
        with pytest.raises(ValueError, match="chosen must be an integer tensor of shape"):
            policy(x, pool, 2, chosen=bad)


@pytest.mark.parametrize("policy", [herd, w1min, lambda x, pool, count: kernel_means(x, pool)])
def test_bad_samples_are_refused(policy):
    x, pool = samples(0)
    with pytest.raises(ValueError, match="source and pool differ in columns"):
        policy(x, pool[:, :2], 2)
    with pytest.raises(ValueError, match=r"pool holds NaN or infinity \(first in row 4\)"):
        policy(x, pool.index_fill(0, torch.tensor([4]), math.nan), 2)
    with pytest.raises(ValueError, match=r"source is torch.float32 but pool is torch.float64"):
        policy(x.float(), pool, 2)
    with pytest.raises(ValueError, match="source has 0 samples"):
        policy(x[:0], pool, 2)
    with pytest.raises(ValueError, match=r"squared distances overflow torch.float32 \(see the rows of pool\): rescale"):
        policy(x.float(), pool.float() * 1e19, 2)


def test_bad_options_are_refused():
    x, pool = samples(0)
    with pytest.raises(ValueError, match="max_refinements must be at least 0, got -1"):
        w1min(x, pool, 2, max_refinements=-1)
    with pytest.raises(ValueError, match="max_sources must be a whole number"):
        w1min(x, pool, 2, max_sources=0)
    with pytest.raises(ValueError, match="bandwidth must be finite and positive"):
        mmdmin(x, pool, 2, bandwidth=0.0)
    with pytest.raises(ValueError, match="pool_size must be a whole number"):
        random(0, 1, generator=seeded(0))
