"""`label`: from two models and unlabelled rows to a decision, by sheets, by keys, after crashes, and at the gate."""

import csv
import json
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from trace.gate import Labelling
from trace.io.writing import sealed, strict_json
from trace.tool import label as label_command
from trace.tool import state as state_module

ROOT = Path(__file__).resolve().parents[3]
N, DIFFER, HARMED = 400, 60, 40
"""Rows; those on which the models differ; those of them on which only the old one is right."""


def saved_update(folder, **others):
    """Rows with saved outputs and without labels, and their labels: the error rises by (40 - 20) / 400 = 0.05."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N)
    old, new = np.eye(3)[y], np.eye(3)[y]
    moved = rng.permutation(N)[:DIFFER]
    new[moved[:HARMED]] = np.eye(3)[(y[moved[:HARMED]] + 1) % 3]
    old[moved[HARMED:]] = np.eye(3)[(y[moved[HARMED:]] + 1) % 3]
    x = rng.normal(size=(N, 2))
    np.savez(folder / "rows.npz", x=x, logits=4 * old, new_logits=4 * new, **others)
    np.savez(folder / "labelled.npz", x=x, logits=4 * old, new_logits=4 * new, y=y, **others)
    return y, old, new


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(path="labels.csv"):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def fill(y, path="labels.csv", names=None, delimiter=","):
    """Write the true labels into a sheet, as a person would."""
    rows = read(path)
    for row in rows:
        row["label"] = y[int(row["id"])] if names is None else names[y[int(row["id"])]]
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)


LINE = ("label", "--rows", "rows.npz", "--state", "labels.json")


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize(("threshold", "code", "decision"), [(0.1, 0, "accept"), (0.01, 1, "reject")])
def test_sheets_are_filled_in_until_the_labels_decide(here, tool, threshold, code, decision, delimiter):
    y, old, new = saved_update(here)
    labelling = Labelling(
        torch.from_numpy(4 * old),
        torch.from_numpy(4 * new),
        limit=threshold,
        generator=torch.Generator().manual_seed(0),
    )
    asked = 0
    while (found := tool(*LINE, "--threshold", threshold, "--ask", 5))[0] == 2:
        rows = labelling.next_rows(5)
        assert [int(row["id"]) for row in read()] == rows.tolist()
        assert all(row["label"] == "" and row["prediction"] != row["new_prediction"] for row in read())
        assert f"label the {len(rows)} rows of labels.csv" in found[1]
        labelling.tell(rows, y[rows])
        asked += len(rows)
        fill(y, delimiter=delimiter)
    assert found[0] == code, found[2]
    assert found[1].startswith(f"{decision.capitalize()} after {asked} labels: on this file of 400 rows")
    assert found[1].strip() == labelling.state.in_words()
    assert json.loads(Path("labels.json").read_text())["decision"] == decision
    assert tool(*LINE)[0] == code  # asked again, without repeating the question


def test_what_it_would_have_cost_is_what_it_costs(here, tool):
    y, _, _ = saved_update(here)
    simulated = tool("label", "--rows", "rows.npz", "--threshold", 0.1, "--simulate", "labelled.npz")
    while tool(*LINE, "--threshold", 0.1, "--ask", 1)[0] == 2:
        fill(y)
    spent = re.search("after (\\d+) labels", tool(*LINE)[1])[1]
    assert simulated[0] == 0
    assert f"It would have cost {spent} of the {DIFFER} labels that could matter, on {N} rows." in simulated[1]
    assert not Path("labels.json.csv").exists()


@pytest.mark.parametrize("step", ["write_outputs", "write_state", "write_atomically"])
def test_a_crash_at_any_step_loses_nothing(here, tool, monkeypatch, step):
    """The step is done and the process ends, or the process ends before it is done: the command goes on either way."""
    y, _, _ = saved_update(here)

    def finished(crash=None):
        for path in here.glob("labels*"):
            if path.name.startswith("labels."):
                path.unlink()
        while True:
            if crash is not None:
                with monkeypatch.context() as patched:
                    patched.setattr(label_command, step, crash)
                    tool(*LINE, "--threshold", 0.1, "--ask", 4)
            code, out, _ = tool(*LINE, "--threshold", 0.1, "--ask", 4)
            if code != 2:
                return code, out, {k: v for k, v in json.loads(Path("labels.json").read_text()).items() if k != "x"}
            fill(y)

    real = getattr(label_command, step)

    def before(*_):
        raise KeyboardInterrupt

    def after(*arguments):
        real(*arguments)
        raise KeyboardInterrupt

    whole = finished()
    assert finished(before) == whole
    assert finished(after) == whole


def test_a_sheet_that_is_filled_in_in_part_is_asked_for_again(here, tool):
    y, _, _ = saved_update(here)
    tool(*LINE, "--threshold", 0.1, "--ask", 4)
    first = [row["id"] for row in read()]
    sheet = Path("labels.csv").read_text().splitlines()
    sheet[2] = sheet[2].replace(f"{first[1]},", f"{first[1]},{y[int(first[1])]}", 1)
    Path("labels.csv").write_text("\n".join(sheet))
    tool(*LINE, "--ask", 4)
    again = [row["id"] for row in read()]
    assert again[:3] == [first[0], *first[2:]]
    assert first[1] not in again
    labelling = json.loads(Path("labels.json").read_text())["labelling"]
    assert (labelling["rows"], labelling["labels"]) == ([int(first[1])], [int(y[int(first[1])])])


def test_a_label_stays_as_told(here, tool):
    y, _, _ = saved_update(here)
    tool(*LINE, "--threshold", 0.1, "--ask", 4)
    name = read()[0]["id"]
    fill(y)
    assert tool(*LINE)[0] == 2
    told = y[int(name)]
    Path("labels.csv").write_text(f"id,label\n{name},{told}\n")
    assert tool(*LINE)[0] == 2
    Path("labels.csv").write_text(f"id,label\n{name},{(told + 1) % 3}\n")
    code, _, err = tool(*LINE)
    assert code == 3
    assert f"labels.csv: {name} is labelled {(told + 1) % 3}, and was told to be {told} before" in err


def test_another_threshold_or_confidence_takes_the_same_labels(here, tool):
    y, _, _ = saved_update(here)
    while tool(*LINE, "--threshold", 0.1, "--confidence", 0.9, "--ask", 3)[0] == 2:
        fill(y)
    before = json.loads(Path("labels.json").read_text())["labelling"]["rows"]
    Path("labels.csv").unlink()
    while tool(*LINE, "--threshold", 0.08, "--confidence", 0.99, "--ask", 3)[0] == 2:
        fill(y)
    record = json.loads(Path("labels.json").read_text())
    assert record["labelling"]["rows"][: len(before)] == before
    assert (record["asked"]["threshold"], record["asked"]["confidence"]) == (0.08, 0.99)
    assert len(record["labelling"]["rows"]) > len(before)


def test_a_row_that_nobody_can_label(here, tool):
    saved_update(here)
    tool(*LINE, "--threshold", 0.1, "--ask", 4)
    Path("labels.csv").write_text(Path("labels.csv").read_text().replace(",,", ",?,", 4))
    assert tool(*LINE)[0] == 2
    assert json.loads(Path("labels.json").read_text())["labelling"]["labels"] == [None] * 4


def test_models_run_once_and_must_stay_the_same(here, tool, update):
    """Tables of columns, class names, models as files: what is given again is compared, what is left out is known."""
    with np.load(update / "test.npz") as arrays:
        x, y = arrays["x"], arrays["y"]
    np.savetxt("rows.csv", x, delimiter=",", header="a,b,c", comments="")
    models = ("--model", update / "old.pt", "--new-model", update / "new.pt", "--trust")
    line = ("label", "--rows", "rows.csv", "--state", "s.json", "--sheet", "todo.csv", "--threshold", 0, "--ask", 3)
    assert tool(*line, *models, "--classes", "cat,dog")[0] == 2
    row = read("todo.csv")[0]
    assert [float(row[name]) for name in "abc"] == pytest.approx(x[int(row["id"])].tolist(), rel=1e-6)
    assert {row["prediction"], row["new_prediction"]} == {"cat", "dog"}
    fill(y, "todo.csv", names=("cat", "dog"))
    assert tool(*line[:-4], "--ask", 3)[0] == 2
    assert tool(*line, *models)[0] == 2
    code, _, err = tool(*line, "--model", update / "new.pt")
    assert (code, "begun with another model than" in err) == (3, True)
    code, _, err = tool(*line, "--model", "some.module:function")
    assert (code, "begun with another model than" in err) == (3, True)
    code, _, err = tool(*line, "--classes", "dog,cat")
    assert (code, "other --classes" in err) == (3, True)


def test_code_is_not_run_without_trust(here, tool, update):
    code, _, err = tool(*LINE[:-1], "s.json", "--rows", update / "test.npz", "--model", update / "old.pt")
    assert code == 3
    assert "can run any code" in err
    assert not Path("s.json").exists()


def test_images_are_named_by_their_paths(here, tool):
    Path("photos").mkdir()
    for i in range(6):
        Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(f"photos/{i}.png")
    Path("pixels.py").write_text(
        "import torch\n"
        "def old(): return lambda x: torch.stack([x.mean((1, 2, 3)), torch.full((len(x),), 0.02)], 1)\n"
        "def new(): return lambda x: torch.stack([x.mean((1, 2, 3)), torch.full((len(x),), 0.2)], 1)\n"
    )
    models = ("--model", "pixels:old", "--new-model", "pixels:new", "--pixels", "unit", "--image-size", 8)
    line = ("label", "--rows", "photos", "--state", "s.json", "--threshold", 0.1)
    assert tool(*line, *models)[0] == 2
    rows = {row["id"]: row for row in read("s.csv")}
    assert set(rows) == {"1.png", "2.png", "3.png"}
    assert all(Path(row["path"]).exists() for row in rows.values())
    Path("s.csv").write_text("id,label\n" + "".join(f"{name},1\n" for name in rows))
    assert tool(*line, "--model", "pixels:old")[0] == 0
    assert tool(*line, "--model", "pixels:new")[0] == 3


def test_targets_are_labels_too(here, tool):
    rng = np.random.default_rng(1)
    y = rng.uniform(-1, 1, 300)
    np.savez("rows.npz", x=y[:, None], logits=y[:, None] + 0.1, new_logits=y[:, None] + 0.5)
    np.savez("labelled.npz", x=y[:, None], logits=y[:, None], new_logits=y[:, None], y=y)
    loss = ("--loss", "squared-error:2", "--threshold", 0.05)
    code, out, _ = tool("label", "--rows", "rows.npz", *loss, "--simulate", "labelled.npz")
    assert (code, "Reject after" in out) == (1, True)
    tool(*LINE, *loss, "--ask", 2)
    lines = Path("labels.csv").read_text().splitlines()
    row = read()[0]["id"]
    Path("labels.csv").write_text("\n".join([lines[0], lines[1].replace(",,", ",0.25,", 1)]))
    assert tool(*LINE)[0] == 2
    labelling = json.loads(Path("labels.json").read_text())["labelling"]
    assert (labelling["rows"], labelling["labels"]) == ([int(row)], [0.25])


def edited(changes, path="labels.json"):
    record = {**json.loads(Path(path).read_text()), **changes}
    Path(path).write_text(strict_json(sealed(record)))


@pytest.mark.parametrize(
    ("harm", "options", "message"),
    [
        (lambda: None, ("--confidence", 1.0), "confidence"),
        (lambda: None, ("--scope", "population"), "was begun with --scope file"),
        (lambda: None, ("--loss", "cross-entropy"), "was begun with --loss zero-one"),
        (lambda: None, ("--seed", 1), "was begun with --seed 0"),
        (lambda: None, ("--id", "name"), "was begun with --id None"),
        (lambda: None, ("--model", "labelled.npz"), "was begun with another model than labelled.npz"),
        (lambda: None, ("--state", "rows.npz"), "would overwrite an input"),
        (lambda: None, ("--sheet", "rows.npz"), "would overwrite an input"),
        (lambda: None, ("--sheet", "labels.json"), "both name labels.json"),
        (lambda: None, ("--interactive",), "needs a terminal"),
        (lambda: None, ("--simulate", "labelled.npz"), "leave out --state"),
        (lambda: Path("labels.json").write_text("{}"), (), "is not of the format trace-labels/1"),
        (lambda: Path("labels.json").write_text("["), (), "is not JSON"),
        (
            lambda: Path("labels.json").write_text(Path("labels.json").read_text().replace("0.1", "0.2")),
            (),
            "was edited or damaged",
        ),
        (lambda: edited({"labelling": {}}), (), "no record of a labelling"),
        (lambda: edited({"labelling": 3}), (), "no record of a labelling|is damaged"),
        (lambda: edited({"asked": {}}), (), "is damaged"),
        (lambda: edited({"files": None}), (), "is damaged"),
        (lambda: Path("labels.outputs.npz").unlink(), (), "outputs of both models, is missing"),
        (lambda: Path("labels.outputs.npz").write_bytes(b"PK"), (), "labels.outputs.npz"),
        (lambda: np.savez("labels.outputs.npz", logits=np.eye(3)), (), "holds no logits and new_logits"),
        (
            lambda: np.savez("labels.outputs.npz", logits=np.eye(3), new_logits=np.eye(3)),
            (),
            "begun with other models or rows",
        ),
        (lambda: np.savez("rows.npz", x=np.zeros((N, 2)), logits=np.eye(3)[[0] * N]), (), "begun with other rows"),
        (lambda: Path("rows.npz").unlink(), (), "does not exist"),
        (lambda: Path("labels.csv").write_text("a,b\n1,2\n"), (), "has no columns id and label"),
        (lambda: Path("labels.csv").write_text("id,label\n7\n"), (), "line 2 ends before its label"),
        (lambda: Path("labels.csv").write_text("id,label\n9999,1\n"), (), "labels 9999, which is no row"),
        (lambda: Path("labels.csv").write_text("id,label\n7,5\n"), (), "'5', none of the classes .0, 1, 2."),
        (lambda: Path("labels.csv").write_text("id,label\n7,1\n7,2\n"), (), "labels 7 both 1 and 2"),
        (lambda: Path("labels.csv").write_bytes(b"id,label\n7,\xff\n"), (), "not text in UTF-8"),
    ],
)
def test_bad_input_gets_one_sentence_and_changes_nothing(here, tool, harm, options, message):
    saved_update(here)
    assert tool(*LINE, "--threshold", 0.1)[0] == 2
    harm()
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    code, out, err = tool(*LINE, *options)
    assert (code, out) == (3, "")
    assert len(err.splitlines()) == 1
    assert re.search(message, err)
    assert {path.name: path.read_bytes() for path in here.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--threshold", "nan"), "limit must be a finite number"),
        (("--confidence", 1.5), "confidence"),
        (("--loss", "hinge"), "hinge is not known: use cross-entropy.* or zero-one"),
        (("--loss", "squared-error"), "unbounded"),
        (("--ask", 0), "a whole number of at least 1"),
        (("--classes", "a,b"), "there are 2 classes"),
        (("--sheet", "labelled.npz"), "is there before the labelling has begun"),
        (("--new-model", "absent.pt"), "absent.pt does not exist"),
        (("--state", "absent/labels.json"), "the folder of absent/labels.json does not exist"),
        (("--id", "name"), "has no ids"),
    ],
)
def test_bad_beginnings_leave_nothing_behind(here, tool, options, message):
    saved_update(here)
    before = sorted(path.name for path in here.iterdir())
    code, _, err = tool(*LINE, *options)
    assert code == 3
    assert re.search(message, err)
    assert sorted(path.name for path in here.iterdir()) == before


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2))}, "holds no logits"),
        ({"x": np.zeros((3, 2)), "logits": np.zeros((3, 2))}, "holds no new_logits"),
        ({"x": np.zeros((3, 2)), "logits": np.zeros((3, 2)), "new_logits": np.zeros((3, 4))}, "has 2 outputs"),
        (
            {"logits": np.eye(2), "new_logits": 1 - np.eye(2), "names": np.array(["a", "a"])},
            "more than one row a: give every row an id",
        ),
    ],
)
def test_bad_rows(here, tool, arrays, message):
    np.savez("rows.npz", **arrays)
    code, _, err = tool(*LINE)
    assert code == 3
    assert re.search(message, err)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "has no labels to simulate with"),
        ({"y": np.zeros(N - 1, dtype=int)}, "have other rows"),
    ],
)
def test_bad_simulations(here, tool, arrays, message):
    saved_update(here)
    rows = len(arrays.get("y", range(N)))
    np.savez("known.npz", x=np.zeros((rows, 2)), logits=np.zeros((rows, 3)), new_logits=np.zeros((rows, 3)), **arrays)
    code, _, err = tool("label", "--rows", "rows.npz", "--simulate", "known.npz")
    assert code == 3
    assert message in err


def test_simulated_labels_are_matched_by_id(here, tool):
    ids = np.array([f"r{i}" for i in range(N)])
    saved_update(here, id=ids)
    with np.load("labelled.npz") as arrays:
        turned = {name: array[::-1] for name, array in arrays.items()}
    np.savez("turned.npz", **turned)
    plain, other = (tool("label", "--rows", "rows.npz", "--simulate", f)[1] for f in ("labelled.npz", "turned.npz"))
    assert plain == other
    assert plain.startswith(("Accept", "Reject"))


def test_text_from_files_is_no_formula_and_no_escape_sequence(here, tool):
    names = np.array([f"=cmd|{i}" if i % 2 else f"\x1b[2J{i}" for i in range(N)])
    y, _, _ = saved_update(here, names=names)
    assert tool(*LINE, "--threshold", 0.1, "--classes=-x,@y,z")[0] == 2
    text = Path("labels.csv").read_text()
    assert "\x1b" not in text
    rows = read()
    assert {row["id"][:2] for row in rows} <= {"'=", "\ufffd["}
    assert {row["prediction"] for row in rows} <= {"'-x", "'@y", "z"}
    number = {"'" + name if name.startswith("=") else name.replace("\x1b", "\ufffd"): i for i, name in enumerate(names)}
    shown = ("'-x", "@y", "z")
    sheet = "id,label\n" + "".join(f"{row['id']},{shown[y[number[row['id']]]]}\n" for row in rows)
    Path("labels.csv").write_text(sheet)
    assert tool(*LINE)[0] in (0, 2)
    kept = json.loads(Path("labels.json").read_text())["labelling"]
    assert [y[row] for row in kept["rows"]] == kept["labels"]
    assert len(kept["rows"]) == 20


def test_two_processes_do_not_overwrite_each_other(here, tool, monkeypatch):
    y, _, _ = saved_update(here)
    tool(*LINE, "--threshold", 0.1, "--ask", 4)
    fill(y)
    saved = state_module.read_state(Path("labels.json"))
    tool(*LINE)
    with pytest.raises(ValueError, match="was changed by another process meanwhile"):
        state_module.write_state(Path("labels.json"), saved)


# --- keys ---


class Terminal:
    """The command in a terminal of its own: what it shows, and keys to press."""

    def __init__(self, folder, *arguments):
        self.ours, theirs = pty.openpty()
        quiet = termios.tcgetattr(theirs)
        quiet[3] &= ~termios.ECHO  # a key that comes before it is asked for would stand before what is shown next
        termios.tcsetattr(theirs, termios.TCSANOW, quiet)
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trace", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, words, seconds=60):
        """Wait for words; what was shown up to them."""
        deadline = time.monotonic() + seconds
        while not re.search(words, self.shown):
            assert time.monotonic() < deadline, self.shown
            if select.select([self.ours], [], [], 1)[0]:
                try:
                    self.shown += os.read(self.ours, 4096).decode()
                except OSError:  # the other end is closed
                    break
        found = re.search(words, self.shown)
        assert found, self.shown
        before, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return before

    def press(self, keys):
        os.write(self.ours, keys.encode())

    def ended(self):
        code = self.process.wait(60)
        os.close(self.ours)
        return code


def test_keys_in_a_terminal_decide(here, tool):
    """Every kind of key; a stop and a kill lose nothing."""
    y, old, _ = saved_update(here)
    names = ("cat", "dog", "emu")
    line = (*LINE, "--threshold", "0.01", "--classes", "cat,dog,emu", "--interactive")
    terminal = Terminal(here, *line)
    row = int(re.search(r"(\d+): the old model says", terminal.until("q stop"))[1])
    terminal.press("x")  # stands for nothing
    terminal.press("t")
    terminal.until("label: ")
    terminal.press("cow\n")
    terminal.until("none of the classes")
    terminal.press(str(y[row] + 1))
    row = int(re.search(r"(\d+): the old model says (\w+), the new one (\w+)", terminal.until("q stop"))[1])
    terminal.press("o" if old[row].argmax() == y[row] else "n")
    row = int(re.search(r"(\d+): the old model says", terminal.until("q stop"))[1])
    terminal.press("t")
    terminal.until("label: ")
    terminal.press(f"{names[y[row]]}\n")
    terminal.until("q stop")
    terminal.press("q")
    terminal.until("Undecided after 3 labels")
    assert terminal.ended() == 2
    kept = json.loads(Path("labels.json").read_text())["labelling"]
    assert [y[row] for row in kept["rows"]] == kept["labels"]

    terminal = Terminal(here, *line)
    row = int(re.search(r"(\d+): the old model says", terminal.until("q stop"))[1])
    terminal.press(str(y[row] + 1))
    terminal.until("q stop")
    terminal.process.kill()
    assert terminal.ended() != 0
    assert len(json.loads(Path("labels.json").read_text())["labelling"]["labels"]) == 4

    terminal = Terminal(here, *line)
    while "stop" in (seen := terminal.until("q stop|Reject after")):
        terminal.press(str(y[int(re.search(r"(\d+): the old model says", seen)[1])] + 1))
    assert terminal.ended() == 1
    state = tool(*LINE)
    simulated = tool("label", "--rows", "rows.npz", "--threshold", 0.01, "--simulate", "labelled.npz")
    assert state[1].splitlines()[0] == simulated[1].splitlines()[0]


# --- the gate ---


@pytest.fixture
def diagnosed_here(here, tool, update):
    """A diagnostic of the update, without labels on the anchor, and the line that labels its held-out rows."""
    with np.load(update / "test.npz") as arrays:
        x, y = arrays["x"], arrays["y"]
    np.savez("held.npz", x=x)
    models = ("--model", update / "old.pt", "--new-model", update / "new.pt", "--trust")
    samples = ("--source", update / "source.npz", "--target", update / "target.npz", "--source-val", "held.npz")
    assert tool("diagnose", *models, *samples, "--json", "d.json")[0] == 0
    Path("policy.yaml").write_text(
        "rules:\n  - {score: error_change, limit: 0.05, unlabelled: anchor_disagreement}\nmin_target: 10\n"
    )
    return y, models, samples


def test_the_gate_asks_for_labels_and_takes_them(here, tool, diagnosed_here):
    y, models, samples = diagnosed_here
    gate = ("gate", "--policy", "policy.yaml")
    code, out, _ = tool(*gate, *models, *samples)
    assert code == 2
    asked = re.search(r"label these (\d+) rows on which the models disagree, or fewer: trace-shift (.*) \(then", out)
    assert "--rows=held.npz --state=labels.json --threshold=0.05 --confidence=0.95" in asked[2]
    line = asked[2].split()
    code, _, _ = tool(*line, "--ask", 100)
    assert code == 2
    assert len(read()) == int(asked[1])
    code, out, _ = tool(*gate, "--diagnostic", "d.json", "--labels", "labels.json")
    assert code == 2
    assert re.search(r"Next: label these \d+ rows: trace-shift label .*--state=labels.json --threshold=0.05", out)
    fill(y)
    decided = tool(*line)[0]
    for evidence in (("--diagnostic", "d.json"), (*models, *samples)):
        code, out, err = tool(*gate, *evidence, "--labels", "labels.json", "--json", "v.json")
        assert code == decided, err
    verdict = json.loads(Path("v.json").read_text())
    assert verdict["rules"][0]["score"] == "error_change"
    assert verdict["rules"][0]["sample"] == "labels"
    assert verdict["files"]["labels:source"] == json.loads(Path("labels.json").read_text())["digest"]
    assert any("not of what they were drawn from" in note for note in verdict["rules"][0]["notes"])


def test_following_the_gate_s_commands_leads_to_its_decision(here, tool, diagnosed_here):
    """Two rules share the error, so that the labels must be surer than the policy: the commands say so."""
    y, models, samples = diagnosed_here
    Path("policy.yaml").write_text(
        "rules:\n  - {score: error_change, limit: 0.05, unlabelled: anchor_disagreement}\n"
        "  - {score: anchor_disagreement, limit: 0.5}\nmin_target: 10\n"
    )
    evidence: tuple[str, ...] = ()
    for _ in range(40):
        code, _, err = tool("gate", "--policy", "policy.yaml", *models, *samples, *evidence, "--json", "v.json")
        assert code in (0, 1, 2), err
        if code != 2:
            break
        line = re.search(r"trace-shift (label .*?)( \(then|$)", json.loads(Path("v.json").read_text())["next"])[1]
        assert "--confidence=0.975" in line
        while (found := tool(*line.split(), "--ask", 2))[0] == 2 and not evidence:
            fill(y)
        evidence = ("--labels", "labels.json")
        if found[0] == 2:
            fill(y)
    assert code == found[0] != 2


def test_the_gate_refuses_labels_of_something_else(here, tool, diagnosed_here, update):
    _, models, _ = diagnosed_here
    gate = ("gate", "--policy", "policy.yaml", "--diagnostic", "d.json", "--labels")
    swapped = ("--model", models[3], "--new-model", models[1], "--trust")
    tool("label", *swapped, "--rows", "held.npz", "--state", "other.json", "--threshold", 0)
    tool("label", *models, "--rows", update / "source.npz", "--state", "train.json", "--threshold", 0)
    tool("label", *models, "--rows", "held.npz", "--state", "nats.json", "--loss", "cross-entropy:3")
    for state, message in (
        ("other.json", "the model has the SHA-256 .*, and the diagnostic is about another one"),
        ("train.json", "are training rows"),
        ("d.json", "is not of the format trace-labels/1"),
        ("absent.json", "does not exist"),
        ("photos=train.json", "'photos', which is no anchor"),
        ("nats.json", "loss of at most"),
    ):
        code, _, err = tool(*gate, state)
        assert code == 3
        assert re.search(message, err), err
    code, _, err = tool(*gate, "nats.json", "--json", "nats.json")
    assert (code, "would overwrite an input" in err) == (3, True)
