"""`gate` and `calibrate` on files: exit codes, outputs, and the workflow that calls them."""

import argparse
import functools
import json
import math
import os
import pickle
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
import yaml
from sklearn.linear_model import LogisticRegression

from trace import Sample, diagnose
from trace.gate.policy import Policy, decide
from trace.io.checksum import sha256
from trace.io.errors import UserError
from trace.io.writing import sealed, strict_json
from trace.report.verdict import to_brief, to_markdown, to_text
from trace.tool import calibrate as calibrate_command
from trace.tool import gate as gate_command

from .test_policy import past_csv

ROOT = Path(__file__).resolve().parents[3]


def turned(angle):
    """A linear model whose boundary is turned: as wrong as one turned the other way, in each class."""
    w = 2 * torch.tensor([math.cos(angle), math.sin(angle)])
    return lambda x: torch.stack([-(x @ w), x @ w], dim=1)


def blobs(n, shift, generator):
    y = torch.randint(0, 2, (n,), generator=generator)
    x = 0.55 * torch.randn(n, 2, generator=generator) + torch.stack([2.0 * y - 1 + shift, 0.0 * y], dim=1)
    return Sample(x, y)


@pytest.fixture(scope="module")
def diagnostics():
    """Two anchors: on one hardly any prediction changes, on the other about 11%; neither is harmed."""

    def one(angle):
        g = torch.Generator().manual_seed(0)
        return diagnose(
            turned(angle),
            turned(-angle),
            blobs(300, 0, g),
            blobs(200, 0.5, g),
            source_val=blobs(500, 0, g),
            target_val=blobs(400, 0.5, g),
            generator=g,
        )

    return {"calm": one(0.04), "rough": one(0.6)}


@pytest.fixture
def here(tmp_path, monkeypatch, diagnostics):
    monkeypatch.chdir(tmp_path)
    record = {
        "format": "trace-diagnostic/1",
        "anchors": {name: d.as_dict() for name, d in diagnostics.items()},
        "notes": {"calm": ["every tenth row is held out"], "rough": ["every tenth row is held out"]},
        "files": {"model": "1" * 64, "new_model": "2" * 64},
    }
    (tmp_path / "out.json").write_text(strict_json(sealed(record)))
    return tmp_path


def run(add_arguments, main, line):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return main(parser.parse_args(shlex.split(line)))


def gate(line):
    return run(gate_command.add_arguments, gate_command.main, line)


def calibrate(line):
    return run(calibrate_command.add_arguments, calibrate_command.main, line)


@pytest.mark.parametrize(("threshold", "code"), [(0.3, 0), (0.03, 1), (0.12, 2)])
def test_the_exit_code_is_the_verdict(here, capsys, diagnostics, threshold, code):
    (here / "policy.yaml").write_text(f"threshold: {threshold}\n")
    verdict = decide(diagnostics, Policy(threshold))
    assert gate("--policy policy.yaml --diagnostic out.json") == code
    assert capsys.readouterr().out == to_brief(verdict, diagnostics) + "\n"
    assert gate("--policy policy.yaml --diagnostic out.json --verbose") == code
    assert capsys.readouterr().out == to_text(verdict) + "\nEvery tenth row is held out.\n"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("score", ["trace_w", "trace_mmd", "bound_ot", "anchor_worst_label", "held_out_distance"])
def test_every_score_decides_from_a_file(here, capsys, score):
    limit = 1e6 if score.startswith("trace") else 19.0  # the loss ends at 20
    (here / "policy.yaml").write_text(f"score: {score}\nthreshold: {limit:f}\n")
    code = gate("--policy policy.yaml --diagnostic out.json --json -")
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "trace-verdict/1"
    assert gate_command.EXIT_CODES[found["decision"]] == code
    assert {a["score"] for a in found["anchors"].values()} == {score}
    if score in ("trace_w", "bound_ot"):
        assert code == 2
        assert "do not bound the 0.99 quantile" in found["headline"]
    else:
        assert code == 0


