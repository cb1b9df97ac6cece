"""A real offline W&B run and a real MLflow file store hold the numbers of the diagnostic."""

import json
import math
import sys
from pathlib import Path

import mlflow
import pytest
import torch
import wandb

from tests.experiments.engine.test_wandb import key_of, messages
from trace import Sample, Settings, diagnose
from trace.tracking import log_mlflow, log_wandb, metrics


@pytest.fixture(scope="module")
def diagnostic():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, generator=g)
    y = (x[:, 0] > 0).long()
    return diagnose(lambda x: x * 2, lambda x: -x, Sample(x, y), Sample(x + 1.0), settings=Settings(q=0.9))


def test_metrics_are_the_finite_numbers(diagnostic):
    found = metrics(diagnostic, prefix="p")
    assert found["p/model_change"] == diagnostic.model_change
    assert found["p/anchor_disagreement"] == diagnostic.evidence.anchor.disagreement.value
    assert found["p/sizes_source"] == 60
    assert "p/gap_source" not in found
    assert all(math.isfinite(value) for value in found.values())


@pytest.fixture
def offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    wandb.teardown()  # W&B reads the environment once a process
    yield tmp_path
    wandb.teardown()


def history(folder):
    """What the only run below a folder logged, step by step."""
    (path,) = folder.rglob("*.wandb")
    points = [{key_of(i): json.loads(i.value_json) for i in m.history.item} for m in messages(path)]
    return [point for point in points if point]


def test_wandb_run(diagnostic, offline):
    with wandb.init(project="mine") as run:
        log_wandb(diagnostic, run, prefix="trace/real", step=3)
        log_wandb(diagnostic, prefix="trace/sketch", step=3)  # the active run
        assert run.config["trace/real"]["q"] == 0.9
        assert run.summary["trace/real/reasons/gap_source"] == diagnostic.reasons["gap_source"]
    (point,) = history(offline)
    expected = metrics(diagnostic, prefix="trace/real") | metrics(diagnostic, prefix="trace/sketch")
    assert point["_step"] == 3
    assert {key: point[key] for key in expected} == pytest.approx(expected)


def test_wandb_opens_a_run_of_its_own_and_closes_it(diagnostic, offline):
    log_wandb(diagnostic)
    assert wandb.run is None
    (point,) = history(offline)
    assert point["trace/model_change"] == pytest.approx(diagnostic.model_change)


def test_mlflow_file_store(diagnostic, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        log_mlflow(diagnostic)
        assert mlflow.active_run() is None
        with mlflow.start_run() as mine:
            log_mlflow(diagnostic, prefix="real", step=2)
            assert mlflow.active_run().info.run_id == mine.info.run_id
        client = mlflow.MlflowClient()
        for run_id, prefix in (
            (mlflow.search_runs(output_format="list")[-1].info.run_id, "trace"),
            (mine.info.run_id, "real"),
        ):
            stored = client.get_run(run_id).data
            expected = metrics(diagnostic, prefix=prefix)
            assert stored.metrics == pytest.approx(expected)
            assert stored.params[f"{prefix}/q"] == "0.9"
            page = client.download_artifacts(run_id, f"{prefix}/diagnostic.md", str(tmp_path))
            assert f"{diagnostic.model_change:.4g}" in Path(page).read_text()
    finally:
        mlflow.set_tracking_uri(None)


@pytest.mark.parametrize(("log", "package"), [(log_wandb, "wandb"), (log_mlflow, "mlflow")])
def test_a_missing_package_says_what_to_install(diagnostic, monkeypatch, log, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"needs the package {package}.*: pip install {package}"):
        log(diagnostic)


def test_metrics_are_json(diagnostic):
    json.dumps(metrics(diagnostic), allow_nan=False)
