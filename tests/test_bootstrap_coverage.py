"""Coverage of the bootstrap intervals by simulation: over candidates, over clusters, over both."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from tests.test_bootstrap import rng
from trace.bootstrap import BootstrapInterval, bootstrap, clustered_bootstrap, two_way_bootstrap
from trace.metrics import auroc, spearman


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