def test_files_are_written_beside_the_text(here, capsys, diagnostics):
    (here / "policy.yaml").write_text("threshold: 0.03\nanchors: [rough]\n")
    assert gate("--policy policy.yaml --diagnostic out.json --json v.json --markdown v.md") == 1
    verdict = decide(diagnostics, Policy(0.03))
    assert (here / "v.md").read_text() == to_markdown(verdict, diagnostics) + "\n- Every tenth row is held out.\n"
    assert json.loads((here / "v.json").read_text())["worst"] == "rough"
    assert capsys.readouterr().out.startswith("REJECT the update: on anchor rough, the worst of 2, the share")


def test_past_updates_set_the_threshold(here, capsys):
    (here / "past.csv").write_text(past_csv())
    (here / "policy.yaml").write_text("past: past.csv\nmax_harmful_accepted: 0.1\n")
    assert gate("--policy policy.yaml --diagnostic out.json") == 0
    out = capsys.readouterr().out
    assert "the limit is 50%" in out
    assert "A harmful update is accepted with probability at most 10%" in out


def test_a_calibration_goes_into_a_policy(here, capsys):
    (here / "past.csv").write_text(past_csv())
    line = "--past past.csv --harm-above 0.02 --max-harmful-accepted 0.1 --score anchor_disagreement --out c.json"
    assert calibrate(line) == 0
    out = capsys.readouterr().out
    assert out.startswith("threshold: 0.499999\nA harmful update is accepted with probability at most 10%")
    record = json.loads((here / "c.json").read_text())
    assert (record["num_past"], record["num_harmful"], record["power"]) == (20, 12, pytest.approx(0.5))
    (here / "policy.yaml").write_text("calibration: c.json\n")
    assert gate("--policy policy.yaml --diagnostic out.json --json -") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["anchors"]["calm"]["threshold"] == record["threshold"] < 0.5
    assert found["promise"] == record["promise"]
    assert calibrate("--past past.csv --out -") == 0
    assert json.loads(capsys.readouterr().out)["format"] == "trace-calibration/1"


def test_too_few_past_updates(here):
    (here / "past.csv").write_text(past_csv(num_harmful=5))
    with pytest.raises(ValueError, match=r"5 of 13 past updates were harmful.*needs at least 9 harmful ones"):
        calibrate("--past past.csv")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "out.json is not JSON .*: make it with diagnose --json"),
        ("{}", "out.json is not of the format trace-diagnostic/1"),
        ('{"format": "trace-diagnostic/1", "digest": "sha256:0"}', "out.json was edited or damaged"),
        ('{"format": "trace-diagnostic/1"}', "out.json holds no anchors"),
        ('{"format": "trace-diagnostic/1", "anchors": {"a": 1}}', "out.json holds no anchors"),
        ('{"format": "trace-diagnostic/1", "anchors": {}}', "there is no anchor to decide on"),
        ('{"format": "trace-diagnostic/1", "anchors": {"a": {}}}', "record has no .*: make it again"),
        (
            '{"format": "trace-diagnostic/1", "anchors": {"a": {"anchor": 3}}}',
            "out.json: .* has no anchor.disagreement.value",
        ),
        (
            '{"format": "trace-diagnostic/1", "anchors": {"a": {"anchor": {}, "reasons": 3}}}',
            "out.json: .* has no anchor",
        ),
    ],
)
def test_bad_diagnostics(here, content, message):
    if content.endswith("}") and "digest" not in content:
        record = {"files": {}, **json.loads(content)}
        content = json.dumps(sealed(record) if "format" in record else record)
    (here / "out.json").write_text(content)
    (here / "policy.yaml").write_text("threshold: 0.1\n")
    with pytest.raises(ValueError, match=message):
        gate("--policy policy.yaml --diagnostic out.json")


@pytest.mark.parametrize(
    ("score", "path"),
    [
        ("anchor_disagreement", "anchor.disagreement.value"),
        ("anchor_disagreement", "anchor.num_samples"),
        ("anchor_worst_label", "anchor.worst_label.value"),
        ("held_out_distance", "held_out_distance.num_samples"),
        ("bound_mmd", "lipschitz_loss"),
        ("bound_mmd", "gaps.source.train_risk"),
        ("error_change", "labelled.num_samples"),
        ("trace_mmd", "rkhs_norm.value"),
    ],
)
def test_text_in_place_of_a_number_is_named(here, score, path):
    record = json.loads((here / "out.json").read_text())
    *above, last = path.split(".")
    place = record["anchors"]["calm"]
    for key in above:
        place = place[key]
    place[last] = "many"
    (here / "out.json").write_text(json.dumps(sealed(record)))
    (here / "policy.yaml").write_text(f"score: {score}\nthreshold: 0.1\n")
    with pytest.raises(UserError, match=f"out.json: the diagnostic's record has {path} = 'many', no number: make it"):
        gate("--policy policy.yaml --diagnostic out.json")


