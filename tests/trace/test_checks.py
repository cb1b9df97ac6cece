"""Checks that no estimator's own tests reach."""

import numpy as np
import pytest

from trace.checks import check_count


@pytest.mark.parametrize("count", [1, np.int64(3), np.uint8(7)])
def test_whole_numbers_of_any_library(count):
    assert check_count(count, "count") == count


@pytest.mark.parametrize("count", [0, -1, 2.0, np.float64(2), np.int64(0), "2"])
def test_anything_else_is_refused(count):
    with pytest.raises(ValueError, match="count must be a whole number of at least 1"):
        check_count(count, "count")
