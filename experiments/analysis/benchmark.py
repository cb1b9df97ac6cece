"""Cost against sample size, from the benchmark's record."""

from __future__ import annotations

import numpy as np
from pandas import DataFrame
from scipy.stats import linregress

from ..engine.records import Record


def growth_frame(record: Record) -> DataFrame:
    """Seconds of one call by estimator and n."""
    return DataFrame(record["metrics"]["growth"])


def order_of_growth(part: DataFrame) -> float:
    """Slope of log seconds against log n, over the upper half of the sizes: small ones measure overhead.

    >>> round(order_of_growth(DataFrame({"n": [1, 2, 4, 8], "seconds": [9.0, 4.0, 16.0, 64.0]})), 6)
    2.0
    """
    if len(part) < 2:
        return float("nan")
    upper = np.log(part[["n", "seconds"]].iloc[min(len(part) // 2, len(part) - 2) :])
    return float(linregress(upper["n"], upper["seconds"]).slope)