def test_something_to_judge_is_needed(here):
    (here / "policy.yaml").write_text("threshold: 0.1\n")
    with pytest.raises(UserError, match="nothing to judge without --source and --target: give them, or --diagnostic"):
        gate("--policy policy.yaml")
    for option in ("--source", "--new-model", "--anchor-test"):
        with pytest.raises(UserError, match=r"a\.npz is no file whose SHA-256 could be compared"):
            gate(f"--policy policy.yaml --diagnostic out.json {option} a.npz")
    for line, option in (
        ("--seed 7", "--seed"),
        ("--set q=0.5", "--set"),
        ("--trust", "--trust"),
        ("--hold-out", "--h"),
    ):
        with pytest.raises(UserError, match=f"--diagnostic and {option}.* exclude each other"):
            gate(f"--policy policy.yaml --diagnostic out.json {line}")
    with pytest.raises(UserError, match=r"absent\.yaml does not exist"):
        gate("--policy absent.yaml --diagnostic out.json")


def test_an_edited_diagnostic_is_refused(here):
    (here / "policy.yaml").write_text("threshold: 0.2\n")
    text = (here / "out.json").read_text()
    for edited, words in (
        (text.replace("every tenth row", "every second row"), "was edited or damaged, its digest is that of another"),
        (text.replace('"digest"', '"digits"'), "carries no digest"),
    ):
        (here / "out.json").write_text(edited)
        with pytest.raises(UserError, match=words):
            gate("--policy policy.yaml --diagnostic out.json")
    (here / "out.json").write_text(json.dumps(json.loads(text), indent=None))  # only laid out differently
    assert gate("--policy policy.yaml --diagnostic out.json") == 0


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("output_distance.tally.high", -1e308, "output_distance.tally.high is -1e\\+308, below 0"),
        ("output_distance.tally.high", 1e-9, "output_distance has the value .* outside of its tally's range"),
        ("sizes.source_val", -3, "sizes.source_val is -3, no number of rows"),
        ("anchor.num_samples", 2.5, "anchor.num_samples is 2.5, no number of rows"),
        ("anchor.disagreement.value", 1.5, "anchor.disagreement.value is 1.5, no share"),
        ("anchor.disagreement.value", -0.1, "anchor.disagreement.value is -0.1, no share"),
        ("anchor.worst_label.tally.counts", [-1], "anchor.worst_label.tally.counts is -1, no number of rows"),
        ("anchor.worst_label.tally.counts", [], "anchor.worst_label has a tally without a count for every value"),
        ("settings.delta", 7, "settings.delta is 7, no share"),
        ("sensitivity_source.bands", [[0.01, -5.0, 2.0]], "sensitivity_source.bands is -5, below 0"),
        ("mmd.standard_error", -1, "mmd.standard_error is -1, below 0"),
        ("gap_target", -2, "gap_target is -2, below 0"),
    ],
)
def test_numbers_that_no_diagnostic_has(here, path, value, words):
    record = json.loads((here / "out.json").read_text())
    *above, last = path.split(".")
    place = functools.reduce(dict.__getitem__, above, record["anchors"]["calm"])
    assert last in place
    place[last] = value
    (here / "out.json").write_text(json.dumps(sealed(record)))
    (here / "policy.yaml").write_text("threshold: 0.2\n")
    with pytest.raises(UserError, match=f"out.json, anchor calm: {words}"):
        gate("--policy policy.yaml --diagnostic out.json")


