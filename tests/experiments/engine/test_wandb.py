"""W&B offline: what its own messages say equals the record; its failures cost nothing."""

import argparse
import json
import struct
import subprocess
import sys
import time

import pytest

from experiments.commands import publish, sync
from experiments.engine.config import Run
from experiments.engine.errors import UserError
from experiments.engine.launchers import local
from experiments.engine.records import ROOT
from experiments.engine.run import execute
from experiments.engine.store import RunDirectory
from tests.experiments import toy

TOY = "tests.experiments.toy"
BLOCK = 32 * 1024


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_COUNTER", str(tmp_path / "counter"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # no stored login


def messages(path):
    """The protobuf records of a finished .wandb file, whose last ones W&B writes a moment after `finish` returns."""
    deadline = time.monotonic() + 20
    while True:
        found = list(parsed(path))
        if any(message.HasField("exit") for message in found):
            return found
        assert time.monotonic() < deadline, f"{path} was not finished"
        time.sleep(0.05)


def parsed(path):
    """What is there of a .wandb file: after a 7-byte header, a LevelDB log of 32 KB blocks."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, position, parts = path.read_bytes(), 7, []
    while position + 7 <= len(data):
        if BLOCK - position % BLOCK < 7:
            position += BLOCK - position % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        if position + 7 + length > len(data):
            return
        parts.append(data[position + 7 : position + 7 + length])
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            yield record


def key_of(item):
    return item.key or item.nested_key[0]


def test_offline_files_hold_config_curves_and_summary(tmp_path):
    run = Run(TOY, toy.Config(seed=3, scale=2.0))
    assert execute(run, runs=tmp_path, wandb="auto") == "computed"
    directory = RunDirectory.of(run, tmp_path)
    (folder,) = sync.unsynced(tmp_path)[0]
    (path,) = folder.glob("*.wandb")
    found = list(messages(path))
    (started,) = [m.run for m in found if m.HasField("run")][:1]
    assert (started.run_id, started.run_group, started.project) == (run.run_id, TOY, "trace")
    config = {item.key: json.loads(item.value_json) for item in started.config.update}
    assert {key: config[key] for key in run.values} == run.values
    history = [{key_of(i): json.loads(i.value_json) for i in m.history.item} for m in found if m.HasField("history")]
    assert [(h["_step"], h["loss"]) for h in history] == [(0, 2.0), (1, 1.0), (2, 2.0 / 3)]
    summary = {key_of(i): i.value_json for m in found if m.HasField("summary") for i in m.summary.update}
    assert json.loads(summary["mean"]) == directory.record()["metrics"]["mean"]
    curves = [json.loads(line) for line in (directory.path / "curves.jsonl").read_text().splitlines()]
    assert [c["loss"] for c in curves] == [2.0, 1.0, 2.0 / 3]


def test_off_writes_nothing(tmp_path):
    execute(Run(TOY, toy.Config()), runs=tmp_path, wandb="off")
    assert sync.unsynced(tmp_path) == ([], [])


def history(folder):
    """The steps and losses that an offline folder holds."""
    (path,) = folder.glob("*.wandb")
    points = [{key_of(i): json.loads(i.value_json) for i in m.history.item} for m in messages(path)]
    return [(point["_step"], point["loss"]) for point in points if point]


def test_a_failed_run_is_closed_as_failed(tmp_path):
    assert execute(Run(TOY, toy.Config(mode="fail")), runs=tmp_path, wandb="offline") == "failed"
    (folder,), _ = sync.unsynced(tmp_path)
    (path,) = folder.glob("*.wandb")
    assert [m.exit.exit_code for m in messages(path) if m.HasField("exit")] == [1]


@pytest.mark.parametrize("broken", ["init", "login"])
def test_a_run_that_cannot_be_logged_online_is_logged_offline(tmp_path, monkeypatch, broken):
    import wandb

    init = wandb.init

    def refuse(*args, **kwargs):
        if kwargs.get("mode") == "offline":
            return init(*args, **kwargs)
        raise ConnectionError("no route to host")

    monkeypatch.setattr(wandb, "login", lambda **kwargs: True)
    monkeypatch.setattr(wandb, broken, refuse)
    run = Run(TOY, toy.Config(seed=1))
    assert execute(run, runs=tmp_path, wandb="auto") == "computed"
    assert "W&B cannot be reached (no route to host)" in RunDirectory.of(run, tmp_path).log_path.read_text()
    (folder,), _ = sync.unsynced(tmp_path)
    assert len(history(folder)) == 3


def test_only_the_last_attempt_is_sent_and_it_is_complete(tmp_path, monkeypatch):
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # the worker has its own, as under the real launcher
    run = Run(TOY, toy.Config(mode="kill"))
    assert list(local.launch([run], runs=tmp_path, wandb="offline")) == ["failed"]
    time.sleep(1)  # W&B names folders by the second
    assert execute(run, runs=tmp_path, wandb="offline") == "computed"
    home = RunDirectory.of(run, tmp_path).path
    assert len(list(home.glob("wandb/offline-run-*"))) == 2
    (folder,), _ = sync.unsynced(tmp_path)
    assert history(folder) == [(0, 1.0), (1, 0.5), (2, 1 / 3)]


def test_runs_in_progress_are_left_for_later(tmp_path, monkeypatch, capsys):
    run = Run(TOY, toy.Config())
    execute(run, runs=tmp_path, wandb="offline")
    monkeypatch.setattr(sync, "upload", lambda folder: True)
    with RunDirectory.of(run, tmp_path).claim():
        sync.main(argparse.Namespace(runs=tmp_path))
    sync.main(argparse.Namespace(runs=tmp_path))
    assert capsys.readouterr().out == (
        "0 uploaded, 0 failed, 1 still running and left for later\n1 uploaded, 0 failed\n"
    )


def test_a_failure_of_wandb_costs_nothing(tmp_path, monkeypatch):
    import wandb

    def fail(*args, **kwargs):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(wandb, "init", fail)
    run = Run(TOY, toy.Config(seed=1))
    assert execute(run, runs=tmp_path, wandb="auto") == "computed"
    assert (
        "warning: W&B failed while starting (no route to host)" in RunDirectory.of(run, tmp_path).log_path.read_text()
    )


def test_a_failure_while_logging_costs_nothing(tmp_path, monkeypatch):
    import wandb

    class Broken:
        def log(self, *args, **kwargs):
            raise OSError("disk gone")

    monkeypatch.setattr(wandb, "init", lambda **kwargs: Broken())
    run = Run(TOY, toy.Config(seed=1))
    assert execute(run, runs=tmp_path, wandb="offline") == "computed"
    assert RunDirectory.of(run, tmp_path).log_path.read_text().count("W&B failed while logging") == 1


def test_sync_sends_each_folder_once(tmp_path, monkeypatch, capsys):
    folders = [tmp_path / "toy" / name / "wandb" / f"offline-run-1-{name}" for name in "ab"]
    for folder in folders:
        folder.mkdir(parents=True)
    sent = []

    def upload(folder):
        sent.append(folder)
        (folder / "run.wandb.synced").touch()
        return True

    monkeypatch.setattr(sync, "upload", upload)
    for _ in range(2):
        sync.main(argparse.Namespace(runs=tmp_path))
    assert sent == folders
    assert capsys.readouterr().out == "2 uploaded, 0 failed\n0 uploaded, 0 failed\n"


def test_sync_without_a_login_says_what_to_do(tmp_path):
    execute(Run(TOY, toy.Config()), runs=tmp_path, wandb="offline")
    command = [sys.executable, "-m", "experiments", "sync", "--runs", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "0 uploaded, 1 failed" in done.stdout
    assert "wandb login" in done.stderr
    assert len(sync.unsynced(tmp_path)[0]) == 1


def test_command_line_mode_is_no_config_key():
    command = [sys.executable, "-m", "experiments", "run", TOY, "wandb=never"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "wandb must be one of auto, offline, off, got 'never'" in done.stderr


def test_publish_stores_tables_and_figures(tmp_path, capsys):
    for name in ("tables/a.md", "figures/b.png"):
        path = tmp_path / "results" / name
        path.parent.mkdir(parents=True)
        path.write_text("x")
    publish.main(argparse.Namespace(results=tmp_path / "results", runs=tmp_path / "runs"))
    assert "2 files as artifact 'results' (offline)" in capsys.readouterr().out
    (folder,), _ = sync.unsynced(tmp_path / "runs")
    (path,) = folder.glob("*.wandb")
    (artifact,) = [m.artifact for m in messages(path) if m.HasField("artifact")]
    assert artifact.name == "results"
    assert sorted(entry.path for entry in artifact.manifest.contents) == ["figures/b.png", "tables/a.md"]
    with pytest.raises(UserError, match="holds no tables or figures"):
        publish.main(argparse.Namespace(results=tmp_path / "nothing", runs=tmp_path / "runs"))
