"""A record whose columns are of another version is not done: it is set aside, computed again and not collected."""

import json

import pytest

from experiments.commands.collect import collect
from experiments.engine.config import expand
from experiments.engine.records import read_records
from experiments.engine.run import execute
from experiments.engine.store import RunDirectory, finished_records
from tests.experiments import toy
from tests.experiments.toy import TOY


@pytest.fixture
def configs(tmp_path):
    folder = tmp_path / "configs" / "toy"
    folder.mkdir(parents=True)
    (folder / "cpu.yaml").write_text("sweep: {seed: [0, 1]}\n")
    return tmp_path / "configs"


@pytest.fixture
def store(tmp_path, computed):
    return tmp_path / "runs"


@pytest.fixture
def runs(configs):
    return expand(TOY, [], configs=configs)


def next_version(monkeypatch, number=2):
    monkeypatch.setattr(toy, "METRICS_VERSION", number, raising=False)


def test_a_record_says_its_version_and_its_id_does_not_depend_on_it(runs, store, monkeypatch):
    execute(runs[0], runs=store)
    assert RunDirectory.of(runs[0], store).record()["metrics_version"] == 1
    before = runs[0].run_id
    next_version(monkeypatch)
    assert runs[0].run_id == before
    assert runs[0].metrics_version == 2


def test_another_version_is_computed_again_and_the_old_record_kept_aside(runs, store, counter, monkeypatch):
    for _ in range(2):
        execute(runs[0], runs=store)
    assert counter() == 1
    next_version(monkeypatch)
    assert RunDirectory.of(runs[0], store).state() == "missing"
    assert list(finished_records(store / TOY)) == []
    assert [execute(runs[0], runs=store) for _ in range(2)] == ["computed", "done before"]
    assert counter() == 2
    directory = RunDirectory.of(runs[0], store)
    assert directory.record()["metrics_version"] == 2
    assert json.loads((directory.path / "record.previous1.json").read_text())["metrics_version"] == 1
    next_version(monkeypatch, 1)
    assert RunDirectory.of(runs[0], store).state() == "missing", "a newer one is as little done as an older one"


def test_a_record_from_before_versions_is_of_the_first(runs, store, monkeypatch):
    directory = RunDirectory.of(runs[0], store)
    directory.path.mkdir(parents=True)
    directory.finish({"run_id": runs[0].run_id})
    assert directory.state() == "done"
    next_version(monkeypatch)
    assert RunDirectory.of(runs[0], store).state() == "missing"


def test_collect_drops_committed_records_of_another_version_and_says_so(runs, store, configs, tmp_path, monkeypatch):
    records = tmp_path / "records"

    def said():
        return collect(store, records, configs=configs)[TOY].text()

    for run in runs:
        execute(run, runs=store)
    assert said() == "2 new, 2 in all"
    next_version(monkeypatch)
    execute(runs[1], runs=store)
    assert "0 new, 1 in all; 1 dropped, " in said()
    (kept,) = read_records(records / f"{TOY}.jsonl")
    assert (kept["run_id"], kept["metrics_version"]) == (runs[1].run_id, 2)
    assert said() == "0 new, 1 in all"
