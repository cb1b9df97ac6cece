"""trace.stats.bootstrap against exact variances, scipy and brute force; every refusal."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from trace.stats import bootstrap as bootstrap_module
from trace.stats.bootstrap import BootstrapInterval, Difference, bootstrap, clustered_bootstrap, two_way_bootstrap
from trace.stats.metrics import auprc, auroc, spearman

tied = arrays(np.float64, 12, elements=st.integers(0, 4).map(float))
labels = arrays(np.bool_, 12)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def correlated(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    x = rng(seed).normal(size=n)
    return x, x + rng(seed + 1000).normal(size=n)


@settings(deadline=None, max_examples=60)
@given(tied, tied, labels, st.integers(0, 2**32 - 1))
def test_resampled_metrics_equal_the_metrics_of_the_resamples(x, y, harmful, seed):
    """All resamples at once against one call each, with many ties, undefined resamples and an empty one."""
    counts = rng(seed).integers(0, 3, size=(8, 12)) * rng(seed + 1).integers(0, 2, size=(8, 12))
    counts[0] = 0
    for metric, target in ((spearman, y), (auroc, harmful.astype(float)), (auprc, harmful.astype(float))):
        at_once = bootstrap_module.on_resamples(metric, [x, target], counts.astype(float))
        one_by_one = bootstrap_module.on_resamples(
            lambda a, b, metric=metric: metric(a, b), [x, target], counts.astype(float)
        )
        np.testing.assert_allclose(at_once, one_by_one, atol=1e-12)
        assert math.isnan(at_once[0])


@settings(deadline=None, max_examples=40)
@given(tied, tied, labels, st.integers(0, 2**32 - 1))
def test_a_paired_difference_equals_the_difference_on_each_resample(x, y, harmful, seed):
    counts = rng(seed).integers(0, 3, size=(8, 12)).astype(float)
    for metric, target in ((spearman, x + y), (auroc, harmful.astype(float)), (auprc, harmful.astype(float))):
        at_once = bootstrap_module.on_resamples(Difference(metric), [x, y, target], counts)
        one_by_one = bootstrap_module.on_resamples(
            lambda a, b, t, metric=metric: metric(a, t).value - metric(b, t).value, [x, y, target], counts
        )
        np.testing.assert_allclose(at_once, one_by_one, atol=1e-12)


def test_pairing_resolves_what_two_intervals_do_not():
    """Two scores that share their noise: each interval is wide, that of the difference is not."""
    target = rng(1).normal(size=40)
    a = target + 1.5 * rng(2).normal(size=40)
    b = a + 0.8 * rng(3).normal(size=40)
    alone = [bootstrap(spearman, score, target, generator=rng()) for score in (a, b)]
    paired = bootstrap(Difference(spearman), a, b, target, generator=rng())
    assert paired.estimate == pytest.approx(alone[0].estimate - alone[1].estimate)
    assert paired.upper - paired.lower < min(i.upper - i.lower for i in alone)
    same = bootstrap(Difference(spearman), a, a, target, generator=rng())
    assert same[:3] == (0.0, 0.0, 0.0)


def test_a_difference_of_what_is_undefined_says_why():
    found = bootstrap(Difference(auroc), [1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [1.0, 1.0, 1.0], generator=rng())
    assert math.isnan(found.estimate)
    assert "one class only" in found.reason


def test_bootstrap_of_the_mean_is_the_normal_interval():
    """The bootstrap distribution of a mean has the sample's own standard error."""
    x = rng(3).normal(size=400)
    interval = bootstrap(np.mean, x, generator=rng(), num_resamples=20_000)
    error = x.std() / math.sqrt(400)
    assert interval.estimate == x.mean()
    assert interval.lower == pytest.approx(x.mean() - 1.96 * error, abs=0.06 * error)
    assert interval.upper == pytest.approx(x.mean() + 1.96 * error, abs=0.06 * error)
    assert interval[3:] == (0.95, 20_000, 0, "")


def test_bootstrap_agrees_with_scipy():
    x, y = correlated(60)
    expected = stats.bootstrap(
        (x, y), lambda a, b: spearman(a, b).value, paired=True, vectorized=False, n_resamples=4000, method="percentile",
        rng=rng(1),
    ).confidence_interval  # fmt: skip
    interval = bootstrap(spearman, x, y, generator=rng(2), num_resamples=10_000)
    assert interval[1:3] == pytest.approx((expected.low, expected.high), abs=0.015)


