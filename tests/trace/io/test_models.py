"""Models from scikit-learn and from the user's own code: the same outputs, and no code that nobody agreed to."""

import io
import os
import pickle
import sys
import zipfile

import joblib
import numpy as np
import pytest
import skops.io
import timm
import torch
from safetensors.torch import save_file
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

from trace.io.errors import UserError
from trace.io.models import load_model, load_timm, suspect_operations

from ..conftest import net, rows

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
    with pytest.raises(UserError, match=r"does not know \(.*Trained\): pass --trust"):
        load(tmp_path / "own.skops")
    assert np.allclose(
        load(tmp_path / "own.skops", trust=True)(x).exp().numpy(), own.predict_proba(x.numpy()), atol=1e-6
    )
    (tmp_path / "text.skops").write_text("hello")
    with pytest.raises(UserError, match="is no readable skops file"):
        load(tmp_path / "text.skops")


@pytest.mark.parametrize("suffix", ["pkl", "joblib"])
def test_pickles_need_trust(tmp_path, x, suffix):
    forest = RandomForestClassifier(3, random_state=0).fit(*rows(50, 0.0, 0))
    path = tmp_path / f"forest.{suffix}"
    joblib.dump(forest, path)
    with pytest.raises(UserError, match="is a pickle, which can run any code"):
        load(path)
    assert np.allclose(load(path, trust=True)(x).exp().numpy(), forest.predict_proba(x.numpy()), atol=1e-6)
    joblib.dump({"a": 1}, path)
    with pytest.raises(UserError, match="gives a dict: a torch module or a scikit-learn estimator is needed"):
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
        with pytest.raises(UserError, match=words):
            load(name)
    with pytest.raises(UserError, match=r"has no submodule 'fc': name one of its own \(0, 1, 2\)"):
        load("my_models:network").layer("fc")


COUNTING = """
from tests.trace.conftest import net
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
    diagnosed(
        "--model",
        f"{module}:old",
        "--new-model",
        f"{module}:new",
        *anchors,
        "--target",
        update / "target.npz",
        "--features",
        features,
        "--hold-out",
    )
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
        "from tests.trace.conftest import net\ndef old(): return net('old')\ndef new(): return net('new')\n"
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


@pytest.fixture(scope="module")
def small():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return timm.create_model("resnet10t", num_classes=7).eval()


@pytest.mark.parametrize("suffix", ["safetensors", "pth"])
def test_timm_takes_its_classes_from_the_weights(tmp_path, small, suffix):
    path = tmp_path / f"w.{suffix}"
    if suffix == "pth":
        torch.save({"state_dict": small.state_dict()}, path)
    else:
        save_file(small.state_dict(), path)
    before = torch.get_rng_state()
    model = load(f"timm:resnet10t@{path}")
    assert torch.equal(torch.get_rng_state(), before)
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(model(images), small(images), atol=1e-5)
    assert model.transform is not None
    assert model.layer("global_pool") is not None


def test_timm_errors(tmp_path, small):
    state = small.state_dict()
    torch.save(state, tmp_path / "w.pth")
    torch.save({key: value for key, value in state.items() if key != "conv1.0.weight"}, tmp_path / "less.pth")
    torch.save({**state, "conv1.0.weight": torch.zeros(1)}, tmp_path / "shape.pth")
    torch.save({**state, "more": torch.zeros(1)}, tmp_path / "more.pth")
    torch.save({"fc.bias": torch.zeros(1)}, tmp_path / "headless.pth")
    torch.save([1], tmp_path / "list.pth")
    torch.save(Evil(tmp_path / "ran"), tmp_path / "evil.pth")
    for spec, words in (
        ("timm:resnet10t", "names no weights"),
        ("timm:resnet10tt@w.pth", "timm knows no architecture 'resnet10tt'.*resnet10t"),
        (f"timm:resnet10t@{tmp_path}/absent.pth", "do not exist"),
        (f"timm:resnet10t@{tmp_path}/less.pth", "has no tensor conv1.0.weight"),
        (f"timm:resnet10t@{tmp_path}/shape.pth", r"conv1.0.weight has shape \[1\]"),
        (f"timm:resnet10t@{tmp_path}/more.pth", "has a tensor more that resnet10t does not"),
        (f"timm:resnet10t@{tmp_path}/headless.pth", "has no tensor fc.weight"),
        (f"timm:resnet10t@{tmp_path}/list.pth", "no dictionary of tensors"),
        (f"timm:resnet10t@{tmp_path}/evil.pth", "holds no readable weights"),
    ):
        with pytest.raises(UserError, match=words):
            load_timm(spec)
    assert not (tmp_path / "ran").exists()


def saved_script(module, path):
    with pytest.warns(FutureWarning, match="torch.jit"):
        torch.jit.script(module).save(path)
    return path


@pytest.fixture
def exported(tmp_path, x):
    program = torch.export.export(net("old"), (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    torch.export.save(program, tmp_path / "old.pt2")
    return tmp_path / "old.pt2"


def test_torchscript_and_its_precision(update, x):
    model = load(update / "old.pt")
    assert torch.equal(model(x), net("old")(x))
    assert model(x.double()).dtype == torch.float64
    assert not model.training


class Writer(nn.Module):
    def __init__(self, path: str):
        super().__init__()
        self.path = path

    def forward(self, x):
        torch.save(x, self.path)
        return x


class Reader(nn.Module):
    def forward(self, x):
        return torch.from_file("/etc/hostname", False, 2)


@pytest.mark.parametrize(("module", "words"), [(Writer("x.pt"), "uses save"), (Reader(), "uses from_file")])
def test_torchscript_that_uses_files_needs_trust(tmp_path, module, words):
    path = saved_script(module, tmp_path / "files.pt")
    with pytest.raises(UserError, match=f"{words}.*--trust"):
        load(path)
    load(path, trust=True)


@pytest.mark.parametrize("way", ["CODE", "PY", "twice"])
def test_torchscript_cannot_hide_its_program(tmp_path, way):
    """torch's own reader does not care about the case of names, nor which entry of a name comes last."""
    written = saved_script(Writer("x.pt"), tmp_path / "writer.pt")
    harmless = b"def forward(self, x): return x"
    with zipfile.ZipFile(written) as good, zipfile.ZipFile(tmp_path / "hidden.pt", "w") as bad:
        for entry in good.infolist():
            is_source = entry.filename.endswith(".py")
            name = entry.filename.replace("/code/", "/CODE/") if way == "CODE" else entry.filename
            name = name.replace(".py", ".PY") if way == "PY" and is_source else name
            bad.writestr(name, good.read(entry))
            if way == "twice" and is_source:
                with pytest.warns(UserWarning, match="Duplicate name"):
                    bad.writestr(name, harmless)
    with pytest.raises(UserError, match="more than once" if way == "twice" else "a program that uses save"):
        load(tmp_path / "hidden.pt")


