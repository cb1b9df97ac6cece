"""Numbers as tables and ledger print them."""

import math

from pandas import DataFrame, Series

from trace.stats.jackknife import StudentInterval

MISSING = "missing"
"""What a cell says whose records do not exist."""


def interval(found: StudentInterval, form: str = "{:.3f}") -> str:
    """``estimate [lower, upper]``, or what there is of it: the estimate alone, or why there is none."""
    if math.isnan(found.estimate):
        return found.reason or MISSING
    shown = [form.format(value) for value in (found.estimate, found.lower, found.upper)]
    return shown[0] if math.isnan(found.lower) else "{} [{}, {}]".format(*shown)


def spread(values: Series) -> str:
    """``mean (standard deviation)``; a value that is undefined is missing."""
    if values.isna().any():
        return MISSING
    return f"{values.mean():.3g} ({values.std():.1g})" if len(values) > 1 else f"{values.mean():.3g}"


def interval_kind(frame: DataFrame) -> str:
    """What the intervals of a table are: over how many seeds of each world."""
    counts = sorted(set(frame.groupby("world")["seed"].nunique()))
    return f"95% interval, Student's t over {' or '.join(map(str, counts)) or 'no'} seeds"
