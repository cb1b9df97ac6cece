"""Tasks that die on a real one-node cluster say why, are submitted again within limits, and run the submitted code."""

import json
import os
import re
import shutil
import signal
import subprocess

import pytest

from experiments.commands.status import describe
from experiments.engine.deaths import note_death, refusal
from experiments.engine.launchers import slurm
from experiments.engine.launchers.slurm import Cluster, submit
from experiments.engine.records import ROOT
from experiments.engine.scheduler import TaskEnding, endings, queue_states
from experiments.engine.store import Job, RunDirectory
from experiments.engine.submitted import code_digest, code_files, keep_tree
from tests.experiments.cluster import CLUSTER, fake, states, until
from tests.experiments.engine.launchers.test_slurm_trouble import launcher
from tests.experiments.toy import grid


def call(command, cwd=ROOT):
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def task_process(job):
    """The process of a task that starts the runs: the parent of the one that holds a lease."""
    with open(f"/proc/{job}/stat", encoding="utf-8") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def test_a_killed_task_says_why_and_is_submitted_again(cluster, tmp_path, computed):
    """Not its run alone: the process that starts the runs of a pack."""
    store, runs = tmp_path / "runs", grid(3, mode="steps")
    jobs = submit(runs, CLUSTER, runs=store)
    directories = [RunDirectory.of(run, store) for run in runs]
    until(lambda: directories[0].holder())
    os.kill(task_process(directories[0].holder().pid), signal.SIGKILL)
    until(lambda: not queue_states(jobs) and not any(directory.holder() for directory in directories))
    (line,) = [line for line in describe("toy", directories).splitlines() if line.startswith(f"  task {jobs[0]} ")]
    assert re.search(r"was killed by SIGKILL, perhaps for lack of memory: 3 runs are missing \(log: ", line)
    again = call(launcher(store, "seed=[0,1,2]", "mode=steps", "--wait"))
    assert again.returncode == 0, again.stderr
    assert states(runs, store) == {"done": 3}
    assert read_deaths(directories[0]) == [(jobs[0], "FAILED")]


def read_deaths(directory):
    lines = (directory.path / "deaths.jsonl").read_text().splitlines()
    return [(death["job"], death["state"]) for death in map(json.loads, lines)]


def test_a_task_that_runs_out_of_memory_is_not_submitted_blindly(cluster, tmp_path, computed, monkeypatch):
    """SLURM kills the step, calls the job FAILED and says why in the log alone; the run that took it is to blame."""
    store, (hog, bystander) = tmp_path / "runs", (*grid(1, mode="hog"), *grid(1))
    small = Cluster(partition="normal", minutes=5, signal_seconds=5, mem="1200MB", runs_per_task=2)
    monkeypatch.setattr(slurm, "load_cluster", lambda _: small)
    (outcome, other) = slurm.launch([hog, bystander], runs=store, wait=True)
    assert (outcome, other) == ("failed", "computed")
    directory = RunDirectory.of(hog, store)
    assert re.search(r"task \d+\S* ran out of memory \(log: .*\): raise mem=1200MB in", directory.reason())
    assert [state for _, state in read_deaths(directory)] == ["OUT_OF_MEMORY"]
    assert [state for _, state in read_deaths(RunDirectory.of(bystander, store))] == ["BYSTANDER"]
    assert sum(computed().values()) == 2


def test_one_call_that_waits_submits_again_what_was_killed(cluster, tmp_path, computed):
    """The second attempt goes on from the checkpoint of the first."""
    done = call(launcher(tmp_path, "seed=[0,1]", "mode=[kill,plain]", "--wait"))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"runs in 1 tasks of array", done.stderr)) == 2
    assert "4 computed" in done.stderr
    assert sum(computed().values()) == 6


def test_runs_that_are_queued_are_not_submitted_twice(cluster, tmp_path, computed, monkeypatch):
    fake(tmp_path, monkeypatch, "sbatch", f'exec {shutil.which("sbatch")} --hold "$@"')
    command = launcher(tmp_path / "runs", "seed=[0,1,2]")
    first = call(command)
    assert "3 submitted" in first.stderr
    again = call(command)
    assert again.returncode == 0, again.stderr
    assert "3 queued before" in again.stderr
    assert "tasks of array" not in again.stderr
    more = call(launcher(tmp_path / "runs", "seed=[0,1,2,3]"))
    assert "3 queued before, 1 submitted" in more.stderr
    (queued,) = {RunDirectory.of(run, tmp_path / "runs").job().id for run in grid(3)}
    (last,) = {RunDirectory.of(run, tmp_path / "runs").job().id for run in grid(4)[3:]}
    (tmp_path / "bin" / "sbatch").unlink()
    for job in (queued, last):
        subprocess.run(["scontrol", "release", job], check=True)
    until(lambda: states(grid(4), tmp_path / "runs") == {"done": 4})
    assert sum(computed().values()) == 4