def test_files_that_are_given_or_pinned_are_the_diagnosed_ones(diagnosed, tool, update, tmp_path):
    samples = (
        "--source",
        update / "source.npz",
        "--source-val",
        update / "test.npz",
        "--target",
        update / "target.npz",
    )
    models = ("--model", update / "old.pt", "--new-model", update / "new.pt")
    record = diagnosed(*models, *samples, "--trust")
    (tmp_path / "d.json").write_text(json.dumps(record))
    assert record["files"]["source_val:source"] == sha256(update / "test.npz")
    assert torch.__version__.startswith(record["versions"]["torch"])
    assert record["versions"]["trace-shift"] == "from its source tree"
    (tmp_path / "policy.yaml").write_text("threshold: 0.9\n")
    line = ("gate", "--policy", tmp_path / "policy.yaml", "--diagnostic", tmp_path / "d.json")
    assert tool(*line, *models, *samples)[0] == 0
    code, _, err = tool(*line, "--model", update / "new.pt")
    assert code == 3
    assert "the given model has the SHA-256" in err
    assert "d.json is about another one: diagnose it again" in err
    code, _, err = tool(*line, "--target-val", update / "test.npz")
    assert code == 3
    assert "does not say of which one it is" in err
    for digest, expected in ((record["files"]["new_model"], 0), ("0" * 64, 3)):
        (tmp_path / "policy.yaml").write_text(f"threshold: 0.9\nfiles:\n  new_model: '{digest}'\n")
        code, out, err = tool(*line, "--json", "-")
        assert code == expected, err
        if code == 0:
            verdict = json.loads(out)
            assert verdict["files"]["policy"] == sha256(tmp_path / "policy.yaml")
            assert verdict["files"]["diagnostic"] == record["digest"]
            assert sealed(verdict) == verdict


def test_junit_says_what_the_verdict_says(here, diagnostics):
    (here / "policy.yaml").write_text("threshold: 0.03\n")
    assert gate("--policy policy.yaml --diagnostic out.json --junit v.xml") == 1
    suite = ElementTree.parse(here / "v.xml").getroot()
    verdict = decide(diagnostics, Policy(0.03))
    assert (suite.get("tests"), suite.get("failures")) == (
        "2",
        str(sum(a.decision != "accept" for a in verdict.anchors)),
    )
    for case, anchor in zip(suite, verdict.anchors, strict=True):
        assert (case.get("name"), case[0].text) == (anchor.anchor, anchor.reason)
        assert case[0].get("type") == (None if anchor.decision == "accept" else anchor.decision)


def workflow_steps():
    return yaml.safe_load((ROOT / "configs" / "gate-action.yaml").read_text())["jobs"]["gate"]["steps"]


@pytest.fixture
def runner(tmp_path):
    """A machine on which the steps of the example workflow run: base and update checked out, the tool on the path."""
    rng = np.random.default_rng(0)

    def table(path, n):
        x = rng.normal(size=(n, 3))
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=(x[:, 0] > 0).astype(int)).to_csv(path, index=False)

    for name, n in (("base/data/anchor", 300), ("base/data/anchor_held_out", 600)):
        table(tmp_path / f"{name}.csv", n)
    for name in ("update/data/training", "update/data/held_out"):
        table(tmp_path / f"{name}.csv", 200)
    fitted = LogisticRegression().fit(pd.read_csv(tmp_path / "base/data/anchor.csv")[["a", "b", "c"]], [0, 1] * 150)
    fitted.coef_, fitted.intercept_ = np.array([[2.0, 0.0, 0.0]]), np.zeros(1)
    for name in ("base", "update"):
        (tmp_path / name / "models").mkdir()
        skops.io.dump(fitted, tmp_path / name / "models/model.skops")
    (tmp_path / "base/configs/policy").mkdir(parents=True)
    (tmp_path / "base/configs/policy/example.yaml").write_bytes((ROOT / "configs/policy/example.yaml").read_bytes())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/trace-shift").write_text(f'#!/bin/sh\nexec {sys.executable} -m trace "$@"\n')
    (tmp_path / "bin/trace-shift").chmod(0o755)
    return tmp_path


