"""The paper profile as it is documented, as SLURM arrays, on a small tree in DomainNet's layout with a ResNet-50.

What a test has to change is named in OVERRIDES: the data, no downloaded weights, no GPU, and small numbers.
"""

import os
import re
import subprocess
import sys

import pytest

from experiments.engine.records import ROOT, read_records
from tests.experiments.vision.trees import DOMAINS, domainnet_tree

OVERRIDES = ["weights=none", "device=cpu", "workers=0", "size=32", "source_epochs=1", "wandb=off"]


def documented(experiment):
    """The command in the docstring of an experiment, without its comment."""
    page = (ROOT / "experiments" / f"{experiment}.py").read_text()
    (line,) = re.findall(r"^ *python -m (experiments run .*config=paper .*?) *(?:#.*)?$", page, re.MULTILINE)
    return line.split()


@pytest.fixture
def launched(cluster, tmp_path, monkeypatch):
    """Run the documented command with overrides to its end, on the test cluster, and return the records."""
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    root = domainnet_tree(tmp_path / "tree", per_class=6)
    page = tmp_path / "small.yaml"
    page.write_text(f"name: small\nroot: {root}\ndomains: [{', '.join(DOMAINS)}]\n")

    def launch(experiment, *settings):
        command = documented(experiment)
        assert command[-2:] == ["--cluster", "gpu"]
        places = ["--runs", str(tmp_path / "runs")]
        options = [f"data={page}", *OVERRIDES, *settings, *places, "--wait"]
        done = subprocess.run(
            [sys.executable, "-m", *command[:-1], "test", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        logs = "".join(path.read_text() for path in (tmp_path / "runs").glob("*/*/failure.txt"))
        assert done.returncode == 0, done.stderr + logs
        collect = [sys.executable, "-m", "experiments", "collect", *places, "--records", str(tmp_path / "records")]
        subprocess.run([*collect, "--all"], cwd=ROOT, check=True, capture_output=True)
        return done.stderr, read_records(tmp_path / "records" / f"{experiment}.jsonl")

    return launch


def test_active_selection(launched):
    said, records = launched("active", "policy=w1min", "seed=0", "batch=4", "rounds=2", "epochs=1")
    assert re.search(r"2 runs in 1 tasks of array \d+", said)
    assert "2 computed" in said
    assert len(records) == 2  # evaluated, and for development
    for record in records:
        assert record["profile"] == "paper"
        assert record["config"]["arch"] == "resnet50"
        assert record["config"]["train_share"] == 1.0
        assert (record["config"]["source_depth"], record["config"]["depth"]) == ("full", "full")
        assert record["metrics"]["columns"]["labeled"] == [4, 8]
        assert len(set(record["metrics"]["selected"])) == 8
        assert record["metrics"]["skipped"]["painting"] == {"train": 0, "test": 0}


def test_the_gate(launched):
    """A fifth of the candidates, one of each kind, and one Q for all of them; every network is trained whole."""
    said, records = launched("gate", "seed=0", "candidate.epochs=1", "--slice", "0/5")
    assert re.search(r"4 runs in \d+ tasks of array \d+", said)
    assert "4 computed" in said
    names = {record["config"]["candidate"]["name"] for record in records}
    assert names == {"full-01", "full-06", "full-11", "full-16"}
    for record in records:
        assert record["profile"] == "paper"
        assert record["config"]["arch"] == "resnet50"
        assert record["metrics"]["num_classes"] == 6
        assert (record["config"]["source_depth"], record["config"]["candidate"]["depth"]) == ("full", "full")
    assert len({record["metrics"]["anchor_error_before"] for record in records}) == 1
