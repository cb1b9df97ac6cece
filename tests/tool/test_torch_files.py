"""Models from TorchScript and torch.export: the same outputs, and no code that nobody agreed to."""

import io
import pickle
import zipfile

import pytest
import torch
from torch import nn

from tests.tool.test_models import Evil, load
from trace.tool.errors import ToolError
from trace.tool.torch_files import suspect_operations

from .conftest import net


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
    with pytest.raises(ToolError, match=f"{words}.*--trust"):
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
    with pytest.raises(ToolError, match="more than once" if way == "twice" else "a program that uses save"):
        load(tmp_path / "hidden.pt")


def test_common_torchscript_is_not_suspected(tmp_path):
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                            nn.Dropout(), nn.LayerNorm(4), nn.Linear(4, 2))  # fmt: skip
    assert suspect_operations(saved_script(network, tmp_path / "conv.pt")) == []


def test_torchscript_does_not_unpickle(update, tmp_path):
    with zipfile.ZipFile(update / "old.pt") as good, zipfile.ZipFile(tmp_path / "evil.pt", "w") as bad:
        for name in good.namelist():
            evil = name.endswith("data.pkl")
            bad.writestr(name, pickle.dumps(Evil(tmp_path / "ran"), 2) if evil else good.read(name))
    with pytest.raises(ToolError, match=r"evil\.pt is no TorchScript file"):
        load(tmp_path / "evil.pt")
    assert not (tmp_path / "ran").exists()


def test_what_is_no_torchscript(tmp_path):
    torch.save(net("old").state_dict(), tmp_path / "state.pth")
    with pytest.raises(ToolError, match="holds no TorchScript program; it may be a state_dict"):
        load(tmp_path / "state.pth")
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(ToolError, match=r"text\.pt is no TorchScript file"):
        load(tmp_path / "text.pt")


def test_exported_programs(exported, x):
    with pytest.raises(ToolError, match=r"torch.export.load, which unpickles .* --trust"):
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
    with pytest.raises(ToolError, match="--trust"):
        load(tmp_path / "evil.pt2")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ToolError, match=r"is no readable torch\.export file"):
        load(tmp_path / "evil.pt2", trust=True)
    assert (tmp_path / "ran").exists()
