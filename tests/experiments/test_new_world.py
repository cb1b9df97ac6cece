"""A world dropped in as one file is swept, tabled and drawn, with nothing else to edit."""

import shutil
import subprocess
import sys

import pytest

from experiments.engine.records import ROOT, read_records

WORLD = '''
"""A wider source than target."""

from dataclasses import dataclass

import torch

from ..sample import Sample
from . import coin


@dataclass(frozen=True)
class World:
    severity: float = 1.0

    def source(self, n, *, generator):
        return self.draw(n, 1.0, generator)

    def target(self, n, *, generator):
        return self.draw(n, 1.0 / (1 + self.severity), generator)

    def draw(self, n, scale, generator):
        x = scale * torch.randn(n, 2, generator=generator)
        return Sample(x, coin(torch.sigmoid(4 * x[:, 0] * x[:, 1]), generator=generator))
'''


@pytest.fixture
def copy(tmp_path):
    for name in ("trace", "experiments", "configs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "trace" / "worlds" / "narrowing.py").write_text(WORLD)
    (tmp_path / "README.md").write_text("<!-- glance:begin -->\n<!-- glance:end -->\n")
    return tmp_path


def run(copy, *arguments):
    command = [sys.executable, "-m", "experiments", *arguments]
    return subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)


def test_a_new_file_is_a_new_world(copy):
    sweep = ["run", "synthetic", "config=smoke", "world=narrowing", "wandb=off"]
    assert "2 computed" in run(copy, *sweep).stderr
    assert "2 done before" in run(copy, *sweep).stderr
    records = ["--records", "trial"]
    run(copy, "collect", "--all", *records)
    run(copy, "tables", "--profile", "smoke", "--readme", "README.md", *records)
    table = (copy / "results" / "tables" / "rank-power.md").read_text()
    (config, *_) = (record["config"] for record in read_records(copy / "results" / "records" / "synthetic.jsonl"))
    assert f"| narrowing | mlp | labels {config['labels']} | TRACE-Proxy, OT |" in table
    assert "narrowing" in (copy / "README.md").read_text()
    run(copy, "figures", "--profile", "smoke", *records, "--only", "score-scatter", "attribution")
    assert (copy / "results" / "figures" / "score-scatter.png").stat().st_size > 10_000
