"""The engine's own cost, measured with few runs."""

import torch

from experiments.benchmarks import engine as overhead
from experiments.commands.list import catalogue
from tests.experiments.cluster import fake


def test_inline_runs_per_second():
    assert overhead.inline_runs_per_second(20) >= 20  # 50 is the target on a quiet machine


def test_what_is_timed_next_has_its_threads_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        overhead.inline_runs_per_second(1)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_submission_is_timed_and_leaves_nothing_behind(cluster):
    seconds = overhead.slurm_submit_seconds(40)
    assert 0 < seconds < 30


def test_no_cluster_no_number(monkeypatch, tmp_path):
    fake(tmp_path, monkeypatch, "sbatch", "exit 1")
    fake(tmp_path, monkeypatch, "sinfo", "exit 1")
    assert overhead.slurm_submit_seconds(1) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert overhead.slurm_submit_seconds(1) is None


def test_the_empty_experiment_is_not_listed():
    assert "_empty" not in [name for name, *_ in catalogue()]
