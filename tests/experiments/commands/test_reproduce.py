"""`make reproduce`: its steps are commands that exist, its estimate follows the pace, and a failure stops it."""

import argparse

import pytest

from experiments.__main__ import COMMANDS
from experiments.commands.list import catalogue
from experiments.commands.reproduce import PLACES, PRIOR, REPRODUCED, STEPS, Step, main, minutes_left, reproduce
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


def test_steps_run_in_order_and_the_bar_fills(capfd):
    lines = list(reproduce((Step("list", 1.0), Step("reproduce --dry-run", 1.0))))
    assert [line.split("]")[0].count("#") for line in lines] == [0, 15, 30]
    assert "2 min left: list" in lines[0]
    assert lines[-1].endswith(f"everything is in {REPRODUCED}")
    shown = capfd.readouterr().out
    assert shown.index("synthetic") < shown.index("python -m experiments claims")


def test_a_failing_step_stops_with_its_command():
    lines = reproduce((Step("run nothing-of-the-kind", 1.0), Step("list", 1.0)))
    next(lines)
    with pytest.raises(SystemExit, match="run nothing-of-the-kind` failed"):
        next(lines)


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
