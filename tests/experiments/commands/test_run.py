"""The run engine: every record once, failures and kills contained, nothing computed twice."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
import torch

from experiments.__main__ import main
from experiments.commands.collect import collect
from experiments.commands.run import expected_cost
from experiments.commands.status import describe
from experiments.engine.launchers import inline, launchers, local
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
    with directory.claim() as lease:
        assert lease is not None
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
    directory = RunDirectory.of(run, tmp_path)
    directory.path.mkdir(parents=True)
    (directory.path / ".trace.0123").write_text('{"run_id": ')
    assert directory.state() == "missing"
    assert execute(run, runs=tmp_path) == "computed"
    assert not list(directory.path.glob(".trace.*")), "what an earlier attempt left half written goes"


def test_inline_and_local_give_the_same_bits(tmp_path, counter):
    runs = grid(5)
    assert list(inline.launch(runs, runs=tmp_path / "a")) == ["computed"] * 5
    assert list(local.launch(runs, runs=tmp_path / "b", processes=2)) == ["computed"] * 5
    for run in runs:
        one, two = (RunDirectory.of(run, tmp_path / name).record()["metrics"] for name in "ab")
        assert one == two
    assert counter() == 10


def test_a_killed_worker_costs_its_run_alone(tmp_path, counter):
    runs = [*grid(3), *grid(1, mode="kill"), *grid(3, scale=2.0)]
    assert sorted(local.launch(runs, runs=tmp_path, processes=2)) == ["computed"] * 6 + ["failed"]
    states = [RunDirectory.of(run, tmp_path).state() for run in runs]
    assert (states.index("failed"), states.count("done")) == (3, 6)
    assert sorted(local.launch(runs, runs=tmp_path, processes=2)) == ["computed"] + ["done before"] * 6
    assert counter() == 8


def test_the_run_of_a_killed_worker_is_named(tmp_path, counter):
    options = ["mode=[plain,kill]", "wandb=off", "--runs", str(tmp_path), "--launcher", "local", "--processes", "2"]
    done = subprocess.run(command("run", TOY, *options), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    directory = RunDirectory.of(grid(1, mode="kill")[0], tmp_path)
    reason = "the process of the run was killed by SIGKILL, perhaps for lack of memory"
    assert f"failed {directory.path.name}: {reason} (log: {directory.log_path})" in done.stderr
    assert "1 computed, 1 failed" in done.stderr


def test_a_worker_that_is_gone_before_its_next_run_costs_none(tmp_path, counter, monkeypatch):
    give_next = local._give_next

    def give_too_late(connection, worker, waiting):
        worker.process.join()
        return give_next(connection, worker, waiting)

    monkeypatch.setattr(local, "_give_next", give_too_late)
    monkeypatch.setattr(local, "_work", toy.one_run_worker)
    assert list(local.launch(grid(3), runs=tmp_path, processes=1)) == ["computed"] * 3
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
    list(inline.launch([before, large, after], runs=tmp_path))
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
    assert [line.split()[1:] for line in dry.stdout.splitlines()[:2]] == [
        ["missing", "mode=plain"],
        ["missing", "mode=fail"],
    ]
    assert "hours and disk unknown" in dry.stdout.splitlines()[-1]
    assert counter() == 0
    done = subprocess.run(command("run", TOY, *options), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "RuntimeError: seed 0 fails on purpose (log: " in done.stderr
    status = subprocess.run(command("status", TOY, *options), cwd=ROOT, capture_output=True, text=True, check=True)
    assert "1 of 2 done, 1 failed" in status.stdout
    typo = subprocess.run(command("run", TOY, "sede=1"), cwd=ROOT, capture_output=True, text=True, check=False)
    assert "did you mean seed" in typo.stderr
    assert "Traceback" not in typo.stderr


def test_collect_is_sorted_stable_and_keeps_others(tmp_path, counter):
    runs, records = tmp_path / "runs", tmp_path / "records"
    list(inline.launch(grid(4), runs=runs))
    assert collect(runs, records, everything=True) == {TOY: (4, 4, 0, 0)}
    path = records / f"{TOY}.jsonl"
    first = path.read_text()
    assert collect(runs, records, everything=True) == {TOY: (0, 4, 0, 0)}
    assert path.read_text() == first
    assert [record["seed"] for record in read_records(path)] == [0, 1, 2, 3], "sorted by config"
    for record in runs.glob("*/*/record.json"):
        record.unlink()
    list(inline.launch(grid(1, scale=3.0), runs=runs))
    assert collect(runs, records, everything=True) == {TOY: (1, 5, 0, 0)}
    assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.parametrize("launcher", ["inline", "local"])
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_that_cannot_be_written_loses_nothing(small_disk, counter, trouble, launcher):
    store = small_disk / "runs"
    done, waiting = grid(2), grid(3, scale=2.0)
    list(inline.launch(done, runs=store))
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
    assert list(local.launch(runs, runs=tmp_path, processes=1)) == ["failed"]
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

    def killed(path, content):
        path.write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr("pathlib.Path.write_bytes", killed)
    with pytest.raises(KeyboardInterrupt):
        context.save({"step": 2})
    state = context.load()
    assert state["step"] == 1
    assert torch.equal(state["weights"], torch.ones(3))


def test_an_interrupt_while_a_record_is_written_is_not_swallowed(tmp_path, counter, monkeypatch):
    (run,) = grid(1)
    link = os.link

    def interrupted(source, target):
        link(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.engine.leases.os.link", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(run, runs=tmp_path)
    directory = RunDirectory.of(run, tmp_path)
    assert directory.state() == "done"
    assert sorted(path.name for path in directory.path.iterdir() if path.name.startswith(".")) == []


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
    typo, elsewhere = ["--launcher", "slurm", "--cluster", "typo"], ["--cluster", "test"]
    for extra in (typo, elsewhere, ["--wait"], ["--slice", "3/2"], ["--processes", "-1"]):
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
    assert (shown.count(" missing seed="), shown.count(" done    seed=")) == (40, 1)
    assert shown.splitlines()[-1].startswith("40 runs to do in 2 tasks; 0.00 hours")
    finished = command("run", TOY, "seed=0", "--runs", str(tmp_path), "--dry-run", "--launcher", "slurm")
    assert "nothing to do" in subprocess.run(finished, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_options_of_another_launcher_are_refused():
    with pytest.raises(SystemExit, match="--cluster is for --launcher slurm: add that, or leave --cluster out"):
        main(["run", TOY, "--cluster", "cpu", "--dry-run"])
    with pytest.raises(SystemExit, match="--processes is for --launcher local"):
        main(["run", TOY, "--launcher", "slurm", "--processes", "2", "--dry-run"])


def test_every_launcher_has_the_same_doors():
    assert {"inline", "local", "slurm"} <= set(launchers())
    for launcher in launchers().values():
        assert all(callable(getattr(launcher, name)) for name in ("add_arguments", "plan", "launch"))


def test_a_dry_run_shows_what_tells_runs_apart_and_what_they_cost(tmp_path, counter, capsys):
    store = ["--runs", str(tmp_path)]
    main(["run", TOY, "seed=0,1", "wandb=off", *store])
    capsys.readouterr()
    main(["run", TOY, "seed=0,1,2", "layers=2,3", "--launcher", "local", "--processes", "2", "--dry-run", *store])
    *_, cost = lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines[:3]] == [f"missing seed={seed}" for seed in range(3)]
    assert re.fullmatch(r"3 runs to do in 3 tasks; 0\.\d\d hours, 0\.\d\d with 2 at a time; 0\.0 MB of records", cost)


def test_costs_are_those_of_the_same_run_or_the_mean_of_the_profile(tmp_path):
    runs = [*grid(2), *grid(1, scale=2.0)]
    for run, seconds in zip(runs, (10.0, 20.0, 3000.0), strict=True):
        profile = "smoke" if seconds < 100 else "other"
        record = {"run_id": run.run_id, "profile": profile, "seconds": seconds}
        RunDirectory.of(run, tmp_path / "runs").finish(record)
    store = {"runs": tmp_path / "runs", "records": tmp_path}
    assert expected_cost(runs[:1], **store).seconds == 10.0
    assert expected_cost([*runs[:2], *grid(3)[2:]], **store).seconds == 45.0
    assert expected_cost(grid(1), runs=tmp_path / "nowhere", records=tmp_path) is None


def test_an_experiment_refuses_before_anything_is_launched(tmp_path, counter, monkeypatch, capsys):
    def check(config):
        if config.seed == 1:
            raise ValueError("there is no data set of seed 1: fetch it")

    monkeypatch.setattr(toy, "check", check, raising=False)
    options = ["run", TOY, "seed=0,1", "wandb=off", "--runs", str(tmp_path)]
    with pytest.raises(SystemExit, match="cannot run: there is no data set of seed 1: fetch it"):
        main(options)
    assert (counter(), list(tmp_path.glob("*/*"))) == (0, [])
    main([*options, "--dry-run"])
    assert "not ready: tests.experiments.toy cannot run" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["synthetic", "world=nothing"], "there is no world 'nothing'"),
        (["synthetic", "world=blobs_shift", "options={rotatoin: 3}"], "has no field 'rotatoin'"),
        (["synthetic", "world=moons_warp", "options.dim=3"], "has no field 'dim'"),
        (["isolation", "world=blob_shift"], "there is no world 'blob_shift'"),
        (["gate"], "holds no emoji .*data emoji"),
        (["active", "data=nothing"], "nothing.yaml does not exist: data is one of"),
        (["active", "policy=best"], "policy must be one of"),
        (["gate", "candidate.lr=-1"], "lr is -1.0: it must be positive"),
    ],
)
def test_data_worlds_and_keys_are_checked_first(arguments, message, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    with pytest.raises(SystemExit, match=message):
        main(["run", *arguments, "wandb=off", "--runs", str(tmp_path / "runs"), "--launcher", "slurm"])
    assert not (tmp_path / "runs").exists()


def test_empty_runs_cost_next_to_nothing(tmp_path, counter):
    """What is left of a run that computes nothing is the engine's own cost: 300 a second of processor time."""
    list(inline.launch(grid(1, mode="empty"), runs=tmp_path))  # git and imports, once a process
    started = time.process_time()
    assert list(inline.launch(grid(40, mode="empty", scale=2.0), runs=tmp_path)) == ["computed"] * 40
    assert time.process_time() - started < 2


def test_runs_without_submitit(tmp_path, counter):
    code = (
        "import sys; sys.modules['submitit'] = None; from experiments.__main__ import main; "
        f"main(['run', '{TOY}', 'wandb=off', '--slice', '0/1', '--runs', '{tmp_path}'])"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    assert counter() == 1
