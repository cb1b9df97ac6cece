"""Helpers for the tests on a real SLURM of one or two nodes."""

import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, contextmanager

from experiments.engine.launchers.slurm import Cluster
from experiments.engine.records import ROOT
from experiments.engine.store import RunDirectory
from tests.requirements import lacking

CLUSTER = Cluster(partition="normal", minutes=5, signal_seconds=5, runs_per_task=4)


def need_slurm():
    """Skip, or fail where the tests must run."""
    if not (shutil.which("slurmctld") and shutil.which("munged") and os.geteuid() == 0):
        reason = "no SLURM here: apt-get install slurm-wlm munge, and run as root"
        lacking(reason, required_by="TRACE_REQUIRE_SLURM")


@contextmanager
def running_cluster(folder, nodes=1):
    """A cluster of this process and its children: its folder, and a function that starts again what died of it."""
    need_slurm()
    environment = {**os.environ, "TRACE_CLUSTER": str(folder), "TRACE_CLUSTER_PORT": str(free_ports(1 + nodes))}
    control = str(ROOT / "slurm" / "test_cluster.sh")

    def start():
        command = [control, "start", "--nodes", str(nodes)]
        started = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert started.returncode == 0, started.stderr

    start()
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        yield folder, start
    finally:
        subprocess.run([control, "stop"], env=environment, check=True)
        del os.environ["SLURM_CONF"]
        if before is not None:
            os.environ["SLURM_CONF"] = before


def free_ports(count):
    """The first of so many neighbouring ports on loopback that nobody uses; each test worker has its own range."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    for port in range(26000 + 60 * worker, 26060 + 60 * worker, count):
        with ExitStack() as bound:
            try:
                for number in range(port, port + count):
                    bound.enter_context(socket.socket()).bind(("127.0.0.1", number))
            except OSError:
                continue
            return port
    raise AssertionError("no free ports")


def states(runs, store):
    return Counter(RunDirectory.of(run, store).state() for run in runs)


def until(condition, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, subprocess.run(["squeue", "--long"], capture_output=True, text=True).stdout
        time.sleep(0.2)


def restarts(job_id):
    shown = subprocess.run(["scontrol", "show", "job", job_id], check=True, capture_output=True, text=True).stdout
    return int(shown.split("Restarts=")[1].split()[0])


def fake(tmp_path, monkeypatch, name, script):
    """Put a program of that name first on the PATH."""
    program = tmp_path / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
