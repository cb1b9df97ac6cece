"""The benchmark measures what it says: agreeing values, real times, real memory."""

import re
import subprocess
import sys
import time

import pytest
import torch

from experiments.benchmarks import BenchmarkCase, Target
from experiments.commands import benchmark
from experiments.commands.benchmark import cases
from experiments.engine.records import ROOT


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "experiments", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_contenders_of_a_case_agree():
    """At the smoke sizes geomloss's annealing error is the largest difference."""
    for case in cases("smoke"):
        contenders = case.calls(torch.Generator().manual_seed(0))
        assert not case.once or list(contenders) == ["ours"]
        values = {name: contender() for name, contender in contenders.items() if name != "three bare products"}
        for value in values.values():
            assert value == pytest.approx(values["ours"], rel=1e-2), case.name


def test_one_case_end_to_end():
    done = command("benchmark", "--profile", "smoke", "--case", "ridge")
    assert done.returncode == 0, done.stderr
    assert "| kernel ridge norm, 30 lambdas | 40 x 4 | ours |" in done.stdout
    assert re.search(r"time ratio >= 5: (not )?met", done.stdout)


def test_unknown_case_and_help():
    assert "no case has 'nothing' in its name" in command("benchmark", "--profile", "smoke", "--case", "nothing").stderr
    page = command("benchmark", "--help").stdout
    assert "about 17 minutes" in page
    assert "--profile" in page


def test_times_are_medians_after_a_warm_up():
    calls = []

    def slow_once():
        time.sleep(0.2 if not calls else 0.0)
        calls.append(1)
        return 1.0

    values, seconds = benchmark._timed({"a": slow_once})
    assert values == {"a": 1.0}
    assert seconds["a"] < 0.1
    assert len(calls) == 4


def test_peak_memory_is_that_of_the_contender(monkeypatch):
    def hungry():
        return float(torch.ones(50_000_000).sum())  # 200 MB

    contenders = {"ours": hungry, "peer": lambda: 1.0}
    case = BenchmarkCase("hungry", "", lambda _: (), contenders, (Target("peer", "memory", at_least=2),))
    monkeypatch.setattr(benchmark, "_named", lambda name, profile: case)
    assert benchmark._here("smoke", 0, "hungry", "ours").peak == pytest.approx(2e8, rel=0.1)
    assert benchmark._here("smoke", 0, "hungry", "peer").peak < 2e7


def test_only_the_inputs_of_the_measured_case_are_drawn(monkeypatch):
    drawn = []

    def inputs(_):
        drawn.append("own")
        return (2.0,)

    ours = {"ours": lambda value: value}
    others = [BenchmarkCase("other", "", lambda _: pytest.fail("drew the inputs of another case"), ours)]
    monkeypatch.setattr(benchmark, "cases", lambda profile: [*others, BenchmarkCase("own", "", inputs, ours)])
    value, seconds, _ = benchmark._here("smoke", 0, "own", "ours")
    assert value == 2.0
    assert 0 <= seconds < 1
    assert drawn == ["own", "own"]  # once to load, once to measure


def test_a_long_case_is_called_once_and_elsewhere(monkeypatch):
    case = BenchmarkCase("long", "", lambda _: pytest.fail("drew its inputs here"), {"ours": float}, once=True)
    monkeypatch.setattr(benchmark, "_elsewhere", lambda *_: benchmark.MeasuredCall(3.0, 200.0, 1e9))
    (row,) = benchmark.measure(case, "smoke", 0)
    assert (row["value"], row["seconds"], row["peak_bytes"], row["time_ratio"]) == (3.0, 200.0, 1e9, 1.0)


def test_targets_are_judged(monkeypatch):
    targets = (Target("peer", "time", at_least=1e9), Target("ours", "bytes", at_most=3e9))
    case = BenchmarkCase("x", "", lambda _: (), {"ours": lambda: 1.0, "peer": lambda: 2.0}, targets)
    monkeypatch.setattr(benchmark, "_elsewhere", lambda *_: benchmark.MeasuredCall(0.0, 0.0, 1e6))
    ours, peer = benchmark.measure(case, "smoke", 0)
    assert ours["targets"][0]["met"]
    assert not peer["targets"][0]["met"]
    assert peer["value_difference"] == 1.0
    assert peer["memory_ratio"] == 1.0
