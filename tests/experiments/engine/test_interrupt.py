"""Warnings wait for the end of a step, and a run goes on from exactly there."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from experiments.engine.interrupt import Warned, uninterrupted
from experiments.engine.records import ROOT
from experiments.engine.shared import unsealed
from experiments.engine.store import RunDirectory
from tests.experiments.toy import TOY, grid


def steps_of(directory):
    path = directory.path / "curves.jsonl"
    return [json.loads(line)["step"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
@pytest.mark.parametrize("launcher", ["inline", "local"])
def test_a_warned_run_goes_on_from_its_step(tmp_path, counter, number, launcher):
    """Step 13 or so, not the periodic save of step 10."""
    directory = RunDirectory.of(grid(1, mode="steps")[0], tmp_path)
    command = [sys.executable, "-m", "experiments", "run", TOY, "mode=steps", "wandb=off", "--runs", str(tmp_path)]
    command += ["--launcher", launcher, *(["--processes", "1"] if launcher == "local" else [])]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len(steps_of(directory)) < 13 and time.monotonic() < deadline:
        time.sleep(0.02)
    if launcher == "inline":
        process.send_signal(number)
        process.communicate()
        assert process.returncode == -number
    else:
        process.send_signal(signal.SIGINT)  # the launcher ends its workers with SIGTERM
        assert "the same command goes on" in process.communicate()[1]
    kept = torch.load(io.BytesIO(unsealed(directory.checkpoint_path)))["step"]
    assert 13 <= kept < 20
    assert steps_of(directory) == list(range(kept))
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert steps_of(directory) == list(range(60))
    assert counter() == 2


@pytest.fixture
def acted():
    """What reaches the handler that was there before."""
    numbers = []
    before = signal.signal(signal.SIGUSR2, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGUSR2, before)


def test_a_step_that_is_too_long_is_not_waited_for(acted):
    with Warned(grace=0.1) as warned:
        warned.listen()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert acted == []
        time.sleep(0.3)
        assert acted == [signal.SIGUSR2]
        assert warned.pending is None


def test_a_repeated_warning_still_waits(acted):
    with Warned() as warned:
        warned.listen()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGUSR2)
        assert (acted, warned.pending) == ([], signal.SIGUSR2)
        warned.act()
        assert acted == [signal.SIGUSR2]


def test_a_warning_after_the_last_step_acts_when_the_run_is_over(acted):
    with Warned() as warned:
        warned.listen()
        os.kill(os.getpid(), signal.SIGUSR2)
        assert acted == []
    assert acted == [signal.SIGUSR2]
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_run_without_steps_is_warned_at_once(acted):
    with Warned():
        os.kill(os.getpid(), signal.SIGUSR2)
        assert acted == [signal.SIGUSR2]


def test_ctrl_c_waits_for_a_submission_and_for_its_programs():
    finished = []

    def submission():
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            program = ["sh", "-c", "kill -INT $$; echo alive"]
            finished.append(subprocess.run(program, capture_output=True, text=True, check=False).stdout)

    with pytest.raises(KeyboardInterrupt):
        submission()
    assert finished == ["alive\n"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
