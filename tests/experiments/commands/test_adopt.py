"""Adopting: the committed results are rewritten from a folder of runs, and only by this command."""

import json
import shutil
import subprocess
import sys

import pytest

from experiments.__main__ import main
from experiments.engine.records import ROOT, read_records

ADOPT = [sys.executable, "-m", "experiments", "adopt"]


@pytest.fixture
def copy(tmp_path):
    """A checkout without results."""
    for name in ("trace", "experiments", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_nothing_to_adopt(tmp_path):
    with pytest.raises(SystemExit, match=r"runs holds no finished run: `python -m experiments reproduce`"):
        main(["adopt", "--from", str(tmp_path)])


def test_records_tables_figures_ledger_and_readme_follow(copy):
    shutil.copy(ROOT / "README.md", copy)
    (copy / "results").mkdir()
    shutil.copy(ROOT / "results" / "README.md", copy / "results")
    store = copy / "elsewhere" / "runs" / "ridge"
    for record in read_records(ROOT / "results" / "records" / "ridge.jsonl"):
        (store / record["run_id"]).mkdir(parents=True)
        (store / record["run_id"] / "record.json").write_text(json.dumps(record))
    subprocess.run([*ADOPT, "--from", "elsewhere"], cwd=copy, check=True, capture_output=True)
    for name in ("records/ridge.jsonl", "tables/ridge-scaling.md"):
        assert (copy / "results" / name).read_text() == (ROOT / "results" / name).read_text()
    assert (copy / "results" / "figures" / "slopes.png").exists()
    assert "Paper: " in (copy / "README.md").read_text()
