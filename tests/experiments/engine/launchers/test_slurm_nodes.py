"""A real cluster of two nodes: one that dies, a controller that dies, a drained one, a race; every record once."""

import os
import signal
import subprocess
import time

import pytest

from experiments.commands.status import describe
from experiments.engine.launchers.slurm import Cluster, submit
from experiments.engine.scheduler import queue_states
from experiments.engine.store import RunDirectory
from tests.experiments.cluster import restarts, running_cluster, states, until
from tests.experiments.engine.launchers.test_slurm_trouble import launcher, start
from tests.experiments.toy import grid

WHOLE = Cluster(partition="normal", minutes=5, signal_seconds=5, cpus_per_task=os.cpu_count() or 1, runs_per_task=2)
"""One task fills a node."""


@pytest.fixture(scope="module")
def two_nodes(tmp_path_factory):
    """The folder of the cluster, and what brings back its daemons that died."""
    with running_cluster(tmp_path_factory.mktemp("cluster") / "slurm", nodes=2) as (folder, start_again):
        yield folder, start_again


def kill(pid_file):
    os.kill(int(pid_file.read_text()), signal.SIGKILL)


def node_of(job):
    shown = subprocess.run(["scontrol", "show", "job", job], check=True, capture_output=True, text=True).stdout
    return next((word.removeprefix("NodeList=") for word in shown.split() if word.startswith("NodeList=node")), "")


def saved(folder, job):
    """Wait until the controller has its jobs on the disk: what it forgets, its nodes would not take a second time."""
    now = time.time()
    subprocess.run(["scontrol", "update", f"JobId={job}", "Comment=running"], check=True)
    until(lambda: (folder / "state" / "job_state").stat().st_mtime > now)


def records(runs, store):
    """Of every run the one that is stored; there is no file of a second one."""
    directories = [RunDirectory.of(run, store) for run in runs]
    assert not [file for directory in directories for file in directory.path.glob("record.*.json")]
    return [directory.record()["seed"] for directory in directories]


def test_the_tasks_of_a_node_that_dies_go_on_elsewhere(two_nodes, tmp_path, computed):
    """Only its daemon died: the orphan goes on and keeps its lease, and the requeued task leaves it its run."""
    folder, start_again = two_nodes
    runs = grid(4, mode="held")
    jobs = submit(runs, WHOLE, runs=tmp_path)
    first = [RunDirectory.of(runs[0], tmp_path), RunDirectory.of(runs[2], tmp_path)]
    until(lambda: all(directory.holder() for directory in first))
    assert sorted(map(node_of, jobs)) == ["node1", "node2"]
    lost = next(job for job in jobs if node_of(job) == "node2")
    kill(folder / "slurmd.node2.pid")
    until(lambda: restarts(lost) == 1)
    (tmp_path / "counter.go").touch()
    until(lambda: not queue_states(jobs), seconds=180)
    start_again()
    assert node_of(lost) == "node1"
    assert records(runs, tmp_path) == [0, 1, 2, 3]
    assert set(computed().values()) == {1}


def test_a_controller_that_dies_costs_nothing(two_nodes, tmp_path, computed):
    folder, start_again = two_nodes
    runs = grid(4, mode="held", scale=2.0)
    process = start(launcher(tmp_path, "seed=[0,1,2,3]", "mode=held", "scale=2", "--wait"))
    until(lambda: any(RunDirectory.of(run, tmp_path).holder() for run in runs))
    saved(folder, RunDirectory.of(runs[0], tmp_path).job().id)
    kill(folder / "slurmctld.pid")
    shown = describe("toy", [RunDirectory.of(run, tmp_path) for run in runs])
    assert "the queue does not answer: " in shown
    assert "task " not in shown
    start_again()
    (tmp_path / "counter.go").touch()
    try:
        said = process.communicate(timeout=120)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, said
    assert "4 computed" in said
    assert records(runs, tmp_path) == [0, 1, 2, 3]
    assert set(computed().values()) == {1}


def test_a_drained_node_gets_nothing(two_nodes, tmp_path, computed):
    runs = grid(4, scale=3.0)
    subprocess.run(["scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=test"], check=True)
    try:
        jobs = submit(runs, WHOLE, runs=tmp_path)
        until(lambda: states(runs, tmp_path) == {"done": 4})
    finally:
        subprocess.run(["scontrol", "update", "NodeName=node1", "State=RESUME"], check=True)
    assert {node_of(job) for job in jobs} == {"node2"}
    assert records(runs, tmp_path) == [0, 1, 2, 3]
    assert set(computed().values()) == {1}


def test_nodes_that_race_for_what_they_share_compute_it_once(two_nodes, tmp_path, computed):
    runs = grid(4, mode="shared", scale=4.0)
    jobs = submit(runs, WHOLE, runs=tmp_path)
    until(lambda: states(runs, tmp_path) == {"done": 4})
    assert sorted(map(node_of, jobs)) == ["node1", "node2"]
    assert computed()["shared 4.0"] == 1
    assert [RunDirectory.of(run, tmp_path).record()["metrics"] for run in runs] == [{"sum": 12.0}] * 4
    assert records(runs, tmp_path) == [0, 1, 2, 3]
    assert len(list((tmp_path / ".shared" / "toy").glob("*.pt"))) == 1


def test_one_run_on_both_nodes_has_one_record(two_nodes, tmp_path, computed):
    """Two launchers that do not know of each other's array submit the same runs."""
    runs = grid(2, mode="steps", scale=5.0)
    jobs = [job for _ in range(2) for job in submit(runs, WHOLE, runs=tmp_path)]
    until(lambda: not queue_states(jobs), seconds=180)
    assert records(runs, tmp_path) == [0, 1]
    assert set(computed().values()) == {1}
