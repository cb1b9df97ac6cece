"""SLURM arrays on a real one-node cluster: kills, cancels, requeues and preemptions, every record once."""

import dataclasses
import os
import subprocess
import sys
import time

import pytest

from experiments.commands.status import describe
from experiments.engine.config import Run
from experiments.engine.launchers import inline, slurm
from experiments.engine.launchers.slurm import Cluster, load_cluster, script, submit
from experiments.engine.records import ROOT
from experiments.engine.scheduler import QueueUnknownError, queue_states
from experiments.engine.store import RunDirectory
from tests.experiments import toy
from tests.experiments.cluster import CLUSTER, fake, restarts, states, until
from tests.experiments.engine.test_interrupt import steps_of
from tests.experiments.toy import TOY, grid


def test_array_with_a_kill_a_cancel_and_a_failure(cluster, tmp_path, computed):
    store = tmp_path / "runs"
    healthy = grid(22, mode="slow")
    failing, killed = grid(1, mode="fail", scale=2.0), grid(1, mode="kill", scale=3.0)
    runs = [*healthy[:2], *killed, *healthy[2:], *failing]
    jobs = submit(runs, CLUSTER, runs=store)
    assert len(jobs) == 6
    assert len({job.split("_")[0] for job in jobs}) == 1
    until(lambda: queue_states(jobs).get(jobs[3]) == "RUNNING")
    subprocess.run(["scancel", jobs[3]], check=True)
    until(lambda: not queue_states(jobs))
    first = [RunDirectory.of(run, store).state() for run in runs]
    assert (first[2], first[-1]) == ("failed", "failed")
    assert first[3] == "done", "the rest of a pack goes on"
    assert 1 <= first.count("missing") <= 4, "of the pack that was cancelled"
    assert "was killed by SIGKILL, perhaps for lack of memory" in RunDirectory.of(killed[0], store).reason()
    assert "fails on purpose" in RunDirectory.of(failing[0], store).failure_path.read_text()
    job = RunDirectory.of(failing[0], store).job()
    assert job.id == jobs[-1]
    assert os.path.samefile(job.log, RunDirectory.of(failing[0], store).path / "slurm.out")
    cancelled = describe("toy", [RunDirectory.of(run, store) for run in runs]).splitlines()
    assert [line for line in cancelled if line.startswith(f"  task {jobs[3]} was cancelled: ")]
    before = computed()

    again = [run for run in runs if RunDirectory.of(run, store).state() != "done"]
    jobs = submit(again, CLUSTER, runs=store)
    until(lambda: not queue_states(jobs))
    assert states(runs, store) == {"done": 23, "failed": 1}
    after = computed()
    for run, state in zip(runs, first, strict=True):
        key = f"{run.config.seed} {run.config.scale}"
        if state == "done":
            assert after[key] == before[key] == 1


def test_requeue_after_a_signal_goes_on_with_the_next_run(cluster, tmp_path, computed):
    store, runs = tmp_path / "runs", grid(4, mode="slow", scale=4.0)
    (job,) = submit(runs, CLUSTER, runs=store)
    until(lambda: states(runs, store)["done"] >= 1)
    subprocess.run(["scancel", "--signal=USR2", job], check=True)
    until(lambda: states(runs, store)["done"] == 4)
    until(lambda: not queue_states([job]))
    assert restarts(job) == 1
    assert max(computed().values()) <= 2
    assert sum(computed().values()) <= 5  # the run that was interrupted, once more


def test_a_real_timeout_is_requeued_until_all_is_done(cluster, tmp_path, computed):
    """80 seconds of work; the limit is lowered to two minutes, of which SLURM warns 60 to 120 seconds before."""
    store, runs = tmp_path / "runs", grid(160, mode="slow", scale=8.0)
    cluster = Cluster(partition="normal", minutes=3, signal_seconds=60, runs_per_task=160)
    (job,) = submit(runs, cluster, runs=store)
    subprocess.run(["scontrol", "update", f"JobId={job}", "TimeLimit=2"], check=True)
    until(lambda: not queue_states([job]), seconds=480)
    assert states(runs, store) == {"done": 160}
    assert restarts(job) >= 1
    assert sum(computed().values()) <= 160 + restarts(job)


def test_a_task_that_times_out_too_often_says_so(cluster, tmp_path, computed):
    store, runs = tmp_path / "runs", grid(3, mode="steps", scale=9.0)
    (job,) = submit(runs, dataclasses.replace(CLUSTER, max_timeouts=0), runs=store)
    directories = [RunDirectory.of(run, store) for run in runs]
    until(lambda: steps_of(directories[0]))
    subprocess.run(["scancel", "--signal=USR2", job], check=True)
    until(lambda: not queue_states([job]))
    assert states(runs, store) == {"failed": 3}
    for directory in directories:
        assert "reached its time limit more often than max_timeouts allows: raise minutes in" in directory.reason()
    assert directories[0].checkpoint_path.exists()


def test_preempted_tasks_come_back(cluster, tmp_path, computed):
    store, runs = tmp_path / "runs", grid(8, mode="slow", scale=5.0)
    jobs = submit(runs, CLUSTER, runs=store)
    until(lambda: "RUNNING" in queue_states(jobs).values())
    subprocess.run(
        ["sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"], check=True,
        capture_output=True,
    )  # fmt: skip
    until(lambda: max(restarts(job) for job in jobs) >= 1)
    until(lambda: states(runs, store)["done"] == 8)
    assert sum(computed().values()) <= 8 + 2  # at most the current run of each task


