"""The commands as a user runs them, `python -m trace`: from real models to pages and exit codes."""

import html
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import skops.io
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trace.scores import GATE_SCORES

from .test_policy import past_csv

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments, folder, program=("-m", "trace")):
    """A command in an empty folder: exit code, standard output and standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *program, *map(str, arguments)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def models(update):
    return (
        "--model",
        update / "old.pt",
        "--new-model",
        update / "new.pt",
        "--trust",
        "--source",
        update / "source.npz",
        "--target",
        update / "target.npz",
        "--source-val",
        update / "test.npz",
    )


@pytest.mark.parametrize(
    ("policy", "code", "word"),
    [
        ("threshold: 0.9", 0, "ACCEPT"),
        ("threshold: 0.0001", 1, "REJECT"),
        ("threshold: 0.9\nmin_source: 1000", 2, "INCONCLUSIVE"),
        ("treshold: 0.9", 3, ""),
    ],
)
def test_the_gate_answers_with_its_exit_code(models, tmp_path, policy, code, word):
    (tmp_path / "policy.yaml").write_text(policy + "\n")
    found = run("gate", "--policy", "policy.yaml", *models, "--html", "gate.html", folder=tmp_path)
    assert found[0] == code, found[2]
    assert found[1].startswith(word)
    assert "Traceback" not in found[2]
    if code == 3:
        assert found[2] == "python -m trace gate: policy.yaml has the unknown key 'treshold': did you mean threshold?\n"
        assert not (tmp_path / "gate.html").exists()
    else:
        page = (tmp_path / "gate.html").read_text()
        assert {0: "accept", 1: "reject", 2: "inconclusive"}[code] in page.split("Verdict")[1][:80]
        assert "target.npz are held out: give --target-val" in page
        assert "what the bound is made of" in page


def test_a_model_that_leaves_is_no_answer_of_the_gate(models, tmp_path):
    """Exit code 0 would accept the update."""
    (tmp_path / "mine.py").write_text(
        "import sys\n\ndef leaves():\n    sys.exit(0)\n\ndef later():\n    return lambda x: sys.exit(0)\n"
    )
    (tmp_path / "policy.yaml").write_text("threshold: 0.9\n")
    for factory, words in (("leaves", "leaves() failed (SystemExit: 0)"), ("later", "called sys.exit(0)")):
        found = run("gate", "--policy", "policy.yaml", *models[2:], "--model", f"mine:{factory}", folder=tmp_path)
        assert (found[0], found[1]) == (3, "")
        assert words in found[2]


def test_tables_from_scikit_learn_to_a_page(tmp_path):
    data = load_breast_cancer(as_frame=True)
    table = data.data.assign(diagnosis=data.target_names[data.target]).sample(frac=1, random_state=0)
    old, new = table[table["mean radius"] < 14], table[table["mean radius"] > 12]
    for name, part in (("old", old), ("new", new)):
        part.to_csv(tmp_path / f"{name}.csv", index=False)
        fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(part[data.feature_names], part["diagnosis"])
        skops.io.dump(fitted, tmp_path / f"{name}.skops")
    options = ("--model", "old.skops", "--new-model", "new.skops", "--source", "old.csv", "--target", "new.csv")
    options += ("--label", "diagnosis", "--html", "page.html", "--verbose")
    code, out, err = run("diagnose", *options, folder=tmp_path)
    assert (code, err) == (0, "")
    page = (tmp_path / "page.html").read_text()
    notes = out.split("notes:\n")[1].split("\n\n")[0].splitlines()
    assert len(notes) == 4
    for note in notes:
        assert note.strip()[1:] in html.unescape(page)
    for words in ("benign", "old.csv", "new.skops", "Predictions that change", "Drift by column", "mean radius"):
        assert words in page


def test_the_rows_that_a_forest_knows_by_heart_decide_nothing(tool, tmp_path):
    """Both forests know the shared anchor rows, and agree there; on others a fifth of the predictions change."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 5))
    y = (x[:, 0] + rng.normal(size=2000) > 0).astype(int)
    parts = {"old": slice(0, 800), "new": slice(0, 1200), "held": slice(1200, 2000)}
    for name, part in parts.items():
        np.savez(tmp_path / f"{name}.npz", x=x[part], y=y[part])
    for name in ("old", "new"):
        forest = RandomForestClassifier(50, bootstrap=False, max_features=1, random_state=len(x[parts[name]]))
        skops.io.dump(forest.fit(x[parts[name]], y[parts[name]]), tmp_path / f"{name}.skops")
    (tmp_path / "policy.yaml").write_text("threshold: 0.08\n")
    gate = (
        "gate",
        "--policy",
        tmp_path / "policy.yaml",
        "--model",
        tmp_path / "old.skops",
        "--new-model",
        tmp_path / "new.skops",
        "--source",
        tmp_path / "old.npz",
        "--target",
        tmp_path / "new.npz",
    )
    code, out, err = tool(*gate)
    assert code == 2, err
    assert "predictions on the anchor that change is not known: 0% on rows that are not held out" in out
    code, out, _ = tool(*gate, "--source-val", tmp_path / "held.npz")
    assert code == 1
    assert out.startswith("REJECT the update: the share of predictions on the anchor that change is at least 9")
    code, out, _ = tool(*gate, "--hold-out", "--verbose")  # the user's word for it, which is wrong here
    assert code == 0
    assert "as rows that no model was trained on (--hold-out)" in out


