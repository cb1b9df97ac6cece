"""Publishing: offline as a W&B artifact, also from a folder that is no git checkout."""

import argparse

import pytest

from experiments.commands import publish
from experiments.engine.errors import UserError


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results" / "tables").mkdir(parents=True)
    (tmp_path / "results" / "tables" / "page.md").write_text("page")
    return argparse.Namespace(results=tmp_path / "results", runs=tmp_path / "runs")


def test_outside_git_the_artifact_has_no_commit(results, monkeypatch, capsys):
    monkeypatch.setattr(publish, "provenance", lambda: {"git_commit": None})
    monkeypatch.setenv("WANDB_MODE", "offline")
    publish.main(results)
    assert "1 files as artifact 'results' (offline)" in capsys.readouterr().out
    assert (results.runs / ".publish" / "no-commit").is_dir()


def test_without_tables_it_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="holds no tables or figures"):
        publish.main(argparse.Namespace(results=tmp_path, runs=tmp_path))
