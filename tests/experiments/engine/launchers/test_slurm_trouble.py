"""A real one-node cluster and what goes wrong around it: warnings, Ctrl-C, full disks, two launchers at once."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from experiments.engine.launchers.slurm import Cluster, submit
from experiments.engine.records import ROOT
from experiments.engine.scheduler import queue_states
from experiments.engine.store import RunDirectory
from tests.experiments.cluster import CLUSTER, fake, need_slurm, restarts, states, until
from tests.experiments.conftest import fill
from tests.experiments.engine.test_interrupt import steps_of
from tests.experiments.toy import TOY, grid

CONTROL = ROOT / "slurm" / "test_cluster.sh"


def launcher(store, *options):
    command = [sys.executable, "-m", "experiments", "run", TOY, "wandb=off", "--runs", str(store), *options]
    return [*command, "--launcher", "slurm", "--cluster", "test"]


def start(command):
    """In a process group of its own, as a terminal would."""
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)


def queue():
    return subprocess.run(["squeue", "--noheader"], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("warning", ["timeout", "preemption"])
def test_a_warned_run_goes_on_from_its_step(cluster, tmp_path, computed, warning):
    """Every step once: it goes on from step 13 or so, not from the periodic save of step 10."""
    (run,) = runs = grid(1, mode="steps")
    directory = RunDirectory.of(run, tmp_path)
    (job,) = submit(runs, CLUSTER, runs=tmp_path)
    until(lambda: len(steps_of(directory)) >= 13)
    if warning == "timeout":
        subprocess.run(["scancel", "--signal=USR2", job], check=True)
    else:
        urgent = ["sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
        subprocess.run(urgent, check=True, capture_output=True)
    until(lambda: restarts(job) == 1)
    until(lambda: directory.state() == "done", seconds=180)
    log = directory.log_path.read_text()
    assert steps_of(directory) == list(range(60)), log
    assert sum(computed().values()) == 2


def test_two_launchers_at_once_do_no_run_twice(cluster, tmp_path, computed):
    command = launcher(tmp_path / "runs", "seed=[0,1,2,3,4,5,6,7]", "mode=slow", "--wait")
    both = [start(command) for _ in range(2)]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    until(lambda: states(grid(8, mode="slow"), tmp_path / "runs") == {"done": 8})
    assert sum(computed().values()) == 8


def test_status_shows_the_queue(cluster, tmp_path, computed):
    runs = grid(6, mode="steps")
    jobs = submit(runs, Cluster(partition="normal", minutes=5, signal_seconds=5), runs=tmp_path)
    until(lambda: "RUNNING" in queue_states(jobs).values())
    command = [sys.executable, "-m", "experiments", "status", "--runs", str(tmp_path)]
    shown = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    subprocess.run(["scancel", jobs[0].split("_")[0]], check=True)
    until(lambda: not queue_states(jobs))
    assert "tasks in the queue: " in shown
    assert " pending, " in shown
    assert " running" in shown.split("tasks in the queue: ")[1]


def test_ctrl_c_while_waiting_leaves_the_jobs_alone(cluster, tmp_path, computed):
    process = start(launcher(tmp_path / "runs", "seed=[0,1,2]", "mode=slow", "--wait"))
    until(lambda: (tmp_path / "runs" / ".slurm").exists() and queue())
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 1
    assert "goes on in the queue; `status` follows it, `scancel " in said
    assert "Traceback" not in said
    until(lambda: states(grid(3, mode="slow"), tmp_path / "runs") == {"done": 3})


def test_ctrl_c_while_submitting_submits_whole(cluster, tmp_path, computed, monkeypatch):
    slow = tmp_path / "slow.py"  # no shell script: a shell lets Ctrl-C through while it waits, sbatch does not
    slow.write_text(
        "import os, sys, time\n"
        f"open('{tmp_path}/asked', 'w').close()\ntime.sleep(2)\n"
        f"os.execv('{shutil.which('sbatch')}', ['sbatch', *sys.argv[1:]])\n"
    )
    fake(tmp_path, monkeypatch, "sbatch", f'exec {sys.executable} {slow} "$@"')
    process = start(launcher(tmp_path / "runs", "seed=[0,1,2,3,4]"))
    until(lambda: (tmp_path / "asked").exists())
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate()[1]
    assert process.returncode == 1
    assert "goes on in the queue" in said
    until(lambda: states(grid(5), tmp_path / "runs") == {"done": 5})


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_full_disk_at_submission_leaves_nothing_behind(cluster, small_disk, tmp_path, computed, monkeypatch, moment):
    ballast, store = small_disk / "ballast", small_disk / "runs"
    command = launcher(store, "seed=[0,1,2]", "--wait")
    if moment == "before":
        fill(ballast)
    else:
        flood = f"dd if=/dev/zero of={ballast} bs=512 2>/dev/null"
        fake(tmp_path, monkeypatch, "sbatch", f'{shutil.which("sbatch")} --hold "$@"; {flood}; exit 0')
    stopped = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert stopped.returncode == 1
    assert "the run store cannot be written" in stopped.stderr
    assert "nothing is left in the queue" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    until(lambda: not queue())
    assert sum(computed().values()) == 0
    ballast.unlink()
    (tmp_path / "bin" / "sbatch").unlink(missing_ok=True)
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert states(grid(3), store) == {"done": 3}


def test_a_disk_that_fills_under_the_tasks_loses_nothing(cluster, small_disk, computed):
    ballast, store = small_disk / "ballast", small_disk / "runs"
    runs = grid(4, mode="slow")
    jobs = submit(runs, CLUSTER, runs=store)
    until(lambda: states(runs, store)["done"] >= 1)
    fill(ballast)
    until(lambda: not queue_states(jobs))
    finished = [run for run in runs if RunDirectory.of(run, store).state() == "done"]
    assert 1 <= len(finished) < 4
    assert [RunDirectory.of(run, store).record()["seed"] for run in finished] == [run.config.seed for run in finished]
    before = computed()
    ballast.unlink()
    subprocess.run(launcher(store, "seed=[0,1,2,3]", "mode=slow", "--wait"), cwd=ROOT, check=True, capture_output=True)
    assert states(runs, store) == {"done": 4}
    for run in finished:
        key = f"{run.config.seed} {run.config.scale}"
        assert computed()[key] == before[key] == 1


def daemons(folder):
    """Processes whose command line names the folder."""
    found = subprocess.run(["pgrep", "-f", f"(munged|slurmctld|slurmd).*{folder}"], capture_output=True, text=True)
    return found.stdout.split()


def test_a_failed_start_leaks_nothing(tmp_path, monkeypatch):
    need_slurm()
    folder = tmp_path / "cluster"
    monkeypatch.setenv("TRACE_CLUSTER", str(folder))
    for name in ("slurmctld", "slurmd"):
        real = shutil.which(name)
        fake(tmp_path, monkeypatch, name, "exit 1")
        failed = subprocess.run([str(CONTROL), "start"], capture_output=True, text=True, check=False)
        assert failed.returncode == 1
        assert daemons(folder) == []
        assert not folder.exists()
        (tmp_path / "bin" / name).unlink()
        assert shutil.which(name) == real


def test_stop_kills_nobody_else(tmp_path, monkeypatch):
    need_slurm()
    folder = tmp_path / "cluster"
    folder.mkdir()
    (folder / "slurm.conf").touch()
    monkeypatch.setenv("TRACE_CLUSTER", str(folder))
    innocent = subprocess.Popen(["sleep", "60"])
    (folder / "slurmd.pid").write_text(f"{innocent.pid}\n")
    subprocess.run([str(CONTROL), "stop"], check=True)
    assert innocent.poll() is None
    assert not folder.exists()
    innocent.kill()
    innocent.wait()
