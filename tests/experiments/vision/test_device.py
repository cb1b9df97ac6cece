"""Fine-tuning and both case studies on a device that is not the CPU: the same numbers, few copies off the device."""

from dataclasses import replace

import pytest
import torch

from experiments import active, gate
from experiments.engine.config import expand
from experiments.vision.backbone import BackboneSpec, load_backbone
from experiments.vision.batches import Pictures, Rows
from experiments.vision.classifier import features_of, new_classifier
from experiments.vision.features import features
from experiments.vision.finetune import TrainSpec, predict, train
from tests.device import NAME, counted
from tests.experiments.vision.pictures import draw
from trace.selection import names

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")

NETWORK = BackboneSpec("test_efficientnet", weights="none", size=64)
EPOCHS = 2


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return draw(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="module")
def inputs(images, tmp_path_factory):
    """What is trained on at each depth."""
    network, cache, y = load_backbone(NETWORK), tmp_path_factory.mktemp("cache"), torch.tensor(images.labels)
    return {
        "head": Rows(features(images, network, cache=cache), y),
        "block": Rows.on_disk(features(images, network, cache=cache, layer="maps"), y),
        "full": Pictures.of(images, network),
    }


@pytest.mark.parametrize("depth", ["head", "block", "full"])
def test_fine_tuning_gives_the_weights_of_the_cpu(depth, inputs):
    """Rehearsal, distillation and the early stop included; two copies an epoch for its record, one for validation,
    and the head's for the mark of the checkpoint. Gradients of convolutions are summed in another order there."""
    data, num_classes = inputs[depth], int(inputs["head"].y.max()) + 1
    spec = TrainSpec(depth=depth, lr=0.01, epochs=EPOCHS, batch_size=8, rehearsal=0.5, distill=0.5, patience=2)

    def trained(device, most=0):
        backbone = load_backbone(NETWORK, device=device)
        start = new_classifier(backbone.dim, num_classes).to(device)
        options = {"source": data, "val": data, "backbone": backbone, "generator": torch.Generator().manual_seed(0)}
        with counted(most):
            return train(spec, start, data, device=device, **options)

    here, there = trained("cpu"), trained(NAME, len(["weight", "bias", "scale"]) + 3 * EPOCHS)
    for epoch, expected in zip(there.history, here.history, strict=True):
        assert epoch == pytest.approx(expected, rel=1e-6)
    for name, tensor in there.model.state_dict().items():
        assert tensor.device.type == NAME
        assert torch.allclose(tensor.cpu(), here.model.state_dict()[name], rtol=1e-6, atol=1e-8), name
    with counted(1):
        logits = predict(there.model, data, device=NAME)
    assert torch.allclose(logits, predict(here.model, data, device="cpu"), rtol=1e-5, atol=1e-7)
    with counted(0):
        seen = features_of(there.model, data, device=NAME)
    assert torch.allclose(seen.cpu(), features_of(here.model, data, device="cpu"), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("layer", ["penultimate", "maps"])
def test_features_are_extracted_on_the_device(layer, images, tmp_path):
    """A copy a batch; the cores of a CPU take fewer images at once, which moves the last digits."""
    backbone = load_backbone(NETWORK, device=NAME)
    with counted(4):
        found = features(images, backbone, cache=tmp_path / "there", device=NAME, layer=layer)
    expected = features(images, load_backbone(NETWORK), cache=tmp_path / "here", layer=layer)
    assert found.dtype == expected.dtype
    assert torch.allclose(found.float(), expected.float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("candidate", ["head", "block", "rehearsal", "constant", "blind-harm"])
def test_the_gate_finds_on_the_device_what_it_finds_on_the_cpu(candidate, tree, new_context):
    runs = expand("gate", ["config=smoke", f"data={tree['data']}"])
    (config,) = [point.config for point in runs if point.config.candidate.name == candidate]
    expected = gate.run(config, new_context())
    with counted(570):
        assert gate.run(replace(config, device=NAME), new_context()) == expected


def test_the_gate_fine_tunes_the_whole_network_there(tree, new_context):
    runs = expand("gate", ["config=smoke", f"data={tree['data']}"])
    config = replace(next(iter(runs)).config, candidate=gate.FineTune(name="full", depth="full", epochs=1))
    expected = gate.run(config, new_context())
    with counted(740):
        assert gate.run(replace(config, device=NAME), new_context()) == expected


@pytest.mark.parametrize("policy", names())
def test_active_selection_labels_the_same_rows(policy, tree, new_context, tmp_path):
    """Shared results too are found by either, whoever computed them. Most copies are sweeps of Sinkhorn."""
    config = active.Config(**{**tree, "policy": policy})
    expected = active.run(config, new_context(tmp_path / "store"))
    with counted(910):
        assert active.run(replace(config, device=NAME), new_context()) == expected
    assert active.run(replace(config, device=NAME), new_context(tmp_path / "store")) == expected
