"""A rehearsal's arithmetic, on a clock that its own work advances."""

from itertools import pairwise

import pytest

from experiments.engine import rehearsal
from experiments.engine.rehearsal import Demand, Rehearsal, growing, report, streamed


@pytest.fixture
def clock(monkeypatch):
    """Seconds that have passed; tests add to them."""
    passed = [0.0]
    monkeypatch.setattr(rehearsal.time, "perf_counter", lambda: passed[0])
    return passed


def test_the_first_step_of_a_stream_is_no_measure_of_the_others(clock):
    def work():
        for seconds in (50.0, *[2.0] * 1000):
            clock[0] += seconds
            yield 10

    found = streamed("reading", "images", 5000, work)(60.0)
    assert found.done == "70 of 5,000 images"
    assert found.seconds == 62.0
    assert found.expected == pytest.approx(5000 * 0.2)


def test_a_stream_of_one_step_is_measured_by_it(clock):
    def work():
        clock[0] += 3.0
        yield 10

    assert streamed("reading", "images", 20, work)(60.0).expected == pytest.approx(6.0)


@pytest.mark.parametrize("power", [1.0, 2.0, 2.7])
def test_what_grows_is_extrapolated_by_its_own_slope(clock, power):
    asked = []

    def work(n):
        asked.append(n)
        clock[0] += 1e-9 * n**power

    found = growing("distances", 100_000, 3, work)(5.0)
    assert asked[0] == 256
    assert all(b == min(100_000, 2 * a) for a, b in pairwise(asked))
    assert found.seconds <= 5.0
    assert found.expected == pytest.approx(3 * 1e-9 * 100_000**power, rel=1e-6)


def test_few_rows_are_done_whole(clock):
    def work(n):
        clock[0] += 1.0

    found = growing("distances", 30, 2, work)(5.0)
    assert (found.done, found.expected) == ("30 of 30 rows", 2.0)


def test_the_report_adds_up(clock):
    def work():
        clock[0] += 36.0
        yield 1

    stages = [streamed(name, "images", 100, work) for name in ("first", "second")]
    *lines, total = report(
        Rehearsal(stages, [Demand("features", 2e9), Demand("Q", 5e8)]), seconds=1.0, num_runs=8, at_once=4
    )
    assert len(lines) == 4
    assert "all of it in     1.00 h" in lines[0]
    assert total.startswith("8 runs: 2.00 h, 0.50 with 4 at a time; 2.50 GB of disk; ")
