"""Seconds by stage add up, and progress appears on a terminal alone."""

import io
import time

import pytest

from trace.tool import stages as module
from trace.tool.stages import Stages, seconds_line, summed


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_stage_inside_another_counts_for_itself(monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 6.0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    stages = Stages(progress=False)
    with stages("outer"), stages("inner"):
        pass
    assert stages.seconds == {"outer": 1.0 + 2.0, "inner": 3.0}


def test_seconds_are_real():
    stages = Stages(progress=False)
    for _ in range(2):
        with stages("nap"):
            time.sleep(0.01)
    assert 0.02 <= stages.seconds["nap"] < 5


def test_a_failing_stage_is_closed():
    stages = Stages(progress=False)
    with pytest.raises(KeyError), stages("broken"):
        raise KeyError
    with stages("next"):
        pass
    assert set(stages.seconds) == {"broken", "next"}


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), True), (io.StringIO(), False)])
def test_progress_is_for_terminals(monkeypatch, stream, shown):
    monkeypatch.setattr("sys.stderr", stream)
    with Stages()("shift"):
        pass
    assert ("shift ..." in stream.getvalue()) == shown


def test_sums_and_their_line():
    total = summed({"data": 0.5, "shift": 1.0}, {"shift": 2.0})
    assert seconds_line(total) == "seconds: data 0.50, shift 3.00; total 3.50"
