"""What a test needs and a machine may lack."""

import os
from typing import NoReturn

import pytest


def lacking(reason, *, required_by) -> NoReturn:
    """Skip with the reason, or fail with it where the variable says that these tests must run."""
    if os.environ.get(required_by):
        pytest.fail(reason)
    pytest.skip(reason)
