"""trace.selection against brute force over all subsets, naive loops, its invariants, and every refusal."""

from __future__ import annotations

import importlib
import itertools
import math
import statistics

import ot
import pytest
import torch

from trace.estimators import mmd
from trace.selection import Selection, mmdmin, names, random, w1min
from trace.selection import policy as policy_of
from trace.selection.mmdmin import prepare
from trace.selection.w1min import claim_greedily, exact_plan, nearest_rows, nearest_share

MMDMIN, W1MIN = (importlib.import_module(f"trace.selection.{name}") for name in ("mmdmin", "w1min"))
"""The modules, whose names in the package are the functions'."""

BANDWIDTH = 2.0
POOL = torch.zeros(9, 1)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def samples(seed, n=13, m=10, d=3, dtype=torch.float64):
    g = seeded(seed)
    return torch.randn(n, d, generator=g, dtype=dtype), torch.randn(m, d, generator=g, dtype=dtype) + 0.5


def mixtures(seed, n=60, m=80):
    """Two clusters, 30 % and 70 % in the source but 80 % and 20 % in the pool, which is shifted as well."""
    g = seeded(seed)

    def draw(size, share):
        centre = torch.where(torch.rand(size, 1, generator=g) < share, -2.0, 2.0)
        return centre + torch.randn(size, 4, generator=g)

    return draw(n, 0.3), draw(m, 0.8) + 0.5


def squared_mmd(x, y):
    return mmd(x, y, bandwidth=BANDWIDTH, estimator="biased").squared


def transport_cost(x, y):
    a, b = (torch.full((len(z),), 1 / len(z), dtype=torch.float64).numpy() for z in (x, y))
    return float(ot.emd2(a, b, ot.dist(x.double().numpy(), y.double().numpy())))


def herd(x, pool, count, **options):
    return mmdmin(x, pool, count, bandwidth=BANDWIDTH, **options)


POLICIES = [(herd, squared_mmd), (w1min, transport_cost)]


def naive_herding(x, pool, count, chosen=(), start=()):
    """The whole objective anew for each row and pick."""
    members, free = list(start), [j for j in range(len(pool)) if j not in chosen]
    for _ in range(count):
        best = min(free, key=lambda j: squared_mmd(x, pool[[*members, j]]))
        members.append(best)
        free.remove(best)
    return members[len(start) :]


