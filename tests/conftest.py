"""Shared fixtures. Randomness comes from the `generator` fixture; property tests are derandomised."""

import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("project", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("project")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


LONG = ("test_readme_commands", "test_slurm", "test_slurm_trouble", "test_paper_profile", "test_notebooks")
"""Files of few tests that take minutes, mostly waiting: they start first, so that no worker ends with one of them."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
