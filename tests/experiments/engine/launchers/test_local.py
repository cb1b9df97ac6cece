"""The local launcher under signals: its workers end with it, the store is clean, and a sentence says how to go on."""

import os
import signal
import subprocess
import sys
import time

import pytest

from experiments.engine.records import ROOT
from experiments.engine.store import RunDirectory
from tests.experiments.engine.test_interrupt import steps_of
from tests.experiments.toy import TOY, grid


def start(store, launcher, *settings):
    options = [*settings, "wandb=off", "--runs", str(store), "--launcher", launcher]
    options += ["--processes", "2"] if launcher == "local" else []
    command = [sys.executable, "-m", "experiments", "run", TOY, *options]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def until(condition, seconds=90.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("launcher", ["inline", "local"])
def test_sigterm_ends_the_workers_and_says_how_to_go_on(tmp_path, counter, launcher):
    runs = grid(3, mode="steps")
    directories = [RunDirectory.of(run, tmp_path) for run in runs]
    process = start(tmp_path, launcher, "seed=[0,1,2]", "mode=steps")
    until(lambda: sum(len(steps_of(directory)) >= 3 for directory in directories) == (2 if launcher == "local" else 1))
    holders = [holder for directory in directories if (holder := directory.holder())]
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGTERM
    assert "interrupted: what is finished is kept, the same command goes on with the rest" in said
    assert "Traceback" not in said
    assert len(holders) == (2 if launcher == "local" else 1)
    assert not any(alive(holder.pid) for holder in holders)
    for directory in directories:
        assert directory.state() == "missing", "no lease and no failure is left"
        assert not list(directory.path.glob(".*"))
    assert sum(directory.checkpoint_path.exists() for directory in directories) == len(holders)


def test_workers_end_with_a_launcher_that_was_killed(tmp_path, counter):
    """They save the current step, as if it had dismissed them, and print no traceback about its pipe."""
    directory = RunDirectory.of(grid(1, mode="steps")[0], tmp_path)
    process = start(tmp_path, "local", "mode=steps")
    until(lambda: len(steps_of(directory)) >= 3)
    worker = directory.holder().pid
    assert worker != process.pid
    process.kill()
    said = process.communicate(timeout=60)[1]  # the end of the pipe: nobody has it open any more
    assert not alive(worker)
    assert "Traceback" not in said
    assert directory.checkpoint_path.exists()
    assert directory.state() == "missing"
    before = len(steps_of(directory))
    again = start(tmp_path, "local", "mode=steps")
    assert again.wait() == 0, again.stderr.read()
    again.stderr.close()
    assert steps_of(directory) == list(range(60))
    assert before >= 3


def test_a_run_without_steps_leaves_nothing_half_done(tmp_path, counter):
    process = start(tmp_path, "local", "seed=[0,1,2,3,4,5,6,7]", "mode=slow")
    until(lambda: len(list(tmp_path.glob("*/*/record.json"))) >= 2)
    os.kill(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert "Traceback" not in said
    states = [RunDirectory.of(run, tmp_path).state() for run in grid(8, mode="slow")]
    assert set(states) <= {"done", "missing"}
    assert not list(tmp_path.glob("*/*/failed.txt"))
