"""`make reproduce`: its stages are commands that exist, its estimate follows the pace, and a failure stops it."""

import argparse

import pytest

from experiments.__main__ import summaries
from experiments.commands.list import catalogue
from experiments.commands.reproduce import PRIOR, STAGES, Stage, main, minutes_left, reproduce

THREE = (Stage("run a", 4.0), Stage("run b", 2.0), Stage("tables", 1.0))


def test_every_stage_is_a_command_and_every_experiment_has_its_stage():
    assert {stage.command.split()[0] for stage in STAGES} <= set(summaries())
    assert {name for name, _, _ in catalogue()} <= {word for stage in STAGES for word in stage.command.split()}


def test_time_left_follows_the_pace_of_what_was_computed():
    assert minutes_left(THREE, []) == 7.0
    assert minutes_left(THREE, [8.0]) == pytest.approx(3.0 * (8 + PRIOR) / (4 + PRIOR))
    long = (Stage("run a", 400.0), Stage("run b", 200.0))
    assert minutes_left(long, [800.0]) == pytest.approx(400.0, rel=0.01)
    assert minutes_left(THREE, [0.01]) == 3.0, "a stage that was done before says nothing about the pace"
    assert minutes_left(THREE, [4.0, 2.0, 1.0]) == 0.0


def test_a_short_stage_that_was_slow_hardly_moves_the_estimate():
    coming = sum(stage.minutes for stage in STAGES[1:])
    assert minutes_left(STAGES, [STAGES[0].minutes + 0.5]) == pytest.approx(coming, rel=0.1)


def test_stages_run_in_order_and_the_bar_fills(capfd):
    lines = list(reproduce((Stage("list", 1.0), Stage("reproduce --dry-run", 1.0))))
    assert [line.split("]")[0].count("#") for line in lines] == [0, 15, 30]
    assert "2 min left: list" in lines[0]
    assert lines[-1].endswith("min")
    shown = capfd.readouterr().out
    assert shown.index("synthetic") < shown.index("python -m experiments claims")


def test_a_failing_stage_stops_with_its_command():
    lines = reproduce((Stage("run nothing-of-the-kind", 1.0), Stage("list", 1.0)))
    next(lines)
    with pytest.raises(SystemExit, match="run nothing-of-the-kind` failed"):
        next(lines)


def test_dry_run_lists_the_minutes(capsys):
    main(argparse.Namespace(dry_run=True))
    assert len(capsys.readouterr().out.splitlines()) == len(STAGES)
