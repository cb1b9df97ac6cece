"""Every mistake gets one sentence and exit code 3, and a traceback only when asked for."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement

from trace.io.errors import UserError, first_line, require

from ..conftest import rows

PYPROJECT = Path(__file__).resolve().parents[3] / "pyproject.toml"


class Failing(torch.nn.Module):
    def forward(self, x):
        if bool(x.sum() > -1e9):
            raise RuntimeError("out of luck")
        return x


@pytest.fixture
def failing(tmp_path):
    with pytest.warns(FutureWarning, match="torch.jit"):
        torch.jit.script(Failing()).save(tmp_path / "failing.pt")
    return tmp_path / "failing.pt"


def bad_samples():
    """Name of a broken file, its arrays, and what the tool says."""
    x, y = rows(40, 0.0, 0)
    hole = x.copy()
    hole[7, 1] = np.nan
    return [
        ("nan", {"x": hole, "y": y}, "x holds NaN or infinity (first in row 7)"),
        ("wide", {"x": np.hstack([x, x]), "y": y}, "wide.npz has shape [6], one of"),
        ("label", {"x": x, "y": y + 6}, "label.npz: y holds labels 6 to 7, but the model has 2 outputs"),
        ("one", {"x": x, "y": 0 * y}, "one.npz holds one class only"),
        ("short", {"x": x, "y": y[:5]}, "y has shape [5] for 40 rows of x"),
        ("half", {"x": x, "y": y + 0.5}, "the label of row 0 is"),
        ("key", {"x": x, "Y": y}, "holds 'Y', which is none of x, y"),
        ("none", {"y": y}, "holds none of x, features and logits"),
        ("text", {"x": x.astype(str), "y": y}, "real numbers are needed"),
        (
            "names",
            {"x": x, "y": np.where(y == 1, "cat", "dog")},
            "list them in the order of the outputs with --classes",
        ),
        ("empty", {"x": x[:0], "y": y[:0]}, "is empty"),
        ("features", {"features": x, "y": y}, "holds no x, which --model"),
        ("single", {"x": x[:1], "y": y[:1]}, "single.npz has 1 rows, too few to hold any out: give more rows"),
        ("pair", {"x": x[:2], "y": np.arange(2)}, "pair.npz has 2 rows, too few to hold any out: give more rows"),
    ]


@pytest.mark.parametrize(("name", "arrays", "words"), bad_samples(), ids=[name for name, *_ in bad_samples()])
def test_bad_samples(tool, update, tmp_path, name, arrays, words):
    np.savez(tmp_path / f"{name}.npz", **arrays)
    code, out, err = tool(
        "diagnose",
        "--model",
        update / "old.pt",
        "--new-model",
        update / "new.pt",
        "--trust",
        "--hold-out",
        "--source",
        tmp_path / f"{name}.npz",
        "--target",
        update / "target.npz",
    )
    assert (code, out) == (3, "")
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--model", "missing.pt"], "--model missing.pt does not exist: a model is scikit-learn"),
        (["--model", "{folder}/source.npz"], "is of no known kind"),
        (["--source", "missing.npz"], "missing.npz does not exist"),
        (["--source", "{folder}/old.pt"], "old.pt is a TorchScript file, which holds no sample: use .npz"),
        (["--set", "qq=0.9"], "there is no setting 'qq', did you mean q?"),
        (["--set", "q=high"], "q must be a number, got 'high'"),
        (["--set", "q=2"], "q must lie strictly between 0 and 1"),
        (["--set", "num_iters=2.5"], "num_iters must be a whole number"),
        (["--loss", "hinge"], "--loss hinge is not known: use cross-entropy"),
        (["--loss", "squared-error:x"], "'x' is no number"),
        (["--device", "cuda:9"], "--device cuda:9 is not available"),
        (["--loss", "cross-entropy:-1"], "--loss cross-entropy:-1: "),
        (["--gradients", "features"], "--gradients features needs --features SUBMODULE"),
        (["--device", "meta"], "--device meta is not available"),
        (["--device", "toaster"], "--device toaster is not available"),
        (["--features", "hidden"], "is TorchScript, whose layers cannot be watched"),
        (["--features", "saved"], "holds no features, which --features saved needs"),
        (["--source-val", "b={folder}/test.npz"], "--source-val is for 'b', which is no anchor: name one of source"),
        (["--source", "{folder}/test.npz"], "names 'source' twice"),
        (["--json", "{folder}/nowhere/d.json"], "does not exist: make it first"),
        (["--json", "{folder}"], "is a folder: name a file to write"),
        (["--classes", "2,3"], "'1' is none of the classes (2, 3)"),
        (["--batch-size", "0"], "argument --batch-size: a whole number of at least 1 is needed, got '0'"),
        (["--limit", "few"], "argument --limit: a whole number of at least 1 is needed, got 'few'"),
        (["--source", "{folder}"], "holds no images"),
        (["--classes", "a,b,c"], "there are 3 classes (a, b, c) and 2 outputs"),
        (["--seed", "soon"], "argument --seed: a whole number from 0 to 2^63 - 1 is needed, got 'soon'"),
        (["--seed", "9" * 30], "argument --seed: a whole number from 0 to 2^63 - 1 is needed"),
        (["--classes", "a,a"], "--classes lists 'a' twice: give every output its own name"),
        (["--nonsense"], "trace diagnose: unrecognized arguments: --nonsense\n`python -m trace diagnose --help` shows"),
    ],
)
def test_bad_options(tool, update, options, words):
    usual = {
        "--model": update / "old.pt",
        "--new-model": update / "new.pt",
        "--source": update / "source.npz",
        "--target": update / "target.npz",
    }
    given = [option.format(folder=update) for option in options]
    repeated = "names 'source' twice" in words
    defaults = [str(v) for key, value in usual.items() if key not in given or repeated for v in (key, value)]
    code, out, err = tool("diagnose", "--trust", *defaults, *given)
    assert (code, out) == (3, "")
    assert words in err
    assert "Traceback" not in err


def test_saved_outputs_must_be_there(tool, update):
    code, _, err = tool("diagnose", "--source", update / "source.npz", "--target", update / "target.npz")
    assert code == 3
    assert "target.npz holds no logits, which must be there without --model: save it there" in err


def test_outputs_that_do_not_fit_each_other_or_the_labels(tool, update, tmp_path):
    for name in ("source", "target"):
        arrays = dict(np.load(update / f"{name}_logits.npz"))
        np.savez(tmp_path / f"{name}.npz", **{**arrays, "new_logits": arrays["new_logits"][:, :1]})
        np.savez(tmp_path / f"{name}_one.npz", **{key: v[:, :1] if "logits" in key else v for key, v in arrays.items()})
    code, _, err = tool("diagnose", "--source", tmp_path / "source.npz", "--target", tmp_path / "target.npz")
    assert code == 3
    assert "--model has 2 outputs, --new-model 1: compare models of one task" in err
    code, _, err = tool("diagnose", "--source", tmp_path / "source_one.npz", "--target", tmp_path / "target_one.npz")
    assert code == 3
    assert (
        "y holds classes, but the model has one output: return [-f/2, f/2] for a margin f, or use squared error" in err
    )


def test_saved_outputs_of_another_width(tool, update, tmp_path):
    arrays = dict(np.load(update / "source_logits.npz"))
    np.savez(tmp_path / "narrow.npz", **{**arrays, "logits": arrays["logits"][:, :1]})
    code, _, err = tool("diagnose", "--source", tmp_path / "narrow.npz", "--target", update / "target_logits.npz")
    assert code == 3
    assert "logits has 1 columns in" in err
    assert "and 2 in" in err


def test_one_array_is_no_sample(tool, update, tmp_path):
    np.save(tmp_path / "array.npy", np.zeros((4, 3)))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    code, _, err = tool("diagnose", "--source", tmp_path / "array.npz", "--target", update / "target.npz")
    assert code == 3
    assert "array.npz holds one array: save it with numpy.savez" in err


def test_the_anchor_is_named_where_there_are_several(tool, update, tmp_path):
    x, y = rows(40, 0.0, 0)
    np.savez(tmp_path / "one.npz", x=x, y=0 * y)
    models = (
        "--model",
        update / "old.pt",
        "--new-model",
        update / "new.pt",
        "--trust",
        "--target",
        update / "target.npz",
    )
    anchors = ("--source", f"a={update / 'source.npz'}", "--source", f"b={tmp_path / 'one.npz'}")
    code, _, err = tool("diagnose", *models, *anchors)
    assert code == 3
    assert "one.npz holds one class only, so its risk says nothing: give rows of two classes" in err
    code, _, err = tool("diagnose", *models, *anchors, "--anchor-test", update / "test.npz")
    assert code == 3
    assert "test.npz names no anchor: write NAME=" in err
    assert "with one of a, b" in err


def test_a_failing_model_is_named(tool, update, failing):
    options = ("--new-model", failing, "--source", update / "source.npz", "--target", update / "target.npz")
    code, _, err = tool("diagnose", "--trust", "--model", update / "old.pt", *options)
    assert code == 3
    assert "--new-model" in err
    assert "failing.pt failed on inputs [160, 3] of torch.float32" in err
    assert "out of luck" in err
    assert err.count("\n") == 1
    with pytest.raises(UserError, match="out of luck"):
        tool("diagnose", "--debug", "--trust", "--model", update / "old.pt", *options)


def test_inputs_of_another_shape(tool, update, tmp_path):
    x, y = rows(40, 0.0, 0)
    np.savez(tmp_path / "wide.npz", x=np.hstack([x, x]), y=y)
    code, _, err = tool(
        "diagnose",
        "--model",
        update / "old.pt",
        "--new-model",
        update / "new.pt",
        "--trust",
        "--source",
        tmp_path / "wide.npz",
        "--target",
        tmp_path / "wide.npz",
    )
    assert code == 3
    assert "old.pt failed on inputs [40, 6] of torch.float32: RuntimeError: mat1 and mat2 shapes" in err


def test_no_command_and_unknown_commands(tool):
    assert tool()[0] == 3
    code, _, err = tool("diagnos")
    assert code == 3
    assert "invalid choice: 'diagnos'" in err


def test_help_teaches(tool):
    code, out, _ = tool("diagnose", "--help")
    assert code == 0
    for words in ("examples:", "--anchor-test", "--trust", "timm:resnet18@", "exit code is 0, or 3"):
        assert words in out
    assert "diagnose" in tool("--help")[1]


@pytest.mark.parametrize(
    ("module", "name"), [("skops.io", "skops"), ("PIL.Image", "pillow"), ("yaml", "PyYAML"), ("timm", "timm")]
)
def test_a_missing_package_says_what_to_install(monkeypatch, module, name):
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert any(Requirement(line).name == name for lines in extras.values() for line in lines)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"reading a file needs the package {name}: pip install {name}$"):
        require(module, purpose="reading a file")


def test_first_line():
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"
    assert first_line(KeyError()) == "KeyError"
