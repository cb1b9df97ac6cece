"""Seconds by stage add up, and progress appears on a terminal alone."""

import io
import re
import time

import pytest

from trace.io.checksum import sha256
from trace.io.data import read_rows
from trace.tool import stages as module
from trace.tool.stages import Stages, seconds_line


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_stage_inside_another_counts_for_itself(monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 6.0])
    monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock))
    stages = Stages()
    with stages("outer"), stages("inner"):
        pass
    assert stages.seconds == {"outer": 1.0 + 2.0, "inner": 3.0}


def test_seconds_are_real():
    stages = Stages()
    for _ in range(2):
        with stages("nap"):
            time.sleep(0.01)
    assert 0.02 <= stages.seconds["nap"] < 5


def test_a_failing_stage_is_closed():
    stages = Stages()
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


def test_a_large_table_shows_how_far_it_is(monkeypatch, tmp_path):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    path = tmp_path / "big.csv"
    path.write_text("a,b,y\n" + "0.25,0.5,1\n1.25,0.5,0\n" * 300_000)
    stages = Stages()
    options = {"transform": None, "label": None, "labelled": True, "columns": None, "limit": None, "generator": None}
    with stages("data"):
        found = read_rows(str(path), **options, progress=stages.progress)
    assert found.x.shape == (600_000, 2)
    assert found.sha256 == sha256(path)
    shown = [int(text) for text in re.findall(r"data \.\.\. (\d+)%", stream.getvalue())]
    assert len(shown) > 5
    assert shown == sorted(shown)
    assert shown[-1] == 100


def test_the_line_ends_with_the_sum():
    assert seconds_line({"data": 0.5, "shift": 3.0}) == "seconds: data 0.50, shift 3.00; total 3.50"