def test_a_cancelled_task_is_left_to_the_user(cluster, tmp_path, computed):
    store, runs = tmp_path / "runs", grid(2, mode="steps")
    process = subprocess.Popen(
        launcher(store, "seed=[0,1]", "mode=steps", "--wait"), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    until(lambda: RunDirectory.of(runs[0], store).holder())
    subprocess.run(["scancel", RunDirectory.of(runs[0], store).job().id], check=True)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 1
    assert "2 missing" in said
    assert len(re.findall("tasks of array", said)) == 1


def test_a_queued_job_runs_the_code_that_was_submitted(cluster, tmp_path, computed, monkeypatch):
    copy, store = tmp_path / "copy", tmp_path / "runs"
    for name in ("trace", "experiments", "configs", "slurm", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    toy = copy / "tests" / "experiments" / "toy.py"
    fake(tmp_path, monkeypatch, "sbatch", f'exec {shutil.which("sbatch")} --hold "$@"')
    command = launcher(store)
    submitted = call(command, cwd=copy)
    assert submitted.returncode == 0, submitted.stderr
    toy.write_text(toy.read_text().replace('return {"mean": ', 'return {"changed": True, "mean": '))
    directory = RunDirectory.of(grid(1)[0], store)
    subprocess.run(["scontrol", "release", directory.job().id], check=True)
    until(lambda: directory.state() == "done")
    record = directory.record()
    assert "changed" not in record["metrics"]
    (kept,) = (store / ".slurm" / "code").iterdir()
    assert record["code_digest"].startswith(kept.name)
    assert "changed" not in (kept / "tests" / "experiments" / "toy.py").read_text()
    assert "root" not in record


def test_a_tree_is_kept_once_with_its_commit_and_difference(tmp_path):
    kept = keep_tree(tmp_path)
    assert keep_tree(tmp_path) == kept
    said = json.loads((kept / "submitted.json").read_text())
    assert said["code_digest"] == code_digest(code_files())
    assert len(said["git_commit"]) == 40
    assert (kept / "experiments" / "engine" / "submitted.py").exists()
    assert (kept / "diff.patch").exists()
    assert not (kept / "results").exists()
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]


SCONTROL = "JobId={job} ArrayJobId=7 ArrayTaskId={task} JobName=toy JobState={state} Reason=None ExitCode={code} End=x"


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("OUT_OF_MEMORY", "0:125", "ran out of memory"),
        ("FAILED", "0:9", "was killed by SIGKILL, perhaps for lack of memory"),
        ("FAILED", "137:0", "was killed by SIGKILL, perhaps for lack of memory"),
        ("FAILED", "1:0", "ended with exit code 1"),
        ("NODE_FAIL", "1:0", "lost its node"),
        ("TIMEOUT", "0:1", "reached its time limit"),
        ("CANCELLED", "0:15", "was cancelled"),
    ],
)
def test_the_controller_is_asked_first_then_the_accounting(tmp_path, monkeypatch, state, code, said):
    line = SCONTROL.format(job=12, task=3, state=state, code=code)
    fake(tmp_path, monkeypatch, "scontrol", f"echo '{line}'")
    fake(tmp_path, monkeypatch, "sacct", "echo '7_3|COMPLETED|0:0'")
    assert str(endings([Job("7_3", str(tmp_path / "7_3.out"), "")])["7_3"]) == said
    fake(tmp_path, monkeypatch, "scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    fake(tmp_path, monkeypatch, "sacct", f"echo '7_3|{state} by 0|{code}'")
    assert str(endings([Job("7_3", str(tmp_path / "7_3.out"), "")])["7_3"]) == said
    fake(tmp_path, monkeypatch, "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert endings([Job("7_3", str(tmp_path / "7_3.out"), "")])["7_3"].state == "UNKNOWN"


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (
            "slurmstepd-n1: error: StepId=7.0 exceeded memory limit (462364672 > 314572800), being killed",
            "OUT_OF_MEMORY",
        ),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM",
            "OUT_OF_MEMORY",
        ),
        ("slurmstepd: error: Detected 2 oom-kill event(s) in StepId=7.batch cgroup", "OUT_OF_MEMORY"),
        ("my own code: exceeded memory limit", "FAILED"),
        ("", "FAILED"),
    ],
)
def test_the_log_of_a_killed_task_is_read_for_lack_of_memory(tmp_path, monkeypatch, text, state):
    fake(tmp_path, monkeypatch, "scontrol", f"echo '{SCONTROL.format(job=12, task=3, state='FAILED', code='137:0')}'")
    (tmp_path / "7_3.err").write_text(f"{'x' * 200_000}\n{text}\n")
    assert endings([Job("7_3", str(tmp_path / "7_3.out"), "")])["7_3"].state == state
    fake(tmp_path, monkeypatch, "scontrol", f"echo '{SCONTROL.format(job=12, task=3, state='FAILED', code='1:0')}'")
    assert endings([Job("7_3", str(tmp_path / "7_3.out"), "")])["7_3"].state == "FAILED"


