"""`list`: experiments are found by their sources."""

import argparse
from pathlib import Path

from experiments.commands import list as catalogue

HERE = Path(__file__).resolve().parents[1]


def test_finds_experiments_and_their_variants(tmp_path, capsys):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "smoke.yaml").touch()
    assert catalogue.catalogue(HERE, tmp_path) == [
        ("toy", "A tiny experiment for the tests of the run engine; it counts how often it is computed.", ["smoke"])
    ]
    catalogue.main(argparse.Namespace(folder=HERE, configs=tmp_path))
    assert "config: smoke" in capsys.readouterr().out


def test_says_so_where_there_are_none(tmp_path, capsys):
    catalogue.main(argparse.Namespace(folder=tmp_path, configs=tmp_path))
    assert "no experiments yet" in capsys.readouterr().out
