"""Comparison with committed records: what counts as equal, close and different, and where it says so."""

import argparse
import json
import math

import pytest

from experiments.commands.compare import TOLERANCE, agreement, comparison, main
from experiments.engine.errors import MissingFileError, UserError
from experiments.engine.records import write_records
from experiments.tables.table import to_text

BASE = {"columns": {"risk": [0.1, -2.0, 0.0], "names": ["a", "b"]}, "slope": 2.0, "empty": [], "lost": None}


def changed(**columns):
    return {**BASE, "columns": {**BASE["columns"], **columns}}


def test_equal_results_agree_exactly():
    assert agreement(BASE, json.loads(json.dumps(BASE))) == ("exact", 0.0, "")
    assert agreement({"x": [math.nan, 1.0]}, {"x": [None, 1.0]}).kind == "exact"


def test_a_column_is_measured_in_units_of_its_largest_entry():
    close = agreement(BASE, changed(risk=[0.1, -2.0, TOLERANCE]))
    assert (close.kind, close.where) == ("close", "columns.risk")
    assert close.difference == pytest.approx(TOLERANCE / 2)
    assert agreement(BASE, changed(risk=[0.1, -2.0, 2.1 * TOLERANCE])).kind == "differs"


@pytest.mark.parametrize(
    ("found", "where"),
    [
        (changed(risk=[0.1, -2.0]), "columns.risk"),
        (changed(names=["a", "c"]), "columns.names[1]"),
        ({**BASE, "new": 1.0}, "new"),
        ({k: v for k, v in BASE.items() if k != "slope"}, "slope"),
        ({**BASE, "lost": 0.0}, "lost"),
        ({**BASE, "slope": "2.0"}, "slope"),
    ],
)
def test_other_shapes_names_and_kinds_differ(found, where):
    assert agreement(BASE, found) == ("differs", math.inf, where)


def test_a_column_of_zeros_is_close_to_nothing_else():
    assert agreement({"x": [0.0]}, {"x": [1e-12]}).kind == "differs"


@pytest.fixture
def store(tmp_path):
    """Three runs of which two are recorded, one with another number; one recorded run was not computed."""
    records = [{"run_id": f"id{i}", "profile": "cpu", "metrics": {"x": [1.0 * i]}} for i in range(4)]
    for record in records[:3]:
        folder = tmp_path / "runs" / "toy" / record["run_id"]
        folder.mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(record))
    recorded = [records[0], {**records[1], "metrics": {"x": [2.0]}}, records[3]]
    write_records(recorded, tmp_path / "committed" / "toy.jsonl")
    return tmp_path


def test_counts_by_experiment(store):
    table = comparison(store / "runs", store / "committed")
    assert table.rows == [["toy", "3", "1", "0", "1", "1", "1", "5e-01 in x"]]
    assert "largest difference" in to_text(table)


def test_without_a_run_it_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="holds no finished run"):
        main(argparse.Namespace(runs=tmp_path, against=None))


def test_a_folder_that_does_not_exist_is_no_comparison(store):
    with pytest.raises(MissingFileError, match="nowhere is no folder: --against needs one"):
        comparison(store / "runs", store / "nowhere")


def test_the_committed_records_come_from_git(store, monkeypatch):
    asked = []

    def git(*arguments):
        asked.append(arguments)
        return (store / "committed" / "toy.jsonl").read_text() if arguments[0] == "show" else "abc"

    monkeypatch.setattr("experiments.commands.compare.git", git)
    assert comparison(store / "runs", None).rows == comparison(store / "runs", store / "committed").rows
    assert ("show", "HEAD:results/records/toy.jsonl") in asked
    monkeypatch.setattr("experiments.commands.compare.git", lambda *_: None)
    with pytest.raises(UserError, match="no git checkout"):
        comparison(store / "runs", None)
