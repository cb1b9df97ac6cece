"""Collecting: only runs of the configs' grids, so that a trial is never averaged with them; the rest is counted."""

import json
import subprocess
import sys

import pytest

from experiments.__main__ import main
from experiments.commands.collect import Counts, collect
from experiments.engine.config import Run, expand
from experiments.engine.records import ROOT, read_records
from experiments.engine.store import RunDirectory
from tests.experiments.toy import TOY, Config


@pytest.fixture
def configs(tmp_path):
    folder = tmp_path / "configs" / "toy"
    folder.mkdir(parents=True)
    (folder / "cpu.yaml").write_text(
        'scale: 2.0\nsweep:\n- {mode: [plain, "*"], seed: [0, 1]}\n- {mode: [slow], seed: [7]}\n'
    )
    (folder / "paper.yaml").write_text("sweep: {seed: [0, 1]}\n")
    (folder / "smoke.yaml").write_text("scale: 0.5\n")
    return tmp_path / "configs"


def finish(run, runs):
    """A stored record without the computation."""
    about = {"run_id": run.run_id, "config": run.values, "metrics_version": run.metrics_version}
    RunDirectory.of(run, runs).finish({**about, "metrics": {}})


def collected(tmp_path, configs, runs, **options):
    for run in runs:
        finish(run, tmp_path / "runs")
    counts = collect(tmp_path / "runs", tmp_path / "records", configs=configs, **options)
    path = tmp_path / "records" / f"{TOY}.jsonl"
    return counts[TOY], {r["run_id"] for r in read_records(path)} if path.exists() else set()


def test_a_trial_does_not_enter_the_records_of_its_grid(tmp_path, configs):
    grid = expand(TOY, [], configs=configs)
    trial = expand(TOY, ["layers=[128]"], configs=configs)
    counts, ids = collected(tmp_path, configs, [*grid, *trial])
    assert counts == (3, 3, 3, 0)
    assert ids == {run.run_id for run in grid}
    assert "3 left out" in counts.text()
    assert "--all" in counts.text()
    assert collected(tmp_path, configs, [], everything=True)[0] == (3, 6, 0, 0)
    assert collected(tmp_path, configs, [])[0] == (0, 3, 3, 3), "what no config asks for goes"


def test_a_record_from_before_a_key_stands_beside_new_ones(tmp_path, configs, monkeypatch):
    """The record has no run directory here: it gets the key, and keeps its id."""
    first, second, *_ = expand(TOY, [], configs=configs)
    collected(tmp_path, configs, [first])
    RunDirectory.of(first, tmp_path / "runs").path.rename(tmp_path / "elsewhere")
    monkeypatch.setattr("experiments.commands.collect.with_added", lambda kind, stored: {"later": 1, **stored})
    counts, _ = collected(tmp_path, configs, [second])
    assert counts.total == 2
    stored = {r["run_id"]: r["config"] for r in read_records(tmp_path / "records" / f"{TOY}.jsonl")}
    assert stored[first.run_id] == {"later": 1, **first.values}


def test_an_open_key_takes_new_values_but_nothing_else_of_their_runs(tmp_path, configs):
    new = expand(TOY, ["mode=fail"], configs=configs)
    changed = expand(TOY, ["mode=fail", "layers=[3]"], configs=configs)
    assert (len(new), len(changed)) == (2, 2)
    counts, ids = collected(tmp_path, configs, [*new, *changed])
    assert counts == (2, 2, 2, 0)
    assert ids == {run.run_id for run in new}


def test_every_profile_has_its_own_grids(tmp_path, configs):
    paper = expand(TOY, ["config=paper"], configs=configs)
    counts, _ = collected(tmp_path, configs, [*paper, Run(TOY, Config(profile="paper", seed=2))])
    assert counts == (2, 2, 1, 0)
    (other,) = (Run(TOY, Config(profile="mine")),)
    assert collected(tmp_path, configs, [other])[0] == (0, 2, 2, 0)


def test_nothing_but_trials_writes_nothing(tmp_path, configs):
    counts, ids = collected(tmp_path, configs, expand(TOY, ["seed=9"], configs=configs))
    assert counts == (0, 0, 2, 0)
    assert ids == set()


def test_smoke_runs_and_runs_without_any_yaml_are_trials(tmp_path, configs):
    assert collected(tmp_path, configs, expand(TOY, ["config=smoke"], configs=configs))[0] == (0, 0, 1, 0)
    own = [Run(TOY, Config(seed=seed)) for seed in range(3)]
    assert collected(tmp_path / "own", tmp_path / "nowhere", own)[0] == (0, 0, 3, 0)
    assert collected(tmp_path / "own", tmp_path / "nowhere", [], everything=True)[0] == Counts(3, 3)


def test_trials_never_enter_the_tracked_records(tmp_path):
    with pytest.raises(SystemExit, match="must not enter results/records: name a folder with --records"):
        main(["collect", "--all", "--runs", str(tmp_path)])


def test_the_committed_worlds_and_one_of_your_own_are_in_the_grid(tmp_path):
    """README: `run synthetic world=NAME`, then `collect`; a Moons run with other layers stays out."""
    runs = [*expand("synthetic", ["world=mine"]), *expand("synthetic", ["world=moons_warp"])]
    trial = expand("synthetic", ["world=moons_warp", "models=[{hidden: [128]}]"])
    for run in [*runs, *trial]:
        finish(run, tmp_path / "runs")
    places = ["--runs", str(tmp_path / "runs"), "--records", str(tmp_path / "records")]
    done = subprocess.run(
        [sys.executable, "-m", "experiments", "collect", *places], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"synthetic: {len(runs)} new, {len(runs)} in all; {len(trial)} left out")
    kept = {json.loads(line)["run_id"] for line in (tmp_path / "records" / "synthetic.jsonl").read_text().splitlines()}
    assert kept == {run.run_id for run in runs}
