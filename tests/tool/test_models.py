"""Models from scikit-learn and from the user's own code: the same outputs, and no code that nobody agreed to."""

import os
import sys

import joblib
import numpy as np
import pytest
import skops.io
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from trace.tool.errors import ToolError
from trace.tool.models import load_model

from .conftest import rows

CPU = torch.device("cpu")


class Evil:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


class Trained(LogisticRegression):
    """A type that skops cannot know."""


def load(spec, *, trust=False):
    return load_model(str(spec), "--model", trust=trust, device=CPU)


@pytest.fixture
def fitted():
    x, y = rows(100, 0.0, 3)
    return LogisticRegression().fit(x, np.where(y == 1, "yes", "no"))


def test_skops(tmp_path, fitted, x):
    skops.io.dump(fitted, tmp_path / "lr.skops")
    model = load(tmp_path / "lr.skops")
    assert model.classes == ("no", "yes")
    assert np.allclose(model(x).detach().exp().numpy(), fitted.predict_proba(x.numpy()), atol=1e-6)


def test_skops_lists_what_it_does_not_know(tmp_path, fitted, x):
    own = Trained().fit(*rows(50, 0.0, 0))
    skops.io.dump(own, tmp_path / "own.skops")
    with pytest.raises(ToolError, match=r"does not know \(.*Trained\): pass --trust"):
        load(tmp_path / "own.skops")
    assert np.allclose(
        load(tmp_path / "own.skops", trust=True)(x).exp().numpy(), own.predict_proba(x.numpy()), atol=1e-6
    )
    (tmp_path / "text.skops").write_text("hello")
    with pytest.raises(ToolError, match="is no readable skops file"):
        load(tmp_path / "text.skops")


@pytest.mark.parametrize("suffix", ["pkl", "joblib"])
def test_pickles_need_trust(tmp_path, x, suffix):
    forest = RandomForestClassifier(3, random_state=0).fit(*rows(50, 0.0, 0))
    path = tmp_path / f"forest.{suffix}"
    joblib.dump(forest, path)
    with pytest.raises(ToolError, match="is a pickle, which can run any code"):
        load(path)
    assert np.allclose(load(path, trust=True)(x).exp().numpy(), forest.predict_proba(x.numpy()), atol=1e-6)
    joblib.dump({"a": 1}, path)
    with pytest.raises(ToolError, match="gives a dict: a torch module or a scikit-learn estimator is needed"):
        load(path, trust=True)


FACTORIES = """
import torch
from sklearn.linear_model import LogisticRegression
def network(): return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
def function(): return lambda x: x[:, :2]
def unfitted(): return LogisticRegression()
def broken(): raise KeyError("weights")
number = 3
"""


def test_factories_are_looked_for_in_the_current_folder(tmp_path, monkeypatch, x):
    (tmp_path / "my_models.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # so that the path is as it was afterwards
    assert load("my_models:network")(x).shape == (30, 2)
    assert load("my_models:network").layer("1")(x).shape == x.shape
    assert torch.equal(load("my_models:function")(x), x[:, :2])
    for name, words in (
        ("my_models:unfitted", "LogisticRegression is not fitted"),
        ("my_models:broken", r"broken\(\) failed \(KeyError: 'weights'\)"),
        ("my_models:number", "has no function number"),
        ("my_models:absent", "has no function absent"),
        ("no_models:network", "there is no module no_models"),
    ):
        with pytest.raises(ToolError, match=words):
            load(name)
    with pytest.raises(ToolError, match=r"has no submodule 'fc': name one of its own \(0, 1, 2\)"):
        load("my_models:network").layer("fc")


COUNTING = """
from tests.tool.conftest import net
rows = {"old": 0, "new": 0}
def counted(name):
    model = net(name)
    def count(module, inputs): rows[name] += len(inputs[0])
    model.register_forward_pre_hook(count)
    return model
def old(): return counted("old")
def new(): return counted("new")
"""


@pytest.mark.parametrize("features", ["identity", "hidden"])
def test_every_model_sees_every_row_once(diagnosed, update, tmp_path, monkeypatch, features):
    module = f"counting_{features}"
    (tmp_path / f"{module}.py").write_text(COUNTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    anchors = ("--source", f"a={update / 'source.npz'}", "--source", f"b={update / 'test.npz'}")
    diagnosed("--model", f"{module}:old", "--new-model", f"{module}:new", *anchors, "--target", update / "target.npz",
              "--features", features, "--hold-out")  # fmt: skip
    everything, held_out_anchors, held_out_target = 200 + 300 + 160, 30 + 45, 24
    rows_seen = sys.modules[module].rows
    unused = held_out_target if features == "identity" else 0  # where only the new model's losses are needed
    assert rows_seen["old"] == everything - unused + held_out_anchors  # outputs, then gradients on the held-out anchors
    training = 170 + 255  # of the anchors, which only a page shows
    assert (
        rows_seen["new"] == everything - training + held_out_target
    )  # gradients on the held-out target, once for both


def test_a_submodule_as_h_and_as_the_place_of_gradients(diagnosed, update, tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(
        "from tests.tool.conftest import net\ndef old(): return net('old')\ndef new(): return net('new')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    models = ("--model", "nets:old", "--new-model", "nets:new")
    samples = ("--source", update / "source.npz", "--target", update / "target.npz")
    plain = diagnosed(*models, *samples)["anchors"]["source"]
    hidden = diagnosed(*models, *samples, "--features", "hidden", "--gradients", "features")["anchors"]["source"]
    assert hidden["emp_shift_ot"] == pytest.approx(plain["emp_shift_ot"], rel=1e-4)  # the hidden layer is the identity
    head = diagnosed(*models, *samples, "--features", "head")["anchors"]["source"]
    for name in ("source", "target"):
        arrays = np.load(update / f"{name}_logits.npz")
        np.savez(tmp_path / f"{name}.npz", x=arrays["features"], y=arrays["y"], features=arrays["logits"])
    samples = ("--source", tmp_path / "source.npz", "--target", tmp_path / "target.npz")
    saved = diagnosed(*models, *samples, "--features", "saved")["anchors"]["source"]
    assert head["transport"]["value"] == pytest.approx(saved["transport"]["value"], rel=1e-5)
    assert head["mmd"]["value"] == pytest.approx(saved["mmd"]["value"], rel=1e-5)
    assert head["mmd"]["value"] != pytest.approx(plain["mmd"]["value"], rel=1e-2)
