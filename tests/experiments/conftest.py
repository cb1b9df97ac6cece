"""What tests share: contexts of a run, small images, how often the toy experiment was computed, disks that fill up."""

import itertools
import os
import subprocess
from collections import Counter

import pytest

from experiments.engine.config import expand
from experiments.engine.run import Context
from experiments.engine.store import RunDirectory
from experiments.engine.wandb import Tracker
from tests.experiments.cluster import running_cluster
from tests.experiments.toy import grid
from tests.experiments.vision.trees import DOMAINS, domainnet_tree
from tests.requirements import lacking


@pytest.fixture
def new_context(tmp_path):
    """Contexts of runs: each call has a store of its own, or one that is named."""
    (run,), number = grid(1), itertools.count()

    def made(store=None):
        store = tmp_path / f"store{next(number)}" if store is None else store
        directory = RunDirectory(store / "toy" / f"run{next(number)}")
        directory.path.mkdir(parents=True)
        return Context(directory, Tracker(run, directory, "off"))

    return made


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """The config keys of a small tree of images in DomainNet's layout, with caches of its own."""
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    domainnet_tree(tmp_path / "tree", per_class=4)
    page = tmp_path / "small.yaml"
    page.write_text(f"name: small\nroot: {tmp_path / 'tree'}\ndomains: [{', '.join(DOMAINS)}]\n")
    (point, *_) = expand("active", ["config=smoke"])
    return {**point.values, "data": str(page)}


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


@pytest.fixture
def small_disk(tmp_path):
    """A file system of eight megabytes, which only root can mount."""
    if os.geteuid() != 0:
        lacking("mounting a small tmpfs needs root", required_by="CI")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def fill(path):
    """Write until the disk is full."""
    with open(path, "wb", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 512)
            except OSError:
                return


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A running cluster: ours for the tests of one file, unless SLURM_CONF names one already."""
    if "SLURM_CONF" in os.environ:
        yield
        return
    with running_cluster(tmp_path_factory.mktemp("cluster") / "slurm"):
        yield
