"""The run engine in trouble: full disks, checkpoints, interrupts, odd files, bad options, missing programs."""

import json
import os
import subprocess
import sys

import pytest
import torch

from experiments.execute import Context, execute
from experiments.launch import inline
from experiments.records import ROOT
from experiments.store import RunDirectory
from experiments.tracking import Tracker
from experiments.workers import local
from tests.experiments import toy
from tests.experiments.conftest import fill
from tests.experiments.test_launch import command
from tests.experiments.toy import TOY, grid


@pytest.mark.parametrize("launcher", ["inline", "local"])
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_that_cannot_be_written_loses_nothing(small_disk, counter, trouble, launcher):
    store = small_disk / "runs"
    done, waiting = grid(2), grid(3, scale=2.0)
    list(inline(done, runs=store))
    ballast = small_disk / "ballast"
    if trouble == "full":
        fill(ballast)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    options = [TOY, "seed=[0,1,2]", "scale=2", "wandb=off", "--runs", str(store), "--launcher", launcher]
    stopped = subprocess.run(command("run", *options), cwd=ROOT, capture_output=True, text=True, check=False)
    assert stopped.returncode == 1
    assert "the run store cannot be written" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert [RunDirectory.of(run, store).record()["seed"] for run in done] == [0, 1]
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    ballast.unlink(missing_ok=True)
    subprocess.run(command("run", *options), cwd=ROOT, check=True, capture_output=True)
    assert [RunDirectory.of(run, store).state() for run in [*done, *waiting]] == ["done"] * 5


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path, counter):
    runs = grid(1, mode="kill")
    directory = RunDirectory.of(runs[0], tmp_path)
    assert list(local(runs, runs=tmp_path, processes=1)) == ["failed"]
    assert directory.checkpoint_path.exists()
    assert execute(runs[0], runs=tmp_path) == "computed"
    curves = [json.loads(line) for line in (directory.path / "curves.jsonl").read_text().splitlines()]
    assert [point["step"] for point in curves] == [0, 1, 2]  # none twice
    assert not directory.checkpoint_path.exists()


def test_a_checkpoint_is_replaced_whole(tmp_path, monkeypatch):
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)
    directory.path.mkdir(parents=True)
    context = Context(directory, Tracker(run, directory, "off"))
    assert context.load() is None
    context.save({"step": 1, "weights": torch.ones(3)})

    def killed(state, path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        context.save({"step": 2})
    state = context.load()
    assert state["step"] == 1
    assert torch.equal(state["weights"], torch.ones(3))


def test_an_interrupt_while_a_record_is_written_is_not_swallowed(tmp_path, counter, monkeypatch):
    (run,) = grid(1)
    replace = os.replace

    def interrupted(source, target):
        replace(source, target)
        if str(target).endswith("record.json"):
            raise KeyboardInterrupt

    monkeypatch.setattr("experiments.records.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(run, runs=tmp_path)
    assert RunDirectory.of(run, tmp_path).state() == "done"


def test_the_end_of_a_task_is_no_failure_of_its_run(tmp_path, counter, monkeypatch):
    from submitit.core.utils import UncompletedJobError

    def ended(config, context):
        raise UncompletedJobError("timed-out too many times")

    monkeypatch.setattr(toy, "run", ended)
    (run,) = grid(1)
    with pytest.raises(UncompletedJobError):
        execute(run, runs=tmp_path)
    assert RunDirectory.of(run, tmp_path).state() == "missing"


def test_numpy_and_torch_scalars_are_stored(tmp_path, counter, monkeypatch):
    import numpy as np

    monkeypatch.setattr(toy, "run", lambda *_: {"a": np.float32(1.5), "b": torch.tensor(2), "c": np.float64("nan")})
    (run,) = grid(1)
    assert execute(run, runs=tmp_path) == "computed"
    assert RunDirectory.of(run, tmp_path).record()["metrics"] == {"a": 1.5, "b": 2, "c": None}


def test_a_machine_without_git_still_gives_records(tmp_path, counter, monkeypatch):
    from experiments.records import provenance

    provenance.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    (run,) = grid(1)
    assert execute(run, runs=tmp_path) == "computed"
    record = RunDirectory.of(run, tmp_path).record()
    assert record["git_commit"] is None
    assert record["git_dirty"] is None
    provenance.cache_clear()


def test_odd_files_do_not_stop_status_and_collect(tmp_path, counter):
    (run,) = grid(1, mode="fail")
    execute(run, runs=tmp_path / "runs")
    directory = RunDirectory.of(run, tmp_path / "runs")
    directory.failure_path.write_text("")
    (directory.path / "job.txt").write_text("")
    (directory.path.parent / "stray.txt").touch()
    options = {"cwd": ROOT, "capture_output": True, "text": True, "check": False}
    status = subprocess.run(command("status", "--runs", str(tmp_path / "runs")), **options)
    assert "no reason was stored" in status.stdout
    directory.record_path.write_text('{"run_id": ')
    places = ["--runs", str(tmp_path / "runs"), "--records", str(tmp_path / "records")]
    collected = subprocess.run(command("collect", *places), **options)
    assert "record.json is not a record" in collected.stderr
    assert "Traceback" not in collected.stderr
    empty = subprocess.run(command("collect", "--runs", str(tmp_path / "nothing")), **options)
    assert "no finished runs" in empty.stdout
    idle = subprocess.run(command("status", "--runs", str(tmp_path / "nothing")), **options)
    assert "`python -m experiments run EXPERIMENT` computes some" in idle.stdout


def test_bad_options_are_refused_before_anything_is_touched(tmp_path, counter):
    options = [TOY, "wandb=off", "--runs", str(tmp_path)]
    subprocess.run(command("run", *options), cwd=ROOT, check=True, capture_output=True)
    for extra in (["--launcher", "slurm", "--profile", "typo"], ["--slice", "3/2"], ["--processes", "-1"]):
        done = subprocess.run(
            command("run", *options, "--force", *extra), cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert "Traceback" not in done.stderr
    assert counter() == 1
    assert RunDirectory.of(grid(1)[0], tmp_path).state() == "done"


def test_a_dry_run_shows_what_is_still_to_do_where_there_is_no_slurm(tmp_path, counter, monkeypatch):
    done, *_ = runs = grid(41)
    execute(done, runs=tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    options = [f"seed=[{','.join(str(run.config.seed) for run in runs)}]", "--runs", str(tmp_path), "--dry-run"]
    shown = subprocess.run(
        command("run", TOY, *options, "--launcher", "slurm"), cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "#SBATCH --array=0-1%2" in shown  # 40 runs, 20 a task
    assert (shown.count(" missing {"), shown.count(" done {")) == (40, 1)
    finished = command("run", TOY, "seed=0", "--runs", str(tmp_path), "--dry-run", "--launcher", "slurm")
    assert "nothing to do" in subprocess.run(finished, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_runs_without_submitit(tmp_path, counter):
    code = (
        "import sys; sys.modules['submitit'] = None; from experiments.__main__ import main; "
        f"main(['run', '{TOY}', 'wandb=off', '--slice', '0/1', '--runs', '{tmp_path}'])"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert counter() == 1
