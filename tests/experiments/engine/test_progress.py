"""Progress: a bar on a terminal, a line now and then elsewhere, and the outcomes pass through."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

from experiments.engine import progress
from experiments.engine.records import ROOT

CODE = "from experiments.engine.progress import progress_bar; print(list(progress_bar(iter(['done'] * 3), 3, 'toy')))"


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    assert list(progress.progress_bar(iter(["done", "failed"]), 4, "toy")) == ["done", "failed"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("toy: 1 of 4 (1 done), 0 min left")
    assert lines[1].startswith("toy: 2 of 4 (1 done, 1 failed)")


def test_quiet_within_the_minute(capsys):
    assert list(progress.progress_bar(iter(["done"]), 1, "toy")) == ["done"]
    assert capsys.readouterr().err == ""


def test_batches_are_counted_from_where_an_earlier_attempt_stopped(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    batches = [["image"] * 4, ["image"] * 2]
    assert list(progress.batch_progress_bar(iter(batches), 12, "toy", "image", done=6)) == batches
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("toy: 10 of 12 images, 0 min left")
    assert lines[1].startswith("toy: 12 of 12 images")


def test_a_bar_on_a_terminal():
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, stderr=slave, stdout=subprocess.PIPE, check=True)
    os.close(slave)
    shown = os.read(master, 100_000).decode()
    os.close(master)
    assert "3/3" in shown
    assert "toy: 100%" in shown
    assert done.stdout.decode().strip() == "['done', 'done', 'done']"


def test_bytes_of_a_download_pass_through(capsys, monkeypatch):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    chunks = [bytes(1_000_000), bytes(2_000_000)]
    assert list(progress.batch_progress_bar(iter(chunks), 8_000_000, "real.zip", "B", done=5_000_000)) == chunks
    assert capsys.readouterr().err.splitlines() == [
        "real.zip: 6 of 8 MB, 0 min left",
        "real.zip: 8 of 8 MB, 0 min left",
    ]
    assert list(progress.batch_progress_bar(iter(chunks[:1]), None, "x", "B")) == chunks[:1]
    assert capsys.readouterr().err == "x: 1 MB\n"