def test_resampled_means_have_the_exact_variance_of_each_scheme():
    """Counts w of k units drawn k times have the covariance I - 1/k, so the variance of a mean has a closed form."""
    table = rng(4).normal(size=(5, 7)) + rng(5).normal(size=(5, 1)) + rng(6).normal(size=(1, 7))
    seeds, candidates = np.repeat(np.arange(5), 7), np.tile(np.arange(7), 5)
    second_moments = [np.eye(k) + (1 - 1 / k) for k in table.shape]
    both = np.trace(table.T @ second_moments[0] @ table @ second_moments[1]) / table.size**2 - table.mean() ** 2
    drawn: list[float] = []

    def recorded_mean(x):
        drawn.append(x.mean())
        return drawn[-1]

    for expected, resample in (
        (table.var() / 35, lambda **options: bootstrap(recorded_mean, table.ravel(), **options)),
        (
            table.mean(axis=1).var() / 5,
            lambda **options: clustered_bootstrap(recorded_mean, seeds, table.ravel(), **options),
        ),
        (both, lambda **options: two_way_bootstrap(recorded_mean, seeds, candidates, table.ravel(), **options)),
    ):
        drawn.clear()
        interval = resample(generator=rng(9), num_resamples=20_000)
        assert len(drawn) == 20_001
        assert interval.estimate == drawn[0] == pytest.approx(table.mean(), rel=1e-12)
        assert np.var(drawn[1:]) == pytest.approx(expected, rel=0.05)
        assert interval[1:3] == pytest.approx(np.quantile(drawn[1:], [0.025, 0.975]), rel=1e-12)


def test_clustered_bootstrap_is_the_bootstrap_of_cluster_means():
    """Equal clusters: the mean of rows is the mean of cluster means, whatever the labels and the order of rows."""
    x = rng(2).normal(size=(9, 4))
    names = np.repeat([f"seed-{i}" for i in range(9)], 4)
    whole = bootstrap(np.mean, x.mean(axis=1), generator=rng(1), num_resamples=500)
    clustered = clustered_bootstrap(np.mean, names, x.ravel(), generator=rng(1), num_resamples=500)
    assert clustered[:3] == pytest.approx(whole[:3], rel=1e-12)
    order = rng(3).permutation(36)
    shuffled = clustered_bootstrap(np.mean, names[order], x.ravel()[order], generator=rng(1), num_resamples=500)
    assert shuffled[:3] == pytest.approx(whole[:3], rel=1e-12)


