"""The run engine: every record once, failures and kills contained, nothing computed twice."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from experiments.commands.collect import collect
from experiments.commands.run import inline
from experiments.commands.status import describe
from experiments.engine import store
from experiments.engine.launchers import local as workers
from experiments.engine.launchers.local import local
from experiments.engine.records import ROOT, read_records
from experiments.engine.run import Context, execute
from experiments.engine.store import RunDirectory
from experiments.engine.wandb import Tracker
from tests.experiments import toy
from tests.experiments.conftest import fill
from tests.experiments.toy import TOY, grid


def command(*arguments):
    return [sys.executable, "-m", "experiments", *arguments]


def test_a_record_holds_result_and_origin(tmp_path, counter):
    (run,) = grid(1)
    assert execute(run, runs=tmp_path) == "computed"
    record = RunDirectory.of(run, tmp_path).record()
    assert record["metrics"]["undefined"] is None
    assert record["config"] == run.values
    assert (record["run_id"], record["seed"], record["profile"]) == (run.run_id, 0, "smoke")
    assert record["seconds"] >= 0
    assert record["peak_bytes"] > 1e6
    assert (record["gpu_peak_bytes"] is None) == (not torch.cuda.is_available())
    assert record["device"]
    assert len(record["git_commit"]) == 40
    assert "hello from 0" in RunDirectory.of(run, tmp_path).log_path.read_text()
    assert (RunDirectory.of(run, tmp_path).path / "config.yaml").exists()


def test_a_finished_run_is_never_computed_again(tmp_path, counter):
    (run,) = grid(1)
    first = [execute(run, runs=tmp_path) for _ in range(3)]
    assert first == ["computed", "done before", "done before"]
    assert counter() == 1


def test_force_computes_again_and_keeps_the_old_record(tmp_path, counter):
    options = [TOY, "wandb=off", "--runs", str(tmp_path)]
    for extra in ([], ["--force"]):
        subprocess.run(command("run", *options, *extra), cwd=ROOT, check=True, capture_output=True)
    assert counter() == 2
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)
    previous = json.loads((directory.path / "record.previous1.json").read_text())
    assert previous["metrics"] == directory.record()["metrics"]


def test_a_run_that_is_held_is_left_alone(tmp_path, counter):
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)
    with directory.claim() as claimed:
        assert claimed
        assert directory.state() == "running"
        assert execute(run, runs=tmp_path) == "running elsewhere"
    assert directory.state() == "missing"
    assert counter() == 0


def test_a_failure_is_kept_with_its_reason_and_tried_again(tmp_path, counter):
    (run,) = grid(1, mode="fail")
    directory = RunDirectory.of(run, tmp_path)
    assert execute(run, runs=tmp_path) == "failed"
    assert directory.state() == "failed"
    assert "seed 0 fails on purpose" in describe("toy", [directory])
    assert execute(run, runs=tmp_path) == "failed"
    assert counter() == 2


def test_half_written_records_do_not_count(tmp_path, counter, monkeypatch):
    (run,) = grid(1)

    def full_disk(path, text):
        if path.name == "record.json":
            path.with_name(".record.json.tmp").write_text(text[:10])
            raise OSError(28, "No space left on device")
        store_write(path, text)

    store_write = store.write_atomically
    monkeypatch.setattr(store, "write_atomically", full_disk)
    assert execute(run, runs=tmp_path) == "failed"
    assert "No space left" in RunDirectory.of(run, tmp_path).failure_path.read_text()
    monkeypatch.undo()
    os.environ["TOY_COUNTER"] = str(tmp_path / "counter")
    assert execute(run, runs=tmp_path) == "computed"


def test_inline_and_local_give_the_same_bits(tmp_path, counter):
    runs = grid(5)
    assert list(inline(runs, runs=tmp_path / "a")) == ["computed"] * 5
    assert list(local(runs, runs=tmp_path / "b", processes=2)) == ["computed"] * 5
    for run in runs:
        one, two = (RunDirectory.of(run, tmp_path / name).record()["metrics"] for name in "ab")
        assert one == two
    assert counter() == 10


def test_a_killed_worker_costs_its_run_alone(tmp_path, counter):
    runs = [*grid(3), *grid(1, mode="kill"), *grid(3, scale=2.0)]
    assert sorted(local(runs, runs=tmp_path, processes=2)) == ["computed"] * 6 + ["failed"]
    states = [RunDirectory.of(run, tmp_path).state() for run in runs]
    assert (states.index("failed"), states.count("done")) == (3, 6)
    assert sorted(local(runs, runs=tmp_path, processes=2)) == ["computed"] + ["done before"] * 6
    assert counter() == 8


def test_the_run_of_a_killed_worker_is_named(tmp_path, counter):
    options = ["mode=[plain,kill]", "wandb=off", "--runs", str(tmp_path), "--launcher", "local", "--processes", "2"]
    done = subprocess.run(command("run", TOY, *options), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    directory = RunDirectory.of(grid(1, mode="kill")[0], tmp_path)
    reason = "the worker process was killed by SIGKILL, perhaps for lack of memory"
    assert f"failed {directory.path.name}: {reason} (log: {directory.log_path})" in done.stderr
    assert "1 computed, 1 failed" in done.stderr


def test_a_worker_that_is_gone_before_its_next_run_costs_none(tmp_path, counter, monkeypatch):
    give_next = workers._give_next

    def give_too_late(connection, worker, waiting):
        worker.process.join()
        return give_next(connection, worker, waiting)

    monkeypatch.setattr(workers, "_give_next", give_too_late)
    monkeypatch.setattr(workers, "_work", toy.one_run_worker)
    assert list(local(grid(3), runs=tmp_path, processes=1)) == ["computed"] * 3
    assert counter() == 3


def test_runs_of_another_launcher_are_said_plainly(tmp_path, counter):
    held, free = grid(2)
    options = ["seed=[0,1]", "wandb=off", "--runs", str(tmp_path)]
    with RunDirectory.of(held, tmp_path).claim():
        done = subprocess.run(command("run", TOY, *options), cwd=ROOT, capture_output=True, text=True, check=True)
    assert "1 of these runs are being computed by another launcher" in done.stderr
    assert RunDirectory.of(free, tmp_path).state() == "done"


def test_peak_memory_is_the_run_s_own(tmp_path, counter):
    before, large, after = [*grid(1), *grid(1, mode="memory"), *grid(1, scale=2.0)]
    list(inline([before, large, after], runs=tmp_path))
    base, peak, later = (RunDirectory.of(run, tmp_path).record()["peak_bytes"] for run in (before, large, after))
    assert peak > base + 150e6
    assert later < base + 50e6


def test_two_launchers_at_once_do_no_run_twice(tmp_path, counter):
    options = ["seed=[0,1,2,3,4,5]", "mode=slow", "wandb=off", "--runs", str(tmp_path / "runs")]
    launchers = [
        subprocess.Popen(command("run", TOY, *options), cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    errors = [launcher.communicate()[1] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0], errors
    assert counter() == 6
    again = subprocess.run(command("run", TOY, *options), cwd=ROOT, capture_output=True, text=True, check=True)
    assert "6 runs, 6 done before" in again.stderr
    assert counter() == 6


def test_interrupt_keeps_what_is_finished(tmp_path, counter):
    options = ["seed=[0,1,2,3,4,5,6,7]", "mode=slow", "wandb=off", "--runs", str(tmp_path / "runs")]
    launcher = subprocess.Popen(command("run", TOY, *options), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while counter() < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    launcher.send_signal(2)
    assert "the same command goes on with the rest" in launcher.communicate()[1]
    finished = len(list((tmp_path / "runs").glob("*/*/record.json")))
    assert 2 <= finished < 8


def test_command_line_reports_failures(tmp_path, counter):
    options = ["mode=[plain,fail]", "--runs", str(tmp_path / "runs")]
    dry = subprocess.run(
        command("run", TOY, *options, "--dry-run"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert dry.stdout.count("missing") == 2
    assert counter() == 0
    done = subprocess.run(command("run", TOY, *options), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: seed 0 fails on purpose (log: " in done.stderr
    status = subprocess.run(command("status", TOY, *options), cwd=ROOT, capture_output=True, text=True, check=True)
    assert "1 done, 1 failed" in status.stdout
    typo = subprocess.run(command("run", TOY, "sede=1"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert "did you mean seed" in typo.stderr
    assert "Traceback" not in typo.stderr


def test_collect_is_sorted_stable_and_keeps_others(tmp_path, counter):
    runs, records = tmp_path / "runs", tmp_path / "records"
    list(inline(grid(4), runs=runs))
    assert collect(runs, records) == {TOY: (4, 4, 0)}
    path = records / f"{TOY}.jsonl"
    first = path.read_text()
    assert collect(runs, records) == {TOY: (0, 4, 0)}
    assert path.read_text() == first
    ids = [record["run_id"] for record in read_records(path)]
    assert ids == sorted(ids)
    for record in runs.glob("*/*/record.json"):
        record.unlink()
    list(inline(grid(1, scale=3.0), runs=runs))
    assert collect(runs, records) == {TOY: (1, 5, 0)}
    assert all(json.loads(line) for line in path.read_text().splitlines())


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

    monkeypatch.setattr("experiments.engine.records.os.replace", interrupted)
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
    from experiments.engine.records import provenance

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
