"""Shared fixtures, and which tests are slow. Randomness comes from the `generator` fixture; property tests repeat."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from tests.browser import Browser, need_chromium

settings.register_profile("project", derandomize=True, deadline=None, max_examples=30)
settings.load_profile("project")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

TESTS = Path(__file__).parent

LONG = (
    "test_readme_commands",
    "test_slurm",
    "test_slurm_deaths",
    "test_slurm_nodes",
    "test_slurm_trouble",
    "test_paper_profile",
    "test_notebooks",
)
"""Files of tests that take minutes, mostly waiting: they start first, so that no worker ends with one of them."""

SPREAD = ("test_readme_commands", "test_notebooks", "test_figures", "test_tables")
"""Files whose tests go to any worker; those of the others stay together and share what their modules make."""

SLOW = (
    *("experiments/vision", "experiments/commands", "experiments/engine", "experiments/claims", "experiments/site"),
    "trace/tool",
)
"""Folders whose tests start processes, train on images or read all records; `make check` leaves them out."""

SLOW_FIXTURES = {"browser", "checkout", "cluster", "peers", "site", "small_disk"}
"""Of other folders: a browser, a cluster, a copy of the repository, an installed wheel, an environment of peers."""


def pytest_collection_modifyitems(items):
    for item in items:
        path = item.path.relative_to(TESTS.parent)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid if item.path.stem in SPREAD else str(path)))
        if is_slow(path, item):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.path.stem not in LONG)


def is_slow(path, item):
    folder = any(path.is_relative_to(Path("tests") / name) for name in SLOW)
    return folder or path.stem in LONG or bool(SLOW_FIXTURES & set(getattr(item, "fixturenames", ())))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium for the tests of one file."""
    need_chromium()
    opened = Browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.close()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
