"""`make reproduce`: its steps are commands that exist, its estimate follows the pace, and a failure stops it."""

import argparse
import os
import signal
import subprocess
import sys

import pytest

from experiments.__main__ import COMMANDS
from experiments.commands.list import catalogue
from experiments.commands.reproduce import PLACES, PRIOR, STEPS, Step, main, minutes_left, reproduce
from experiments.engine.records import ROOT
from experiments.engine.registry import summaries

THREE = (Step("run a", 4.0), Step("run b", 2.0), Step("tables", 1.0))


def test_every_step_is_a_command_and_every_experiment_has_its_step():
    assert {step.command.split()[0] for step in STEPS} <= set(summaries(COMMANDS))
    assert {name for name, _, _ in catalogue()} <= {word for step in STEPS for word in step.command.split()}


def test_time_left_follows_the_pace_of_what_was_computed():
    assert minutes_left(THREE, []) == 7.0
    assert minutes_left(THREE, [8.0]) == pytest.approx(3.0 * (8 + PRIOR) / (4 + PRIOR))
    long = (Step("run a", 400.0), Step("run b", 200.0))
    assert minutes_left(long, [800.0]) == pytest.approx(400.0, rel=0.01)
    assert minutes_left(THREE, [0.01]) == 3.0, "a step that was done before says nothing about the pace"
    assert minutes_left(THREE, [4.0, 2.0, 1.0]) == 0.0


def test_a_short_step_that_was_slow_hardly_moves_the_estimate():
    coming = sum(step.minutes for step in STEPS[1:])
    assert minutes_left(STEPS, [STEPS[0].minutes + 0.5]) == pytest.approx(coming, rel=0.1)


def test_steps_run_in_order_and_the_bar_fills(tmp_path, capfd):
    lines = list(reproduce((Step("list", 1.0), Step("reproduce --dry-run", 1.0)), tmp_path))
    assert [line.split("]")[0].count("#") for line in lines] == [0, 15, 30]
    assert "2 min left: list" in lines[0]
    assert lines[-1].endswith(f"everything is in {tmp_path}")
    shown = capfd.readouterr().out
    assert shown.index("synthetic") < shown.index("python -m experiments claims")


def test_a_failing_step_stops_with_its_log_and_the_command_that_goes_on(tmp_path):
    lines = reproduce((Step("run nothing-of-the-kind", 1.0), Step("list", 1.0)), tmp_path)
    next(lines)
    with pytest.raises(SystemExit) as stopped:
        next(lines)
    log = tmp_path / "logs" / "01-run.log"
    assert str(stopped.value) == (
        f"step 1 of 2, `python -m experiments run nothing-of-the-kind`, ended with exit code 1 (log: {log}): "
        f"`python -m experiments reproduce --output {tmp_path}` goes on with it, finished runs are kept"
    )
    assert "unknown experiment 'nothing-of-the-kind'" in log.read_text()


class Hanging(Step):
    """A step that says who it is and then waits."""

    def arguments(self, folder):
        return [sys.executable, "-uc", "import os; print(os.getpid()); input()"]


def start_hanging(tmp_path):
    """`reproduce` with one step, and the process of that step."""
    code = (
        "import sys; from pathlib import Path; from experiments.commands import reproduce as module; "
        "from tests.experiments.commands.test_reproduce import Hanging; import argparse; "
        "module.STEPS = (Hanging('run hanging', 1.0),); "
        f"module.main(argparse.Namespace(dry_run=False, output=Path({str(tmp_path)!r})))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes)
    return process, int(process.stdout.readline())


def test_a_killed_step_is_named_with_its_log(tmp_path):
    process, step = start_hanging(tmp_path)
    os.kill(step, signal.SIGKILL)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "`python -m experiments run hanging`, was killed by SIGKILL, perhaps for lack of memory (log: " in said
    assert f"`python -m experiments reproduce --output {tmp_path}` goes on with it" in said
    assert (tmp_path / "logs" / "01-run.log").read_text() == f"{step}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_ends_the_step_too(tmp_path, number):
    process, step = start_hanging(tmp_path)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == (-number if number == signal.SIGTERM else 1)
    assert "the same command goes on with the rest" in said
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(step, 0)


def test_dry_run_lists_the_minutes(capsys):
    main(argparse.Namespace(dry_run=True))
    *lines, total = capsys.readouterr().out.splitlines()
    assert len(lines) == len(STEPS)
    assert float(total.split()[0]) == pytest.approx(sum(float(line.split()[0]) for line in lines))


def test_every_step_that_writes_writes_into_one_folder(tmp_path):
    for step in STEPS:
        name, *_ = step.command.split()
        told = step.arguments(tmp_path / "with space")
        assert (name in PLACES) == (name != "data")
        assert [word for word in told if word.startswith(str(tmp_path / "with space"))] or name == "data"
