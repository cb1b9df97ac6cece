"""Models of timm: classes from the weights, and files that are refused."""

import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.tool.test_models import Evil, load
from trace.tool.errors import ToolError
from trace.tool.timm_models import load_timm


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
        with pytest.raises(ToolError, match=words):
            load_timm(spec)
    assert not (tmp_path / "ran").exists()