def given(directory, job, mem="4GB"):
    directory.path.mkdir(parents=True, exist_ok=True)
    (directory.path / "config.yaml").write_text("seed: 0\n")
    (directory.path / "job.txt").write_text(f"{job}\n/logs/{job}.out\n{mem}\n")


@pytest.mark.parametrize(
    ("state", "attempts"), [("OUT_OF_MEMORY", 1), ("TIMEOUT", 2), ("FAILED", 3), ("UNKNOWN", 3), ("NODE_FAIL", 10)]
)
def test_every_cause_has_its_limit_and_more_memory_starts_anew(tmp_path, state, attempts):
    directory = RunDirectory(tmp_path / "toy" / "abc")
    for number in range(attempts):
        assert refusal(directory, "4GB") == ""
        given(directory, f"7_{number}")
        for _ in range(2):  # a task is noted once, however often one looks
            note_death(directory, TaskEnding(state, -9))
    assert f"task 7_{attempts - 1} " in refusal(directory, "4GB")
    assert f"(log: /logs/7_{attempts - 1}.out)" in refusal(directory, "4GB")
    assert ("raise mem=4GB in the cluster's profile" in refusal(directory, "4GB")) == (state == "OUT_OF_MEMORY")
    assert refusal(directory, "8GB") == ""


def test_what_was_cancelled_by_hand_may_always_come_back(tmp_path):
    directory = RunDirectory(tmp_path / "toy" / "abc")
    for number in range(20):
        given(directory, f"7_{number}")
        note_death(directory, TaskEnding("CANCELLED", -15))
    assert refusal(directory, "4GB") == ""


def test_a_run_that_died_of_memory_is_not_submitted_blindly(tmp_path, monkeypatch, capsys):
    (run,) = grid(1)
    directory = RunDirectory.of(run, tmp_path)
    given(directory, "7_0")
    fake(tmp_path, monkeypatch, "squeue", "exit 0")
    fake(
        tmp_path,
        monkeypatch,
        "scontrol",
        f"echo '{SCONTROL.format(job=8, task=0, state='OUT_OF_MEMORY', code='0:125')}'",
    )
    fake(tmp_path, monkeypatch, "sbatch", f"touch {tmp_path}/asked; exit 1")
    monkeypatch.setattr(slurm, "load_cluster", lambda _: Cluster(mem="4GB"))
    assert list(slurm.launch([run], runs=tmp_path)) == ["failed"]
    assert "1 runs are not submitted again: task 7_0 ran out of memory (log: /logs/7_0.out)" in capsys.readouterr().err
    assert not (tmp_path / "asked").exists()
    assert directory.state() == "failed"
    assert "raise mem=4GB" in describe("toy", [directory])
    monkeypatch.setattr(slurm, "load_cluster", lambda _: Cluster(mem="8GB"))
    with pytest.raises(ValueError, match="the cluster refused the array"):
        list(slurm.launch([run], runs=tmp_path))
    assert (tmp_path / "asked").exists()


def test_a_queue_that_does_not_answer_is_no_empty_queue(tmp_path, monkeypatch):
    (run,) = grid(1)
    given(RunDirectory.of(run, tmp_path), "7_0")
    fake(tmp_path, monkeypatch, "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(ValueError, match=r"the queue does not answer \(Unable to contact.*may hold these runs"):
        list(slurm.launch([run], runs=tmp_path))
