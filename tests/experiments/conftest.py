"""What the tests of the run engine share: how often the toy experiment was computed."""

from collections import Counter

import pytest


@pytest.fixture
def computed(tmp_path, monkeypatch):
    """How often each (seed, scale) was computed."""
    path = tmp_path / "counter"
    path.touch()
    monkeypatch.setenv("TOY_COUNTER", str(path))
    return lambda: Counter(path.read_text().splitlines())


@pytest.fixture
def counter(computed):
    """How often anything was computed."""
    return lambda: sum(computed().values())
