"""Numbers as tables and ledger print them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trace.stats.bootstrap import BootstrapInterval

MISSING = "missing"
"""What a cell says whose records do not exist."""


def interval(found: BootstrapInterval, form: str = "{:.3f}") -> str:
    """``estimate [lower, upper]``."""
    shown = (form.format(value) for value in (found.estimate, found.lower, found.upper))
    return "{} [{}, {}]".format(*shown)


def spread(values: NDArray[np.float64]) -> str:
    """``mean (standard deviation)``; a value that is undefined is missing."""
    if np.isnan(values).any():
        return MISSING
    return f"{values.mean():.3g} ({values.std(ddof=1):.1g})" if len(values) > 1 else f"{values.mean():.3g}"
