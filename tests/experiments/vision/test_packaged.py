"""Packaged weights: what is read is what was stored, in networks that compute what was published."""

import hashlib
import io
import zipfile

import pytest
import timm
import torch
from sklearn.datasets import load_sample_image
from torch import nn
from torch.nn import functional as F
from torchvision.models import inception

from experiments.engine.errors import UserError
from experiments.fetch import pypi
from experiments.vision import packaged
from experiments.vision.backbone import BackboneSpec, folded, load_backbone
from experiments.vision.packaged import PACKAGED, packaged_model, pooled_as_published, saved, scripted_inception
from tests.requirements import lacking


@pytest.fixture(scope="module")
def network():
    """Inception-v3 of random weights, with statistics that are not those of a new network."""
    generator = torch.Generator().manual_seed(0)
    model = timm.create_model("inception_v3", num_classes=0).eval()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan_in = module.weight[0].numel()
            module.weight.data = torch.randn(module.weight.shape, generator=generator) * (2 / fan_in) ** 0.5
        elif isinstance(module, nn.BatchNorm2d):
            module.bias.data = torch.randn(module.bias.shape, generator=generator) / 4
            module.running_mean = torch.randn(module.running_mean.shape, generator=generator) / 4
            module.running_var = 0.5 + torch.rand(module.running_var.shape, generator=generator)
    return model


def archive_of(model):
    """As TorchScript stores it: numbered buffers, four a convolution, beside code that must not be run."""
    buffer = io.BytesIO()
    state = model.state_dict()
    wanted = [n for n in state if n.endswith(("conv.weight", "bn.bias", "running_mean", "running_var"))]
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("module/data.pkl", b"cos\nsystem\n(S'exit 1'\ntR.")
        for number, name in reversed(list(enumerate(wanted))):
            file.writestr(f"module/data/{number}", state[name].numpy().tobytes())
    return buffer.getvalue()


def test_tensors_of_an_archive_are_those_that_were_stored(network):
    state = network.state_dict()
    found = scripted_inception(archive_of(network), list(state.values()))
    assert len(found) == len(state) == PACKAGED["inception_v3"].num_tensors
    for (name, expected), tensor in zip(state.items(), found, strict=True):
        if name.endswith("num_batches_tracked"):
            continue
        assert torch.equal(tensor, torch.ones_like(expected) if name.endswith("bn.weight") else expected), name


def branches(block, x):
    """The block's outputs but for its pooling branch, as torchvision computes them."""
    return block._forward(x)[:-1]


class Reference(inception.Inception3):
    """Inception-v3 of 2015, as Heusel et al. use it: torchvision's but for three poolings."""

    def mixed(self, block, x):
        pool = F.max_pool2d(x, 3, 1, 1) if block is self.Mixed_7c else F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        return torch.cat([*branches(block, x), block.branch_pool(pool)], dim=1)

    def forward(self, x):
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))
        x = self.maxpool2(x)
        for name in ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c"):
            block = getattr(self, f"Mixed_{name}")
            x = self.mixed(block, x) if hasattr(block, "branch_pool") else block(x)
        return self.avgpool(x).flatten(1)


def test_pooling_is_that_of_2015(network, generator):
    reference = Reference(num_classes=2, aux_logits=False, init_weights=False).eval()
    own = reference.state_dict()
    fc = {name: own[name] for name in ("fc.weight", "fc.bias")}
    reference.load_state_dict(network.state_dict() | fc)
    x = torch.randn(2, 3, 96, 96, generator=generator)
    with torch.inference_mode():
        before, expected = network(x), reference(x)
        changed = timm.create_model("inception_v3", num_classes=0).eval()
        changed.load_state_dict(network.state_dict())
        pooled_as_published(changed)
        torch.testing.assert_close(changed(x), expected, rtol=1e-4, atol=1e-5)
        assert (before - expected).abs().max() > 1e-3
        quick = folded(changed, x)
        assert quick is not changed
        torch.testing.assert_close(quick(x), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture
def packed(monkeypatch):
    """A tiny architecture whose weights are packaged as ``model`` has them."""

    def pack(model, **about):
        buffer = io.BytesIO()
        torch.save({f"other.{name}": tensor for name, tensor in model.state_dict().items()}, buffer)
        body = buffer.getvalue()
        file = pypi.PackagedFile("toy", "1", "toy/w.pth", hashlib.sha256(body).hexdigest(), "MIT")
        known = packaged.PackagedBackbone(file, len(model.state_dict()), model.num_classes, **about)
        monkeypatch.setitem(PACKAGED, "test_efficientnet", known)
        monkeypatch.setattr(packaged, "content", lambda asked: body if asked is file else None)

    return pack


def test_an_entry_is_a_backbone(packed):
    """Named otherwise and in the same order, with and without its classifier; its own changes come last."""
    for num_classes in (7, 0):
        model = timm.create_model("test_efficientnet", num_classes=num_classes).eval()
        packed(model)
        before = torch.get_rng_state()
        backbone = load_backbone(BackboneSpec("test_efficientnet", size=64))
        assert torch.equal(before, torch.get_rng_state())
        x = torch.rand(2, 3, 64, 64)
        torch.testing.assert_close(backbone.model(x), model.forward_head(model.forward_features(x), pre_logits=True))
    packed(model, prepare=lambda made: made.conv_stem.weight.data.zero_())
    assert not load_backbone(BackboneSpec("test_efficientnet", size=64)).model.conv_stem.weight.any()


def test_weights_that_do_not_fit_are_refused(packed):
    model = timm.create_model("test_efficientnet", num_classes=0)
    packed(model, tensors=lambda archive, own: saved(archive, own)[1:])
    with pytest.raises(UserError, match=r"toy/w.pth holds \d+ tensors and test_efficientnet \d+, not \d+: install"):
        packaged_model("test_efficientnet")
    packed(model, tensors=lambda archive, own: [t.flatten() for t in saved(archive, own)])
    with pytest.raises(UserError, match=r"has shape .* in toy/w.pth and .* in test_efficientnet"):
        packaged_model("test_efficientnet")


def test_a_network_without_a_classifier_knows_photographs():
    """MobileNetV2, fetched if it is not at hand: parts of one photograph are alike, and no part of the other."""
    try:
        backbone = load_backbone(BackboneSpec("mobilenetv2_100"))
    except UserError as error:
        lacking(f"no package index answers ({error})", required_by="TRACE_REQUIRE_PYPI")
    photographs = [torch.tensor(load_sample_image(n)).permute(2, 0, 1) / 255 for n in ("china.jpg", "flower.jpg")]
    mean, deviation = (torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    parts = torch.stack([((p - mean) / deviation)[:, 150:374, i : i + 224] for p in photographs for i in (100, 200)])
    h = F.normalize(backbone.model(parts))
    alike = h @ h.T
    assert min(alike[0, 1], alike[2, 3]) > 0.3 + alike[:2, 2:].max()