def test_a_calibration_reaches_the_page(models, tmp_path):
    (tmp_path / "past.csv").write_text(past_csv())
    (tmp_path / "policy.yaml").write_text("calibration: c.json\n")
    calibrate = ("calibrate", "--past", "past.csv", "--harm-above", "0.02", "--score", "anchor_disagreement")
    assert run(*calibrate, "--out", "c.json", folder=tmp_path)[0] == 0
    code, _, err = run("gate", "--policy", "policy.yaml", *models, "--html", "gate.html", folder=tmp_path)
    assert (code, err) == (0, "")
    page = (tmp_path / "gate.html").read_text()
    assert json.loads((tmp_path / "c.json").read_text())["promise"] in page
    assert "20 past updates with a known outcome" in page


def test_several_anchors_stand_on_one_page(tool, update, tmp_path):
    (tmp_path / "policy.yaml").write_text("threshold: 0.9\nmin_source: 20\nanchors: [a, b]\n")
    anchors = [f"--source={name}={update / file}.npz" for name, file in (("a", "source"), ("b", "test"))]
    code, out, _ = tool(
        "gate",
        "--policy",
        tmp_path / "policy.yaml",
        "--model",
        update / "old.pt",
        "--new-model",
        update / "new.pt",
        "--trust",
        *anchors,
        "--target",
        update / "target.npz",
        "--hold-out",
        "--html",
        tmp_path / "p.html",
        "--markdown",
        "-",
    )
    assert code == 0
    assert out.startswith("## TRACE gate")
    page = (tmp_path / "p.html").read_text()
    assert all(words in page for words in ("All anchors", "Anchor: a", "Anchor: b", "anchor a"))


def test_help_says_all_that_a_policy_needs(tool):
    for command in ("gate", "calibrate"):
        code, out, _ = tool(command, "--help")
        assert code == 0
        assert all(f"  {name} " in out for name in GATE_SCORES)
        assert all(word in out for word in ("risk_change", "harmful", "pac" if command == "calibrate" else "anchors:"))
    assert "configs/" not in tool("gate", "--help")[1]  # not part of the wheel
    for key in ("new_logits", "features", ".safetensors"):
        assert key in tool("diagnose", "--help")[1]


@pytest.mark.parametrize("options", [("--json", "{folder}/nowhere/d.json"), ("--html", "{folder}")])
def test_outputs_are_checked_before_the_models_run(tool, update, options):
    """The model does not even exist."""
    given = [option.format(folder=update) for option in options]
    code, _, err = tool("diagnose", "--model", "absent.pt", "--source", "absent.npz", "--target", "absent.npz", *given)
    assert code == 3
    assert "does not exist: make it first" in err or "is a folder: name a file to write" in err


def test_one_output_on_the_standard_output(tool, models):
    code, out, err = tool("diagnose", *models, "--json", "-", "--html", "-")
    assert (code, out) == (3, "")
    assert "--json and --html cannot share the standard output: give one of them a file" in err


def test_pipes_and_links_stay_what_they_are(tool, models, tmp_path):
    """A device that is named as output must not be replaced by a file, nor a link by what it points at."""
    pipe, link, received = tmp_path / "pipe", tmp_path / "link.json", []
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "real.json")
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    code, _, err = tool("diagnose", *models, "--json", link, "--markdown", pipe)
    assert code == 0, err
    reader.join(timeout=30)
    assert pipe.is_fifo()
    assert received[0].startswith("## TRACE diagnostic")
    assert link.is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["format"] == "trace-diagnostic/1"


def test_outputs_have_the_mode_of_any_file(tool, models, tmp_path):
    (tmp_path / "kept.json").touch(mode=0o600)
    before = os.umask(0o027)
    try:
        for name in ("kept", "new"):
            assert tool("diagnose", *models, "--json", tmp_path / f"{name}.json")[0] == 0
    finally:
        os.umask(before)
    modes = {name: (tmp_path / f"{name}.json").stat().st_mode & 0o777 for name in ("kept", "new")}
    assert modes == {"kept": 0o600, "new": 0o640}


def test_an_output_that_cannot_be_written(tool, models, tmp_path):
    code, out, err = tool("diagnose", *models, "--json", tmp_path / ("long" * 100))
    assert (code, out) == (3, "")
    assert "cannot be written (File name too long): name another file" in err
    assert not list(tmp_path.iterdir())


def test_a_reader_that_has_seen_enough(models, tmp_path):
    line = [sys.executable, "-m", "trace", "diagnose", *map(str, models), "--json", "-"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        tool.stdout.close()
        assert tool.stderr.read() == b""
        assert tool.wait() == 0


def test_probabilities_in_place_of_logits_are_noticed(diagnosed, update, tmp_path):
    for name in ("source", "target"):
        arrays = dict(np.load(update / f"{name}_logits.npz"))
        arrays["new_logits"] = torch.softmax(torch.from_numpy(arrays["new_logits"]), dim=1).numpy()
        np.savez(tmp_path / f"{name}.npz", **arrays)
    found = diagnosed("--source", tmp_path / "source.npz", "--target", tmp_path / "target.npz")
    noticed = [note for note in found["notes"]["source"] if "look like probabilities" in note]
    assert noticed == [
        "the outputs of --new-model look like probabilities, but the loss takes logits: save or return their logarithms"
    ]