def test_a_large_grid_is_submitted_with_one_call_in_seconds(cluster, tmp_path):
    runs = grid(1000, mode="empty")
    started = time.monotonic()
    jobs = submit(runs, Cluster(partition="normal", runs_per_task=20), runs=tmp_path)
    seconds = time.monotonic() - started
    subprocess.run(["scancel", jobs[0].split("_")[0]], check=True)
    until(lambda: not queue_states(jobs))
    assert len(jobs) == 50
    assert seconds < 15  # 2 on a quiet machine


def test_same_bits_as_inline(cluster, tmp_path, computed):
    runs = grid(3)
    list(inline.launch(runs, runs=tmp_path / "here"))
    jobs = submit(runs, CLUSTER, runs=tmp_path / "there")
    until(lambda: not queue_states(jobs))
    for run in runs:
        here, there = (RunDirectory.of(run, tmp_path / place).record()["metrics"] for place in ("here", "there"))
        assert here == there


def test_command_line_waits_and_follows(cluster, tmp_path, computed):
    options = [TOY, "seed=[0,1,2]", "scale=6", "wandb=off", "--runs", str(tmp_path / "runs")]
    command = [sys.executable, "-m", "experiments", "run", *options, "--launcher", "slurm", "--cluster", "test"]
    done = subprocess.run([*command, "--wait"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "3 runs in 1 tasks of array" in done.stderr
    assert "3 computed" in done.stderr
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "nothing to do" in again.stderr
    assert sum(computed().values()) == 3


def test_plain_array_without_submitit(cluster, tmp_path, computed):
    store = tmp_path / "runs"
    options = [TOY, "seed=[0,1,2,3,4]", "scale=7", "wandb=off", "--runs", str(store)]
    batch = tmp_path / "array.sbatch"
    batch.write_text((ROOT / "slurm" / "array.sbatch").read_text().replace(".venv/bin/python", sys.executable))
    submitted = subprocess.run(
        ["sbatch", "--parsable", "--wait", "--array=0-1", f"--output={tmp_path}/%a.out", str(batch), *options],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert submitted.returncode == 0, (tmp_path / "0.out").read_text()
    assert states([Run(TOY, toy.Config(seed=s, scale=7.0)) for s in range(5)], store) == {"done": 5}
    assert set(computed().values()) == {1}


def test_plain_array_takes_the_active_environment_without_a_venv(tmp_path):
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/bash\necho active "$@"\n')
    python.chmod(0o755)
    place = {"PATH": f"{python.parent}:/usr/bin:/bin", "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "4"}

    def said():
        command = ["bash", str(ROOT / "slurm" / "array.sbatch"), "ridge", "seed=1"]
        return subprocess.run(command, cwd=tmp_path, env=place, check=True, capture_output=True, text=True).stdout

    assert said() == "active -m experiments run ridge seed=1 --slice 1/4\n"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/bin/echo")
    assert said().startswith("-m experiments run ridge")


def test_script_and_clusters():
    asked = {"partition": "p", "account": "a", "qos": "q", "gres": "gpu:1", "mem": "8GB"}
    cluster = Cluster(**asked, minutes=30, parallel=2, runs_per_task=3)
    text = script(grid(10), cluster, runs=ROOT / "results" / "runs")
    given = [f"--{key}={value}" for key, value in asked.items()]
    for line in (*given, "--array=0-3%2", "--time=30", "--requeue", "--signal=USR2@90"):
        assert f"#SBATCH {line}" in text
    assert f"export PYTHONPATH={ROOT}" in text
    for path in slurm.CLUSTERS.glob("*.yaml"):
        assert load_cluster(path.stem).minutes >= 1


def test_bad_clusters(tmp_path):
    (tmp_path / "typo.yaml").write_text("partitoin: x\n")
    (tmp_path / "type.yaml").write_text("minutes: long\n")
    with pytest.raises(ValueError, match="did you mean partition"):
        load_cluster("typo", tmp_path)
    with pytest.raises(ValueError, match="minutes"):
        load_cluster("type", tmp_path)
    with pytest.raises(ValueError, match="minutes=1 is too short for signal_seconds=30"):
        Cluster(minutes=1, signal_seconds=30)
    with pytest.raises(ValueError, match="--cluster is one of type, typo"):
        load_cluster("none", tmp_path)


def test_a_silent_controller_is_not_an_empty_queue(tmp_path, monkeypatch):
    fake(tmp_path, monkeypatch, "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(QueueUnknownError, match="Unable to contact"):
        queue_states(["7_0"])
    directory = RunDirectory(tmp_path / "runs" / "toy" / "abc")
    directory.path.mkdir(parents=True)
    (directory.path / "job.txt").write_text("7_0\n/tmp/log\n\n")
    assert "the queue does not answer: Unable to contact" in describe("toy", [directory])
    fake(tmp_path, monkeypatch, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert queue_states(["7_0"]) == {}


def test_without_sbatch(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="sbatch is not on this machine: submit from a login node"):
        submit(grid(1), CLUSTER, runs=tmp_path)
    with pytest.raises(QueueUnknownError, match="squeue is not on this machine"):
        queue_states(["7_0"])
