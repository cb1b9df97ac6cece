"""What every study asks of a frame: means and rank correlations with intervals over seeds, and coverage of a bound."""

import math
from typing import Any

from pandas import DataFrame, Series

from trace.stats.jackknife import StudentInterval, jackknife_interval, student_interval
from trace.stats.metrics import spearman

mean_interval = student_interval
"""The mean over seeds, one value each, with a 95% interval of Student's t."""

ANY = (-math.inf, math.inf)


def over_units(
    statistic: Any, *factors: Series, columns: tuple[Series, ...], limits: tuple[float, float] = ANY
) -> StudentInterval:
    """A statistic of columns with a 95% interval over seeds, or over seeds and candidates.

    NaN where a column is undefined in some row; ``limits`` are those of the statistic.
    """
    if any(column.isna().any() for column in columns):
        return StudentInterval(math.nan, math.nan, math.nan, 0.95, math.nan)
    return jackknife_interval(statistic, *factors, columns=columns, limits=limits)


def rank_correlation(frame: DataFrame, score: str, target: str = "abs_risk_change") -> StudentInterval:
    """Spearman's rho of a score with |Delta R| over all rows, with an interval over seeds (``app:common-impl``)."""
    return over_units(spearman, frame["seed"], columns=(frame[score], frame[target]), limits=(-1, 1))


def covers(frame: DataFrame, bound: str) -> tuple[float, float]:
    """Share of pairs where a bound holds, and the median of its ratio to |Delta R| where that is not 0."""
    change = frame["abs_risk_change"]
    return float((frame[bound] >= change).mean()), float((frame[bound] / change)[change > 0].median())
