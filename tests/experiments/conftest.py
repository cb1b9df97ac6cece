"""What the tests of the run engine share: how often the toy experiment was computed, and disks that fill up."""

import os
import subprocess
from collections import Counter

import pytest

from experiments.engine.records import ROOT
from tests.experiments.cluster import free_ports, need_slurm
from tests.requirements import lacking


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
    """A file system of half a megabyte, which only root can mount."""
    if os.geteuid() != 0:
        lacking("mounting a small tmpfs needs root", required_by="CI")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)], check=True)
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
    need_slurm()
    folder = tmp_path_factory.mktemp("cluster") / "slurm"
    environment = {**os.environ, "TRACE_CLUSTER": str(folder), "TRACE_CLUSTER_PORT": str(free_ports())}
    control = str(ROOT / "slurm" / "test_cluster.sh")
    started = subprocess.run([control, "start"], env=environment, capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        yield
    finally:
        subprocess.run([control, "stop"], env=environment, check=True)
        del os.environ["SLURM_CONF"]
