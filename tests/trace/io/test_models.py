"""Models from scikit-learn and from the user's own code: the same outputs, and no code that nobody agreed to."""

import io
import os
import sys
import zipfile

import joblib
import numpy as np
import pytest
import skops.io
import timm
import torch
from safetensors.torch import save_file
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

from trace.io.checksum import sha256
from trace.io.errors import UserError
from trace.io.models import load_model, load_timm

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


def load(spec, *, trust=False, arch=None):
    return load_model(str(spec), "--model", trust=trust, device=CPU, arch=arch)


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


@pytest.mark.parametrize("suffix", ["pkl", "joblib"])
def test_pickles_need_trust(tmp_path, x, suffix):
    forest = RandomForestClassifier(3, random_state=0).fit(*rows(50, 0.0, 0))
    path = tmp_path / f"forest.{suffix}"
    joblib.dump(forest, path)
    with pytest.raises(UserError, match=r"is a pickle, .* so it can run any code"):
        load(path)
    assert np.allclose(load(path, trust=True)(x).exp().numpy(), forest.predict_proba(x.numpy()), atol=1e-6)
    joblib.dump({"a": 1}, path)
    with pytest.raises(UserError, match="gives a dict: a torch module or a scikit-learn estimator is needed"):
        load(path, trust=True)


@pytest.mark.parametrize(
    "estimator",
    [
        DecisionTreeClassifier(max_depth=4),
        ExtraTreeClassifier(),
        RandomForestClassifier(5, n_jobs=2),
        ExtraTreesClassifier(5, max_leaf_nodes=9),
        make_pipeline(StandardScaler(), RandomForestClassifier(5)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_trees_and_forests_need_no_trust(tmp_path, x, estimator):
    fitted = estimator.fit(*rows(200, 0.0, 0))
    skops.io.dump(fitted, tmp_path / "m.skops")
    model = load(tmp_path / "m.skops")
    assert np.allclose(model(x).exp().numpy(), fitted.predict_proba(x.numpy()), atol=1e-6)


@pytest.mark.parametrize("estimator", [DecisionTreeRegressor(), ExtraTreesRegressor(3), RandomForestRegressor(3)])
def test_regression_trees_need_no_trust(tmp_path, x, estimator):
    features, _ = rows(200, 0.0, 0)
    fitted = estimator.fit(features, features[:, 0] ** 2)
    skops.io.dump(fitted, tmp_path / "m.skops")
    assert np.allclose(load(tmp_path / "m.skops")(x)[:, 0].numpy(), fitted.predict(x.numpy()), atol=1e-6)


def test_a_tree_that_splits_off_what_is_missing(tmp_path, x):
    """Its threshold is infinite, which is no fault."""
    features, y = rows(200, 0.0, 0)
    features[::2, 1] = np.nan
    y = np.isnan(features[:, 1]).astype(int)
    fitted = DecisionTreeClassifier().fit(features, y)
    assert np.isinf(fitted.tree_.threshold).any()
    skops.io.dump(fitted, tmp_path / "m.skops")
    assert np.allclose(load(tmp_path / "m.skops")(x).exp().numpy(), fitted.predict_proba(x.numpy()), atol=1e-6)


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
    jacobians = held_out_anchors + held_out_target
    assert rows_seen["old"] == everything + held_out_anchors + jacobians  # outputs, then gradients
    training = 170 + 255  # of the anchors, which only a page shows
    assert rows_seen["new"] == everything - training + held_out_target + held_out_target


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
        (f"timm:resnet10t@{tmp_path}/absent.pth", "does not exist"),
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
    with pytest.raises(UserError, match=r"old\.pt is TorchScript, a program, so it can run any code: .* --trust"):
        load(update / "old.pt")
    model = load(update / "old.pt", trust=True)
    assert torch.equal(model(x), net("old")(x))
    assert model(x.double()).dtype == torch.float64
    assert not model.training


def test_the_kind_is_told_by_the_content(update, tmp_path, fitted, x):
    """A name says nothing: neither does it hide a program, nor does it keep a model from being read."""
    skops.io.dump(fitted, tmp_path / "model.pkl")
    assert load(tmp_path / "model.pkl").classes == ("no", "yes")
    (tmp_path / "model.skops").write_bytes((update / "old.pt").read_bytes())
    with pytest.raises(UserError, match="is TorchScript"):
        load(tmp_path / "model.skops")
    assert torch.equal(load(tmp_path / "model.skops", trust=True)(x), net("old")(x))
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(UserError, match=r"text\.pt is of no known kind"):
        load(tmp_path / "text.pt", trust=True)


NETWORKS = """
from tests.trace.conftest import net
def network(): return net("new")
def number(): return 3
"""


@pytest.mark.parametrize("suffix", ["pth", "safetensors", "legacy"])
def test_a_state_dict_with_its_architecture(tmp_path, monkeypatch, x, suffix):
    (tmp_path / "my_networks.py").write_text(NETWORKS)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / f"state.{suffix}"
    if suffix == "safetensors":
        save_file(net("old").state_dict(), path)
    else:
        torch.save(net("old").state_dict(), path, _use_new_zipfile_serialization=suffix == "pth")
    model = load(path, trust=True, arch="my_networks:network")
    assert torch.equal(model(x), net("old")(x))
    assert model.sha256 == sha256(path)
    with pytest.raises(UserError, match=r"--arch my_networks:network is code, .* pass --trust to run it"):
        load(path, arch="my_networks:network")
    with pytest.raises(UserError, match="gives a int: a torch module is needed"):
        load(path, trust=True, arch="my_networks:number")
    with pytest.raises(UserError, match="names no function: write module:function"):
        load(path, trust=True, arch="my_networks.network")
    with pytest.raises(UserError, match=r"name the function that makes it with --arch|is a pickle"):
        load(path)


def test_an_architecture_needs_a_state_dict(tool, update):
    code, _, err = tool(
        "diagnose", "--trust", "--arch", "mine:network", "--model", update / "old.pt", "--new-model",
        update / "new.pt", "--source", update / "source.npz", "--target", update / "target.npz",
    )  # fmt: skip
    assert code == 3
    assert "--arch is for models that are state dicts, and neither is one: leave it out" in err


def test_exported_programs(exported, x):
    with pytest.raises(UserError, match=r"is read by torch\.export, which unpickles, .* --trust"):
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
    with pytest.raises(UserError, match=r"evil\.pt2 cannot be loaded"):
        load(tmp_path / "evil.pt2", trust=True)
    assert (tmp_path / "ran").exists()