def carry_out(folder):
    """The steps that run a command, as the workflow would; exit code of the first that fails, and the summary."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    environment["PATH"] = f"{folder / 'bin'}:{environment['PATH']}"
    failed = 0
    for step in workflow_steps():
        if "run" not in step or step.get("name") == "Install" or (failed and step.get("if") != "always()"):
            continue
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=folder, env=environment, check=False)
        failed = failed or done.returncode
    return failed, (folder / "summary.md").read_text()


def test_the_workflow_accepts_and_rejects(runner):
    code, summary = carry_out(runner)
    assert code == 0
    assert summary.startswith("## TRACE gate\n\n**ACCEPT the update**")
    assert all((runner / f"{name}").exists() for name in ("diagnostic.html", "verdict.json", "verdict.xml"))
    for name in ("verdict.md", "summary.md"):
        (runner / name).unlink()
    worse = skops.io.load(runner / "update/models/model.skops")
    worse.coef_ = -worse.coef_
    skops.io.dump(worse, runner / "update/models/model.skops")
    (runner / "update/configs/policy").mkdir(parents=True)
    (runner / "update/configs/policy/example.yaml").write_text("threshold: 1.0\n")  # the pull request's own
    code, summary = carry_out(runner)
    assert code == 1
    assert "**REJECT the update**" in summary


def test_the_workflow_speaks_when_diagnose_failed(runner):
    (runner / "update/models/model.skops").write_bytes(pickle.dumps({"a": 1}))
    code, summary = carry_out(runner)
    assert code == 3
    assert summary.startswith("## TRACE gate\n\n**ERROR, do not release**: there is no verdict.")
    assert "model.skops is a pickle" in summary


@pytest.mark.parametrize(("index", "calls"), [("", 1), ("https://reachable.example", 2), ("https://gone.example", 2)])
def test_the_workflow_installs_with_or_without_an_index_of_cpu_builds(tmp_path, index, calls):
    """Only the shell is tried: a pip that writes down what it is asked for, and cannot reach one of the indices."""
    (tmp_path / "pip").write_text('#!/bin/sh\necho "$@" >> asked.txt\ncase "$*" in *gone*) exit 1;; esac\n')
    (tmp_path / "pip").chmod(0o755)
    (install,) = (step["run"] for step in workflow_steps() if step.get("name") == "Install")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TORCH_INDEX": index}
    subprocess.run(["bash", "-e", "-c", install], cwd=tmp_path, env=environment, check=True, capture_output=True)
    asked = (tmp_path / "asked.txt").read_text().splitlines()
    assert len(asked) == calls
    assert asked[-1] == "install ./.trace[policy,skops,tables]"
    assert asked[0].endswith(f"--index-url {index}") == bool(index)


def test_the_workflow_keeps_the_page_and_posts_the_verdict():
    jobs = yaml.safe_load((ROOT / "configs" / "gate-action.yaml").read_text())["jobs"]
    (kept,) = (step for step in jobs["gate"]["steps"] if "upload-artifact" in step.get("uses", ""))
    assert kept["if"] == "always()"
    assert {"diagnostic.html", "verdict.md", "verdict.xml"} <= set(kept["with"]["path"].split())
    assert (jobs["comment"]["needs"], jobs["comment"]["if"]) == ("gate", "always()")
    assert "--body-file verdict.md" in jobs["comment"]["steps"][-1]["run"]


def test_the_workflow_takes_nothing_but_the_proposal_from_a_pull_request():
    workflow = yaml.safe_load((ROOT / "configs" / "gate-action.yaml").read_text())
    assert list(workflow[True]) == ["pull_request_target"]  # YAML 1.1 reads the key `on` so
    options = [word for step in workflow_steps() for word in shlex.split(step.get("run", ""), comments=True)]
    of = {name: path for name, path in pairwise(options) if name.startswith("--")}
    assert {
        path.split("/")[0] for name, path in of.items() if name in ("--model", "--source", "--source-val", "--policy")
    } == {"base"}
    assert {path.split("/")[0] for name, path in of.items() if name in ("--new-model", "--target", "--target-val")} == {
        "update"
    }
    assert "--trust" not in options
    assert [job.get("permissions") for job in workflow["jobs"].values()] == [
        {"contents": "read"},
        {"pull-requests": "write"},
    ]
    assert all(not (step.get("with") or {}).get("persist-credentials", False) for step in workflow_steps())
