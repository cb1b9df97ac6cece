"""The run store: done means a record that reads; what is spoiled or damaged is set aside and computed again."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from experiments.commands.status import describe
from experiments.engine import leases
from experiments.engine.launchers import inline
from experiments.engine.records import ROOT
from experiments.engine.run import execute, threads
from experiments.engine.shared import sealed
from experiments.engine.store import RESERVE, RunDirectory, finished_records
from tests.experiments import toy
from tests.experiments.conftest import fill
from tests.experiments.toy import TOY, grid


def of_another_run(directory):
    (other,) = grid(1, scale=9.0)
    execute(other, runs=directory.path.parents[1])
    return RunDirectory.of(other, directory.path.parents[1]).record_path.read_bytes()


SPOILED = {
    "cut off": lambda d: d.record_path.read_bytes()[:100],
    "empty": lambda d: b"",
    "no text": lambda d: b"\xff\xfe" + d.record_path.read_bytes(),
    "zeros": lambda d: bytes(len(d.record_path.read_bytes())),
    "no record": lambda d: b"[1, 2]\n",
    "another digit": lambda d: d.record_path.read_bytes().replace(b'"scale": 1.0', b'"scale": 1.5'),
    "another run": of_another_run,
}


@pytest.mark.parametrize("damage", SPOILED.values(), ids=SPOILED)
def test_a_spoiled_record_is_not_done_and_is_computed_again(tmp_path, counter, capsys, damage):
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)
    execute(run, runs=tmp_path)
    good = directory.record()
    spoiled = damage(directory)
    directory.record_path.write_bytes(spoiled)
    before = counter()
    assert directory.state() == "spoiled"
    assert "0 of 1 done, 1 spoiled" in describe("toy", [directory])
    assert str(directory.record_path) in describe("toy", [directory]).splitlines()[1]
    assert run.run_id not in [record["run_id"] for record in finished_records(directory.path.parent)]
    capsys.readouterr()
    assert execute(run, runs=tmp_path) == "computed"
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(str(directory.record_path))
    assert said.endswith("`run` sets it aside and computes it again; it is kept as record.spoiled1.json")
    assert counter() == before + 1
    assert directory.record()["metrics"] == good["metrics"]
    assert (directory.path / "record.spoiled1.json").read_bytes() == spoiled


def test_a_record_from_before_digests_counts(tmp_path, counter):
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)
    execute(run, runs=tmp_path)
    record = directory.record()
    assert "digest" in json.loads(directory.record_path.read_text())
    directory.record_path.write_text(json.dumps(record))
    assert directory.state() == "done"
    assert directory.record() == record


def test_a_record_reads_back_whatever_its_keys_and_numbers(tmp_path):
    directory = RunDirectory(tmp_path / "toy" / "abc")
    metrics = {10: -0.0, 9: 1e-320, "é": [np.float32(0.1), float("inf")], "n": 2**70}
    assert directory.finish({"run_id": "abc", "metrics": metrics})
    assert directory.record()["metrics"] == {"10": 0, "9": 1e-320, "é": [0.10000000149011612, None], "n": 2**70}


def test_a_second_record_is_discarded_and_that_is_said(tmp_path, counter, monkeypatch):
    """A run whose lease was deleted, as by a user who took it for a remainder, is computed twice and stored once."""
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)
    honest = toy.run

    def overtaken(config, context):
        monkeypatch.setattr(toy, "run", honest)
        for file in directory.lease_path.iterdir():
            file.unlink()
        assert execute(run, runs=tmp_path) == "computed"
        return {"mean": 0.0}

    monkeypatch.setattr(toy, "run", overtaken)
    assert execute(run, runs=tmp_path) == "done before"
    assert "that one stays, this one is discarded" in directory.log_path.read_text()
    assert directory.record()["metrics"]["mean"] != 0.0
    assert sorted(path.name for path in directory.path.glob("record*")) == ["record.json"]


@pytest.mark.parametrize("ending", ["save", "error"])
def test_a_run_that_has_lost_its_lease_ends_and_leaves_no_failure(tmp_path, counter, monkeypatch, ending):
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)

    def taken_over(config, context):
        for file in directory.lease_path.iterdir():
            file.unlink()
        with directory.claim() as other:
            assert other is not None
            context.lease.beat()
            if ending == "error":
                raise FileNotFoundError("somebody has cleaned up")
            context.save({"step": 1})

    monkeypatch.setattr(toy, "run", taken_over)
    assert execute(run, runs=tmp_path) == "running elsewhere"
    assert not directory.checkpoint_path.exists()
    assert not directory.failure_path.exists()


def test_a_process_that_was_paused_stores_nothing_over_what_was_computed_meanwhile(tmp_path, counter, monkeypatch):
    (run,) = grid(1, mode="steps")
    directory = RunDirectory.of(run, tmp_path)
    command = [sys.executable, "-m", "experiments", "run", TOY, "mode=steps", "wandb=off", "--runs", str(tmp_path)]
    paused = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while not (directory.path / "curves.jsonl").exists():
        assert paused.poll() is None
        threading.Event().wait(0.02)
    paused.send_signal(signal.SIGSTOP)
    holder = leases.look(directory.lease_path)
    assert execute(run, runs=tmp_path) == "running elsewhere", "it may go on at any moment"
    leases._move_out(directory.lease_path, holder)  # as after a minute, for a process on another machine
    monkeypatch.setattr(toy, "take_steps", lambda context: {"steps": -1})
    assert execute(run, runs=tmp_path) == "computed"
    paused.send_signal(signal.SIGCONT)
    said = paused.communicate()[1]
    assert directory.record()["metrics"] == {"steps": -1}
    assert "1 done before" in said or "1 running elsewhere" in said
    assert not list(directory.path.glob("record.*[0-9]*"))


def damaged(content, how):
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    return {"cut": content[:-20], "flip": flipped, "empty": b""}[how]


@pytest.mark.parametrize("how", ["cut", "flip", "empty"])
def test_a_damaged_checkpoint_is_set_aside_and_the_run_starts_again(tmp_path, counter, how):
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)
    path = directory.checkpoint_path
    path.parent.mkdir(parents=True)
    (directory.path / "curves.jsonl").write_text('{"step": 0}\n{"step": 1}\n')
    path.write_bytes(damaged(sealed({"step": 2, "weights": torch.ones(1000)}), how))
    assert execute(run, runs=tmp_path) == "computed"
    log = directory.log_path.read_text()
    assert f"{path} was damaged and is kept as checkpoint.damaged.pt: the run starts again" in log
    steps = [json.loads(line)["step"] for line in (directory.path / "curves.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2]
    assert (directory.path / "checkpoint.damaged.pt").exists()


def test_a_checkpoint_and_its_name_are_on_the_disk_before_the_run_goes_on(new_context, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda handle: (synced.append(os.readlink(f"/proc/self/fd/{handle}")), fsync(handle))
    )
    context = new_context()
    context.save({"step": 1})
    aside, folder = synced
    assert ".trace." in aside
    assert folder == str(context.directory.path)


@pytest.mark.parametrize("launcher", ["inline", "local"])
def test_on_a_full_disk_no_further_run_is_computed(small_disk, counter, launcher):
    """Small files still fit, a record does not: config and lease alone would not show it."""
    store, ballast = small_disk / "runs", small_disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - RESERVE // 2))
    options = [TOY, "seed=[0,1,2]", "wandb=off", "--runs", str(store), "--launcher", launcher]
    command = [sys.executable, "-m", "experiments", "run", *options]
    stopped = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert stopped.returncode == 1
    (sentence,) = [line for line in stopped.stderr.splitlines() if "cannot be written" in line]
    assert "free space or permissions, then call the same command again" in sentence
    assert "Traceback" not in stopped.stderr
    assert counter() == 0


def test_a_record_is_stored_although_the_disk_fills_while_it_is_computed(small_disk, counter, monkeypatch):
    (run,) = grid(1)

    def filling(config, context):
        fill(small_disk / "ballast")
        return {"values": list(range(10_000))}

    monkeypatch.setattr(toy, "run", filling)
    assert list(inline.launch([run], runs=small_disk / "runs")) == ["computed"]
    assert RunDirectory.of(run, small_disk / "runs").state() == "done"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_is_full_at_the_end_stops_the_launcher(tmp_path, counter, monkeypatch, number):
    def full(path, content):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("experiments.engine.store.store_once", full)
    with pytest.raises(OSError, match=os.strerror(number)):
        list(inline.launch(grid(3), runs=tmp_path))
    assert counter() == 1
    assert not list(tmp_path.glob("*/*/.trace.*"))


def test_threads_follow_the_cores_of_the_task_but_for_the_committed_profile(tmp_path, counter, monkeypatch):
    (small,), (paper,), (cpu,) = grid(1), grid(1, profile="paper"), grid(1, profile="cpu")
    assert [threads(run) for run in (small, paper, cpu)] == [1, 1, 1]
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "2")
    assert [threads(run) for run in (paper, cpu)] == [2, 1]
    before = torch.get_num_threads()
    for run in (paper, cpu):
        execute(run, runs=tmp_path)
    torch.set_num_threads(before)
    assert [RunDirectory.of(run, tmp_path).record()["threads"] for run in (paper, cpu)] == [2, 1]
