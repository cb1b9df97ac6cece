"""Records: written whole or not at all, one per run, readable by any JSON parser."""

import json
import math
import subprocess

import numpy as np
import pytest

from experiments.engine import records
from experiments.engine.manifests import write_record
from experiments.engine.records import (
    provenance,
    read_records,
    run_id,
    significant,
)


def test_a_record_replaces_the_one_of_its_profile(tmp_path):
    path = tmp_path / "deep" / "r.jsonl"
    for name, profile in (("a", "cpu"), ("b", "smoke"), ("c", "cpu")):
        write_record({"run_id": name, "profile": profile}, path)
    assert read_records(path) == [{"run_id": "b", "profile": "smoke"}, {"run_id": "c", "profile": "cpu"}]


def test_broken_and_missing_files_are_named(tmp_path):
    path = tmp_path / "r.jsonl"
    with pytest.raises(FileNotFoundError, match="run the experiment that writes it"):
        read_records(path)
    path.write_text('{"run_id": "a"}\n{"run_id": ')
    with pytest.raises(ValueError, match=r"r\.jsonl, line 2, is not a record"):
        read_records(path)


def test_significant_digits():
    found = significant({"a": [math.pi * 1e-9, 2, True, "x", np.array([1 / 3])], "b": (np.float64(5.0), None)}, 7)
    assert json.dumps(found) == '{"a": [3.141593e-09, 2, true, "x", [0.3333333]], "b": [5, null]}'
    assert significant(1234567, 3) == 1234567  # a count is no measurement
    assert [significant(v, 6) for v in (-0.0, 2 / 3e7, 1e20)] == [0, 6.66667e-08, 10**20]
    assert math.isnan(significant(math.nan, 6))


def test_run_id_depends_on_what_decides_the_result():
    base = run_id("benchmark", {"seed": 0, "n": 5})
    assert base == run_id("benchmark", {"n": 5, "seed": 0})
    others = [("gate", {"seed": 0, "n": 5}), ("benchmark", {"seed": 1, "n": 5}), ("benchmark", {"seed": 0})]
    assert len({base, *(run_id(*other) for other in others)}) == 4


def test_provenance_names_commit_and_versions():
    found = provenance()
    assert len(found["git_commit"]) == 40
    assert found["versions"]["torch"].startswith("2.")
    assert isinstance(found["git_dirty"], bool)


def test_a_new_file_of_code_is_a_difference(tmp_path, monkeypatch):
    def git(*arguments):
        names = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def dirty():
        return provenance.__wrapped__()["git_dirty"]

    monkeypatch.setattr(records, "ROOT", tmp_path)
    (tmp_path / "trace" / "worlds").mkdir(parents=True)
    (tmp_path / "trace" / "code.py").touch()
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "notes.txt").touch()
    assert dirty() is False
    (tmp_path / "trace" / "worlds" / "mine.py").touch()
    assert dirty() is True
