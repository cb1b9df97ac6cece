"""What every study asks of a frame: means and rank correlations with intervals over seeds, and coverage of a bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from pandas import DataFrame, Series

from trace.stats.bootstrap import BootstrapInterval, bootstrap, clustered_bootstrap
from trace.stats.metrics import spearman

RESAMPLES = 500


def mean_interval(values: Series) -> BootstrapInterval:
    """The mean over seeds with a 95% bootstrap interval."""
    return bootstrap(np.mean, values, generator=np.random.default_rng(0))


def over_seeds(statistic: Any, seeds: Series, *columns: Series) -> BootstrapInterval:
    """A statistic of columns with a 95% interval over seeds; NaN where a column is undefined in some row."""
    if any(column.isna().any() for column in columns):
        return BootstrapInterval(math.nan, math.nan, math.nan, 0.95, 0, 0)
    generator = np.random.default_rng(0)
    return clustered_bootstrap(statistic, seeds, *columns, generator=generator, num_resamples=RESAMPLES)


def rank_correlation(frame: DataFrame, score: str, target: str = "abs_risk_change") -> BootstrapInterval:
    """Spearman's rho of a score with |Delta R| over all rows, with an interval over seeds (``app:common-impl``)."""
    return over_seeds(spearman, frame["seed"], frame[score], frame[target])


def covers(frame: DataFrame, bound: str) -> tuple[float, float]:
    """Share of pairs where a bound holds, and the median of its ratio to |Delta R| where that is not 0."""
    change = frame["abs_risk_change"]
    return float((frame[bound] >= change).mean()), float((frame[bound] / change)[change > 0].median())