def test_common_torchscript_is_not_suspected(tmp_path):
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(),
        nn.LayerNorm(4),
        nn.Linear(4, 2),
    )
    assert suspect_operations(saved_script(network, tmp_path / "conv.pt")) == []


def test_torchscript_does_not_unpickle(update, tmp_path):
    with zipfile.ZipFile(update / "old.pt") as good, zipfile.ZipFile(tmp_path / "evil.pt", "w") as bad:
        for name in good.namelist():
            evil = name.endswith("data.pkl")
            bad.writestr(name, pickle.dumps(Evil(tmp_path / "ran"), 2) if evil else good.read(name))
    with pytest.raises(UserError, match=r"evil\.pt is no TorchScript file"):
        load(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


def test_what_is_no_torchscript(tmp_path):
    torch.save(net("old").state_dict(), tmp_path / "state.pth")
    with pytest.raises(UserError, match="holds no TorchScript program; it may be a state_dict"):
        load(tmp_path / "state.pth")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(UserError, match=r"text\.pt is no TorchScript file"):
        load(tmp_path / "text.pt")


def test_exported_programs(exported, x):
    with pytest.raises(UserError, match=r"torch.export.load, which unpickles .* --trust"):
        load(exported)
    model = load(exported, trust=True)
    inputs = x[:7].clone().requires_grad_()
    outputs = model(inputs)
    assert torch.allclose(outputs, net("old")(x[:7]))
    outputs[:, 1].sum().backward()
    assert bool((inputs.grad.abs().sum(dim=1) > 0).all())


def test_exported_programs_are_code(exported, tmp_path):
    """Why they need trust: the loader unpickles what the file says are example inputs."""
    stream = io.BytesIO()
    torch.save(Evil(tmp_path / "ran"), stream)
    with zipfile.ZipFile(exported) as good, zipfile.ZipFile(tmp_path / "evil.pt2", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, stream.getvalue() if "sample_inputs" in name else good.read(name))
    with pytest.raises(UserError, match="--trust"):
        load(tmp_path / "evil.pt2")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(UserError, match=r"is no readable torch\.export file"):
        load(tmp_path / "evil.pt2", trust=True)
    assert (tmp_path / "ran").exists()
