"""An experiment's own command: help about every key, and the same runs as `python -m experiments run`."""

import pytest

from experiments.engine.entry import help_page, main
from experiments.engine.store import RunDirectory
from tests.experiments.toy import TOY, grid


def test_help_shows_docstring_keys_and_variants(capsys, tmp_path):
    main(TOY, ["seed=1", "--help"])
    page = capsys.readouterr().out
    assert "python -m tests.experiments.toy [config=VARIANT]" in page
    assert "A tiny experiment for the tests of the run engine" in page
    assert "  scale: float = 1.0\n" in page
    assert "  mode: str = 'plain'\n      plain, fail, slow," in page
    assert "  layers: list[int] = [2]\n" in page
    assert "config: none: the defaults alone" in page
    (tmp_path / "toy").mkdir()
    for variant in ("paper", "cpu"):
        (tmp_path / "toy" / f"{variant}.yaml").touch()
    assert "config: cpu, paper\n" in help_page(TOY, tmp_path)


def test_it_runs_the_grid(tmp_path, counter, monkeypatch):
    options = ["seed=[0,1]", "wandb=off", "--runs", str(tmp_path / "runs")]
    main(TOY, options)
    assert [RunDirectory.of(run, tmp_path / "runs").state() for run in grid(2)] == ["done", "done"]
    monkeypatch.setattr("sys.argv", ["toy", *options])
    main(TOY)
    assert counter() == 2


def test_mistakes_are_one_sentence():
    with pytest.raises(SystemExit, match="did you mean seed"):
        main(TOY, ["sede=1"])


def test_inherited_keys_keep_their_meaning(capsys):
    main("active", ["--help"])
    page = capsys.readouterr().out
    assert "The frozen timm backbone;" in page
    assert "Labels that each round adds." in page