def test_intervals_depend_on_the_generator_alone():
    x, y = correlated(30)
    first, again, other = (bootstrap(spearman, x, y, generator=rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first.estimate == other.estimate
    assert first[1:3] != other[1:3]


def test_intervals_do_not_depend_on_the_size_of_a_block(monkeypatch):
    x, y = correlated(30)
    whole = bootstrap(spearman, x, y, generator=rng(), num_resamples=101)
    monkeypatch.setattr(bootstrap_module, "BLOCK", 300)
    assert bootstrap(spearman, x, y, generator=rng(), num_resamples=101) == whole


def test_a_higher_level_gives_a_wider_interval():
    x, y = correlated(30)
    narrow, wide = (bootstrap(spearman, x, y, generator=rng(), level=level) for level in (0.5, 0.99))
    assert wide.lower < narrow.lower < narrow.estimate < narrow.upper < wide.upper


def test_undefined_resamples_are_counted_and_left_out():
    """One harmful candidate of 6 is missing from (5/6)^6 = 33 % of the resamples."""
    x, harmful = np.arange(6.0), np.arange(6) == 5
    interval = bootstrap(auroc, x, harmful, generator=rng(), num_resamples=4000)
    assert interval.num_undefined == pytest.approx(4000 * (5 / 6) ** 6, rel=0.08)
    assert interval[:3] == (1.0, 1.0, 1.0)
    assert interval.reason == ""


def test_an_interval_that_is_mostly_undefined_is_not_given():
    x, harmful = np.arange(2.0), np.array([False, True])
    interval = clustered_bootstrap(auroc, [0, 1], x, harmful, generator=rng(), num_resamples=1001)
    assert interval.num_undefined > 450  # both candidates are drawn in half of the resamples
    mostly = bootstrap(
        lambda a: math.nan if len(set(a)) < 5 else 1.0, np.arange(5.0), generator=rng(), num_resamples=200
    )
    assert mostly.estimate == 1.0
    assert math.isnan(mostly.lower)
    assert math.isnan(mostly.upper)
    assert mostly.num_undefined > 150
    assert mostly.reason == f"undefined on {mostly.num_undefined} of 200 resamples"


def test_a_resample_without_rows_is_undefined():
    """Two rows on the diagonal of a 2 x 2 table: each way 1/4 of the draws miss a seed or a candidate entirely."""
    interval = two_way_bootstrap(np.mean, [0, 1], ["a", "b"], [1.0, 2.0], generator=rng(), num_resamples=4000)
    assert interval.num_undefined == pytest.approx(4000 / 8, rel=0.15)
    assert interval[:3] == (1.5, 1.0, 2.0)


@pytest.mark.parametrize(
    ("interval", "unit"),
    [
        (lambda: bootstrap(np.mean, [3.0], generator=rng()), "rows"),
        (lambda: clustered_bootstrap(np.mean, ["a"] * 3, [2.0, 3.0, 4.0], generator=rng()), "clusters"),
        (lambda: two_way_bootstrap(np.mean, [0, 0], [0, 1], [2.0, 4.0], generator=rng()), "seeds"),
        (lambda: two_way_bootstrap(np.mean, [0, 1], [0, 0], [2.0, 4.0], generator=rng()), "candidates"),
    ],
)
def test_one_unit_gives_an_estimate_without_an_interval(interval, unit):
    result = interval()
    assert result.estimate == 3.0
    assert math.isnan(result.lower)
    assert math.isnan(result.upper)
    assert result.num_resamples == 0
    assert result.reason == f"fewer than 2 {unit} to resample"


def test_an_undefined_estimate_has_no_interval():
    constant = bootstrap(spearman, [1.0, 1.0, 1.0], [1.0, 2.0, 3.0], generator=rng())
    assert math.isnan(constant.estimate)
    assert math.isnan(constant.lower)
    assert constant.reason == "score is constant"
    assert bootstrap(lambda x: math.nan, [1.0, 2.0], generator=rng()).reason == "the statistic is NaN"


def test_bad_bootstrap_inputs_are_refused():
    x = [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match=r"columns\[1\] holds NaN or infinity"):
        bootstrap(spearman, x, [1.0, math.nan, 2.0], generator=rng())
    with pytest.raises(ValueError, match=r"columns\[0\] has 3, columns\[1\] has 2"):
        bootstrap(spearman, x, x[:2], generator=rng())
    with pytest.raises(ValueError, match=r"columns\[0\] has 0"):
        bootstrap(np.mean, [], generator=rng())
    with pytest.raises(ValueError, match="no columns were given"):
        bootstrap(np.mean, generator=rng())
    with pytest.raises(ValueError, match=r"clusters has shape \[2\] for 3 rows"):
        clustered_bootstrap(np.mean, [0, 1], x, generator=rng())
    with pytest.raises(ValueError, match="clusters holds NaN"):
        clustered_bootstrap(np.mean, [0.0, 1.0, math.nan], x, generator=rng())
    with pytest.raises(ValueError, match=r"candidates has shape \[4\] for 3 rows"):
        two_way_bootstrap(np.mean, torch.tensor([0, 1, 2]), ["a", "b", "c", "d"], x, generator=rng())
    with pytest.raises(ValueError, match="num_resamples must be at least 1, got 0"):
        bootstrap(np.mean, x, generator=rng(), num_resamples=0)
    for level in (0.0, 1.0, 95.0, math.nan):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            bootstrap(np.mean, x, generator=rng(), level=level)
    with pytest.raises(ValueError, match="generator must be a numpy Generator, got int"):
        bootstrap(np.mean, x, generator=0)
    with pytest.raises(ValueError, match="harmful must hold True and False"):
        bootstrap(auroc, x, x, generator=rng())


def covered(interval: BootstrapInterval, truth: float) -> bool:
    return interval.lower <= truth <= interval.upper


def test_coverage_of_spearman_over_candidates():
    """Normal pairs with Pearson correlation r have Spearman correlation (6 / pi) asin(r / 2)."""
    r, hits, generator = 0.6, 0, rng(10)
    for _ in range(300):
        x = generator.normal(size=60)
        y = r * x + math.sqrt(1 - r**2) * generator.normal(size=60)
        interval = bootstrap(spearman, x, y, generator=generator, num_resamples=400)
        hits += covered(interval, 6 / math.pi * math.asin(r / 2))
    assert 0.91 <= hits / 300 <= 0.98


def test_coverage_of_auroc_over_candidates():
    """Two unit normals a distance d apart have AUROC Phi(d / sqrt 2)."""
    hits, generator = 0, rng(11)
    for _ in range(300):
        harmful = generator.random(80) < 0.5
        interval = bootstrap(
            auroc, generator.normal(size=80) + harmful, harmful, generator=generator, num_resamples=400
        )
        hits += covered(interval, stats.norm.cdf(1 / math.sqrt(2)))
    assert 0.91 <= hits / 300 <= 0.98


def test_coverage_with_clusters_needs_the_clustered_bootstrap():
    clusters, generator = np.repeat(np.arange(25), 6), rng(12)
    hits = {"rows": 0, "clusters": 0}
    for _ in range(200):
        x = np.repeat(generator.normal(size=25), 6) + 0.3 * generator.normal(size=150)
        hits["rows"] += covered(bootstrap(np.mean, x, generator=generator, num_resamples=200), 0.0)
        interval = clustered_bootstrap(np.mean, clusters, x, generator=generator, num_resamples=200)
        hits["clusters"] += covered(interval, 0.0)
    assert hits["rows"] / 200 < 0.75
    assert 0.88 <= hits["clusters"] / 200 <= 0.98


def test_coverage_with_two_factors_needs_the_two_way_bootstrap():
    seeds, candidates, generator = np.repeat(np.arange(15), 15), np.tile(np.arange(15), 15), rng(13)
    hits = {"seeds": 0, "both": 0}
    for _ in range(150):
        x = generator.normal(size=15)[seeds] + generator.normal(size=15)[candidates] + generator.normal(size=225)
        one = clustered_bootstrap(np.mean, seeds, x, generator=generator, num_resamples=200)
        both = two_way_bootstrap(np.mean, seeds, candidates, x, generator=generator, num_resamples=200)
        hits["seeds"] += covered(one, 0.0)
        hits["both"] += covered(both, 0.0)
    assert hits["seeds"] / 150 < 0.85
    assert 0.88 <= hits["both"] / 150 <= 0.99
