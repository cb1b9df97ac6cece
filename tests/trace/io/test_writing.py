"""Files are written whole or not at all, links, pipes and modes stay as they are, and JSON has no NaN."""

import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from trace.io.writing import replacement, strict_json, write_atomically

ROOT = Path(__file__).resolve().parents[3]


def test_files_and_errors_need_no_torch():
    """Commands that only look at files start at once."""
    code = "import sys, trace.io.{0}; assert 'torch' not in sys.modules"
    names = ("errors", "writing", "checksum", "splits")
    subprocess.run([sys.executable, "-c", "\n".join(map(code.format, names))], cwd=ROOT, check=True)


def mode(path):
    return path.stat().st_mode & 0o777


def test_undefined_numbers_are_null():
    stored = strict_json({"a": math.nan, "b": [math.inf, 1.5], "c": (0.5, {"d": -math.inf})})
    assert json.loads(stored) == {"a": None, "b": [None, 1.5], "c": [0.5, {"d": None}]}


def test_scalars_become_plain_and_keys_stand_in_order():
    value = {"b": np.float64("nan"), "a": [np.int64(3), torch.tensor(0.5)], 2: True}
    assert strict_json(value) == '{\n  "b": null,\n  "a": [\n    3,\n    0.5\n  ],\n  "2": true\n}'
    assert strict_json({"b": 1, "a": 2}, indent=None, sort_keys=True) == '{"a": 2, "b": 1}'
    with pytest.raises(TypeError, match="not JSON serializable"):
        strict_json({"a": object()})


@pytest.mark.parametrize("sync", [True, False])
def test_a_text_replaces_another_and_makes_its_folder(tmp_path, sync):
    path = tmp_path / "deep" / "page.txt"
    for text in ("old", "new, \u00e9"):
        write_atomically(path, text, sync=sync)
        assert path.read_text(encoding="utf-8") == text
    assert os.listdir(path.parent) == ["page.txt"]


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "page.txt"
    write_atomically(path, "old")

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.txt"]
    write_atomically(path, "new", sync=False)
    assert path.read_text() == "new"


def test_an_interrupted_block_leaves_nothing(tmp_path):
    def interrupted(aside):
        aside.write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), replacement(tmp_path / "model.pt") as aside:
        interrupted(aside)
    assert not any(tmp_path.iterdir())


def test_readers_see_the_old_file_until_the_block_ends(tmp_path):
    path = tmp_path / "page.txt"
    path.write_text("old")
    with replacement(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_file_keeps_its_mode_and_a_new_one_has_that_of_any_new_file(tmp_path):
    (tmp_path / "kept").touch(mode=0o600)
    before = os.umask(0o027)
    try:
        for name in ("kept", "new"):
            with replacement(tmp_path / name) as aside:
                aside.write_text("text")
                assert mode(aside) & ~mode(tmp_path / "kept") == (0 if name == "kept" else 0o040)
    finally:
        os.umask(before)
    assert (mode(tmp_path / "kept"), mode(tmp_path / "new")) == (0o600, 0o640)


def test_links_and_pipes_stay_what_they_are(tmp_path):
    target, link, pipe, received = tmp_path / "a" / "file", tmp_path / "link", tmp_path / "pipe", []
    write_atomically(target, "old")
    link.symlink_to(target)
    write_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "through", sync=False)
    reader.join(10)
    assert received == ["through"]
    assert pipe.is_fifo()