def naive_claims(x, pool, count):
    """The full greedy search with whole sources: every row's mean cost to its n/count nearest unclaimed ones."""
    cost, unclaimed, picks = ot.dist(pool.numpy(), x.numpy()), list(range(len(x))), []
    for _ in range(count):
        nearest = {j: sorted(unclaimed, key=cost[j].__getitem__)[: len(x) // count] for j in range(len(pool))}
        best = min((j for j in nearest if j not in picks), key=lambda j: cost[j, nearest[j]].mean())
        picks.append(best)
        unclaimed = [i for i in unclaimed if i not in nearest[best]]
    return picks


@pytest.mark.parametrize(
    ("policy", "distance", "median_gap", "exact_share"),
    [(herd, squared_mmd, 0.15, 0.3), (w1min, transport_cost, 0.01, 0.6)],
)
def test_close_to_the_best_of_all_subsets_and_never_below(policy, distance, median_gap, exact_share):
    gaps = []
    for seed in range(20):
        x, pool = samples(seed)
        found = policy(x, pool, 3)
        best = min(distance(x, pool[list(rows)]) for rows in itertools.combinations(range(len(pool)), 3))
        assert found.objective == pytest.approx(distance(x, pool[found.indices]), rel=1e-9)
        gaps.append(found.objective / best - 1)
    assert min(gaps) > -1e-9
    assert statistics.median(gaps) <= median_gap
    assert sum(gap < 1e-9 for gap in gaps) >= exact_share * len(gaps)


@pytest.mark.parametrize("seed", range(5))
def test_herding_is_the_naive_loop(seed):
    x, pool = samples(seed, n=15, m=20)
    found = herd(x, pool, 6)
    assert found.indices.tolist() == naive_herding(x, pool, 6)
    prefixes = [squared_mmd(x, pool[found.indices[: k + 1]]) for k in range(6)]
    assert found.history == pytest.approx(prefixes, rel=1e-9)
    assert found.objective == found.history[-1]
    chosen = torch.tensor([7, 2, 11])
    assert herd(x, pool, 4, chosen=chosen).indices.tolist() == naive_herding(x, pool, 4, chosen.tolist())


@pytest.mark.parametrize("first_block", [1, 3, 64])
def test_the_lazy_search_is_the_full_one(first_block, monkeypatch):
    monkeypatch.setattr(W1MIN, "_FIRST_BLOCK", first_block)
    for seed in range(5):
        x, pool = samples(seed, n=20, m=40)
        picks, units = claim_greedily(x, pool, torch.arange(40), 5, torch.ones(20, dtype=torch.long), 4)
        assert picks.tolist() == naive_claims(x, pool, 5)
        assert not units.any()
        assert w1min(x, pool, 5, max_refinements=0).indices.tolist() == picks.tolist()


@pytest.mark.parametrize(("n", "count"), [(12, 4), (13, 4), (3, 5), (1, 2)])
def test_shares_of_the_source_are_exact_whether_or_not_they_are_whole(n, count):
    x, pool = samples(0, n=n)
    units = torch.full((n,), count // math.gcd(n, count))
    quota = n // math.gcd(n, count)
    cost, nearest, taken = nearest_share(pool, x, units, quota)
    assert (taken.sum(dim=1) == quota).all()
    assert (taken <= units[nearest]).all()
    sq = torch.from_numpy(ot.dist(pool.numpy(), x.numpy())).sort(dim=1).values
    expected = [sum(row.repeat_interleave(count).tolist()[:n]) / n for row in sq]
    assert cost.tolist() == pytest.approx(expected, rel=1e-9)
    assert not claim_greedily(x, pool, torch.arange(len(pool)), count, units, quota)[1].any()
    assert len(w1min(x, pool, count).indices.unique()) == count


def test_exact_plan_and_nearest_rows():
    x, pool = samples(3, n=20)
    plan, cost = exact_plan(x, pool)
    assert cost == pytest.approx(transport_cost(x, pool), rel=1e-9)
    assert plan.sum(dim=0).tolist() == pytest.approx([0.1] * 10)
    assert plan.sum(dim=1).tolist() == pytest.approx([0.05] * 20)
    available = torch.arange(10) % 2 == 0
    expected = torch.cdist(x, pool).masked_fill(~available, torch.inf).argmin(dim=1)
    assert nearest_rows(x, pool, available).tolist() == expected.tolist()


def test_refinement_never_worsens_and_often_helps():
    helped = 0
    for seed in range(20):
        x, pool = mixtures(seed)
        found = w1min(x, pool, 7)
        greedy = w1min(x, pool, 7, max_refinements=0)
        assert found.history[0] == greedy.objective == greedy.history[0]
        assert all(after < before for before, after in itertools.pairwise(found.history))
        assert w1min(x, pool, 7, max_refinements=1).objective == found.history[:2][-1]
        helped += found.objective < greedy.objective
    assert helped >= 10


def test_w1min_with_everything_already_there():
    x, pool = samples(1, n=8)
    found = w1min(x, torch.cat([pool, x]), 8)
    assert sorted(found.indices.tolist()) == list(range(10, 18))
    assert found.objective == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("policy", "distance"), POLICIES)
def test_better_than_random_on_a_shifted_mixture(policy, distance):
    for count in (5, 20):
        own, drawn = [], []
        for seed in range(10):
            x, pool = mixtures(seed)
            own.append(policy(x, pool, count).objective)
            rows = [random(x, pool, count, generator=seeded(seed)).indices for _ in range(5)]
            drawn += [distance(x, pool[r]) for r in rows]
        assert statistics.mean(own) < 0.7 * statistics.mean(drawn)


@pytest.mark.parametrize("policy", [herd, w1min])
def test_rounds_never_repeat_a_row(policy):
    x, pool = samples(5, m=12)
    chosen = torch.empty(0, dtype=torch.long)
    for _ in range(4):
        found = policy(x, pool, 3, chosen=chosen)
        assert isinstance(found, Selection)
        assert found.indices.dtype == torch.long
        assert found.indices.shape == (3,)
        chosen = torch.cat([chosen, found.indices])
    assert sorted(chosen.tolist()) == list(range(12))


@pytest.mark.parametrize("policy", [herd, w1min])
def test_the_order_of_the_pool_does_not_matter(policy):
    for seed in range(5):
        x, pool = samples(seed, m=30)
        chosen, order = torch.tensor([3, 8]), torch.randperm(30, generator=seeded(seed))
        place = order.argsort()
        found, shuffled = policy(x, pool, 5, chosen=chosen), policy(x, pool[order], 5, chosen=place[chosen])
        assert order[shuffled.indices].tolist() == found.indices.tolist()
        assert shuffled.objective == pytest.approx(found.objective, rel=1e-9)


@pytest.mark.parametrize("policy", [herd, w1min])
def test_a_common_translation_does_not_matter(policy):
    x, pool = mixtures(6)
    found, moved = policy(x, pool, 6), policy(x + 100, pool + 100, 6)
    assert moved.indices.tolist() == found.indices.tolist()
    assert moved.objective == pytest.approx(found.objective, rel=1e-3)


def test_tiles_equal_one_block(monkeypatch):
    x, pool = samples(7, n=30, m=40)
    whole = herd(x, pool, 6), w1min(x, pool, 6)
    monkeypatch.setattr(MMDMIN, "_TILE", 7)
    monkeypatch.setattr(W1MIN, "_TILE_ENTRIES", 50)
    for found, tiled in zip(whole, (herd(x, pool, 6), w1min(x, pool, 6)), strict=True):
        assert tiled.indices.tolist() == found.indices.tolist()
        assert tiled.history == pytest.approx(found.history, rel=1e-12)


@pytest.mark.parametrize("policy", [mmdmin, w1min])
def test_both_precisions_agree(policy):
    x, pool = samples(8, n=40, m=50)
    double, single = policy(x, pool, 8), policy(x.float(), pool.float(), 8)
    assert single.indices.tolist() == double.indices.tolist()
    assert single.objective == pytest.approx(double.objective, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("gap", [10, 1000, 10_000])
def test_a_spread_far_beyond_the_bandwidth_in_single_precision(gap):
    """Every fourth row is far away, so that squared distances in float32 are off by more than the bandwidth."""
    x, pool = (0.1 * torch.randn(n, 1, generator=seeded(n)) for n in (400, 300))
    x[::4] += gap
    pool[::4] += gap
    single, double = mmdmin(x, pool, 20), mmdmin(x.double(), pool.double(), 20)
    assert single.objective == pytest.approx(double.objective, rel=0.01)
    assert single.indices.tolist() == double.indices.tolist()


def test_duplicates_in_the_pool_are_rows_of_their_own():
    x = torch.randn(9, 2, generator=seeded(0))
    pool = torch.ones(6, 2)
    for policy in (herd, w1min):
        found = policy(x, pool, 6)
        assert sorted(found.indices.tolist()) == list(range(6))
        assert math.isfinite(found.objective)


def test_prepare_serve_all_rounds():
    x, pool = samples(9, n=25)
    means = prepare(x, pool)
    assert means.within == pytest.approx(float((torch.cdist(x, x).square() / (-2 * means.bandwidth**2)).exp().mean()))
    first = mmdmin(x, pool, 3, prepared=means)
    assert torch.equal(first.indices, mmdmin(x, pool, 3).indices)
    assert (
        mmdmin(x, pool, 3, chosen=first.indices, prepared=means, bandwidth=means.bandwidth).objective > first.objective
    )
    with pytest.raises(ValueError, match="prepared was computed for another source or pool"):
        mmdmin(x + 1, pool, 3, prepared=means)
    with pytest.raises(ValueError, match=r"prepared was computed with bandwidth .*, not 9: leave it out"):
        mmdmin(x, pool, 3, prepared=means, bandwidth=9.0)


def test_a_thinned_source_changes_the_constant_and_no_pick(monkeypatch, generator):
    x, y = torch.randn(300, 3, generator=generator), torch.randn(40, 3, generator=generator)
    whole, exact = prepare(x, y), mmdmin(x, y, 5)
    monkeypatch.setattr(MMDMIN, "_MAX_WITHIN", 150)
    thinned, thin = prepare(x, y), mmdmin(x, y, 5)
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
        found = random(POOL[:6], POOL[:6], 2, chosen=chosen, generator=g)
        assert len(found.indices.unique()) == 2
        counts[found.indices] += 1
    assert counts[chosen].sum() == 0
    assert counts[[1, 2, 3, 5]].div(3000).tolist() == pytest.approx([0.5] * 4, abs=0.05)
    assert math.isnan(found.objective)
    first, again = (random(POOL, POOL, 4, generator=seeded(3)).indices for _ in range(2))
    assert torch.equal(first, again)


def choose_random(x, pool, count, **options):
    return random(x, pool, count, generator=seeded(0), **options)


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


@pytest.mark.parametrize("policy", [herd, w1min, lambda x, pool, count: prepare(x, pool)])
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
    with pytest.raises(ValueError, match="a random choice needs a generator"):
        random(x, pool, 1)
    with pytest.raises(ValueError, match="pool has 0 samples"):
        random(POOL[:0], POOL[:0], 1, generator=seeded(0))


def test_every_policy_is_chosen_by_the_name_of_its_file():
    assert names() == ["mmdmin", "random", "w1min"]
    x, pool = samples(0)
    for name in names():
        own = policy_of(name)
        shared = {} if own.prepare is None else {"prepared": own.prepare(x, pool)}
        found = own.choose(x, pool, 3, chosen=torch.tensor([1]), generator=seeded(0), **shared)
        assert len(found.indices.unique()) == 3
        assert 1 not in found.indices
    with pytest.raises(ValueError, match="there is no selection policy 'pool': take one of mmdmin, random, w1min"):
        policy_of("pool")
