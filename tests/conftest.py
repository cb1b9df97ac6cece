"""Shared fixtures. Randomness comes from the `generator` fixture; property tests are derandomised."""

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("project", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("project")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
