"""`gate` and `calibrate` on files: exit codes, outputs, and the workflow that calls them."""

import argparse
import json
import shlex
from pathlib import Path

import pytest
import torch
import yaml

from trace import Sample, diagnose
from trace.gate.policy import Policy, decide
from trace.io.errors import UserError
from trace.io.writing import strict_json
from trace.report.verdict import to_markdown, to_text
from trace.tool import calibrate as calibrate_command
from trace.tool import gate as gate_command

from .test_policy import past_csv

ROOT = Path(__file__).resolve().parents[3]
W = torch.tensor([[-2.0, 2.0], [0.0, 0.0]])


def blobs(n, shift, generator):
    y = torch.randint(0, 2, (n,), generator=generator)
    x = 0.55 * torch.randn(n, 2, generator=generator) + torch.stack([2.0 * y - 1 + shift, 0.0 * y], dim=1)
    return Sample(x, y)


@pytest.fixture(scope="module")
def diagnostics():
    """Two anchors: on one hardly any prediction changes, on the other about 8%."""

    def one(shift):
        g = torch.Generator().manual_seed(0)
        return diagnose(
            lambda x: x @ W,
            lambda x: (x - shift) @ W,
            blobs(300, 0, g),
            blobs(200, 0.5, g),
            source_val=blobs(500, 0, g),
            target_val=blobs(400, 0.5, g),
            generator=g,
        )

    return {"calm": one(0.1), "rough": one(0.5)}


@pytest.fixture
def here(tmp_path, monkeypatch, diagnostics):
    monkeypatch.chdir(tmp_path)
    record = {
        "format": "trace-diagnostic/1",
        "anchors": {name: d.as_dict() for name, d in diagnostics.items()},
        "notes": {"calm": ["every tenth row is held out"], "rough": ["every tenth row is held out"]},
    }
    (tmp_path / "out.json").write_text(strict_json(record))
    return tmp_path


def run(add_arguments, main, line):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return main(parser.parse_args(shlex.split(line)))


def gate(line):
    return run(gate_command.add_arguments, gate_command.main, line)


def calibrate(line):
    return run(calibrate_command.add_arguments, calibrate_command.main, line)


@pytest.mark.parametrize(("threshold", "code"), [(0.2, 0), (0.03, 1), (0.08, 2)])
def test_the_exit_code_is_the_verdict(here, capsys, diagnostics, threshold, code):
    (here / "policy.yaml").write_text(f"threshold: {threshold}\n")
    assert gate("--policy policy.yaml --diagnostic out.json") == code
    expected = to_text(decide(diagnostics, Policy(threshold)))
    assert capsys.readouterr().out == expected + "\nEvery tenth row is held out.\n"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("score", ["trace_w", "trace_mmd", "bound_ot", "anchor_worst_label", "model_change"])
def test_every_score_decides_from_a_file(here, capsys, score):
    (here / "policy.yaml").write_text(f"score: {score}\nthreshold: 1000000.0\n")
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
    assert (here / "v.md").read_text() == to_markdown(verdict) + "\n- Every tenth row is held out.\n"
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
    (here / "out.json").write_text(content)
    (here / "policy.yaml").write_text("threshold: 0.1\n")
    with pytest.raises(ValueError, match=message):
        gate("--policy policy.yaml --diagnostic out.json")


@pytest.mark.parametrize(
    ("score", "path"),
    [
        ("anchor_disagreement", "anchor.disagreement.value"),
        ("anchor_disagreement", "anchor.num_samples"),
        ("anchor_worst_label", "anchor.worst_label.deviation"),
        ("output_distance", "output_distance.num_samples"),
        ("model_change", "lipschitz_loss"),
        ("bound_mmd", "gap_source"),
        ("bound_mmd", "sizes.source_val"),
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
    (here / "out.json").write_text(json.dumps(record))
    (here / "policy.yaml").write_text(f"score: {score}\nthreshold: 0.1\n")
    with pytest.raises(UserError, match=f"out.json: the diagnostic's record has {path} = 'many', no number: make it"):
        gate("--policy policy.yaml --diagnostic out.json")


def test_something_to_judge_is_needed(here):
    (here / "policy.yaml").write_text("threshold: 0.1\n")
    with pytest.raises(UserError, match="nothing to judge without --source and --target: give them, or --diagnostic"):
        gate("--policy policy.yaml")
    for option in ("--source", "--new-model", "--anchor-test"):
        with pytest.raises(UserError, match=f"--diagnostic and {option} exclude each other"):
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


@pytest.mark.parametrize(("changed", "code"), [("calm", 0), ("rough", 1)])
def test_the_workflow_blocks_a_release(here, diagnostics, changed, code):
    """The line of the example workflow, with its own policy and a diagnostic where the step before puts it."""
    workflow = yaml.safe_load((ROOT / "configs" / "gate-action.yaml").read_text())
    steps = workflow["jobs"]["gate"]["steps"]
    lines = [step["run"] for step in steps if "run" in step]
    made = next(shlex.split(line) for line in lines if line.startswith("trace-shift diagnose"))
    program, command, *options = next(shlex.split(line) for line in lines if line.startswith("trace-shift gate"))
    assert (program, command) == ("trace-shift", "gate")
    policy = Path(options[options.index("--policy") + 1])
    policy_here = here / policy
    policy_here.parent.mkdir(parents=True)
    policy_here.write_text((ROOT / policy).read_text())
    diagnostic = here / options[options.index("--diagnostic") + 1]
    assert diagnostic.name == made[made.index("--json") + 1]
    record = {"format": "trace-diagnostic/1", "anchors": {"source": diagnostics[changed].as_dict()}}
    diagnostic.write_text(strict_json(record))
    assert gate(shlex.join(options)) == code
    shown = next(step for step in steps if "GITHUB_STEP_SUMMARY" in step.get("run", ""))
    assert shown["if"] == "always()"
    assert (here / shlex.split(shown["run"])[1]).read_text().startswith("## TRACE gate")
