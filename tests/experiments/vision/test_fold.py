"""Folded batch normalisation: the same outputs, fewer modules, and no trust in an order that is not the calls'."""

import pytest
import timm
import torch
from torch import nn

from experiments.vision.backbone import BackboneSpec, load_backbone
from experiments.vision.fold import folded


@pytest.fixture
def images(generator):
    return torch.randn(2, 3, 64, 64, generator=generator)


def stirred(model, generator):
    """Statistics and scales that are not those of a new network, or folding them would change nothing."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            module.weight.data.uniform_(0.5, 1.5, generator=generator)
            module.bias.data.normal_(generator=generator)
    return model.eval()


def normalisations(model):
    return sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())


@pytest.mark.parametrize("arch", ["test_efficientnet", "resnet18"])
def test_outputs_stay_and_every_normalisation_goes(arch, images, generator):
    model = stirred(timm.create_model(arch, num_classes=0), generator)
    before = normalisations(model)
    fast = folded(model, images)
    assert normalisations(fast) == 0 < before == normalisations(model)
    other = torch.randn(3, 3, 64, 64, generator=generator)
    expected = model(other)
    assert (fast(other) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_a_trunk_is_folded_too(images, generator):
    backbone = load_backbone(BackboneSpec("test_efficientnet", weights="none", size=64))
    trunk = stirred(backbone.trunk(), generator)
    fast = folded(trunk, images)
    assert normalisations(fast) == 0
    torch.testing.assert_close(fast(images), trunk(images), rtol=1e-4, atol=1e-4)


class Crossed(nn.Module):
    """A norm that stands behind a convolution and is called before it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.conv(self.norm(x).relu())


def test_another_order_of_calls_is_noticed(images, generator):
    model = stirred(Crossed(), generator)
    assert folded(model, images) is model
