"""Fine-tuning of the last block and of the whole network: where it starts, what it moves, how it goes on."""

from dataclasses import replace

import pytest
import torch

from experiments.vision.backbone import BackboneSpec, load_backbone
from experiments.vision.batches import Pictures, Rows
from experiments.vision.cache import features
from experiments.vision.finetune import TrainSpec, predict, train
from experiments.vision.models import at_depth, new_classifier
from tests.experiments.vision.pictures import draw
from tests.experiments.vision.test_finetune import interrupted_equals_whole, seeded
from trace.diagnostic import diagnose
from trace.sample import Sample


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(BackboneSpec("test_efficientnet", weights="none", size=64))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, backbone):
    """Images, their maps and features, and a head trained on them."""
    folder = tmp_path_factory.mktemp("drawn")
    image_set = draw(folder / "images", per_class=6)
    y = torch.tensor(image_set.labels)
    h = features(image_set, backbone, cache=folder / "cache")
    maps = features(image_set, backbone, cache=folder / "cache", layer="maps")
    head = train(TrainSpec(lr=3.0, epochs=3), new_classifier(backbone.dim, 3), Rows(h, y), generator=seeded()).model
    return image_set, Rows(h, y), Rows(maps, y), head


def test_deeper_models_start_as_the_same_function(drawn, backbone):
    image_set, h, maps, head = drawn
    expected = predict(head, h, device="cpu")
    on_maps = predict(at_depth(head, "block", backbone), maps, device="cpu")
    on_images = predict(at_depth(head, "full", backbone), Pictures.of(image_set, backbone), device="cpu")
    torch.testing.assert_close(on_images, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(on_maps, expected, rtol=0, atol=5e-3 * float(expected.abs().max()))


def test_block_trains_the_last_block_and_nothing_else(drawn, backbone):
    _, _, maps, head = drawn
    before = backbone.digest
    trained = train(TrainSpec(depth="block", lr=0.05, epochs=4), head, maps, backbone=backbone, generator=seeded())
    assert trained.history[-1]["loss"] < trained.history[0]["loss"]
    start = at_depth(head, "block", backbone)
    moved = {
        n: not torch.equal(a, b) for (n, a), b in zip(start.named_parameters(), trained.model.parameters(), strict=True)
    }
    assert all(moved.values())
    for (name, a), b in zip(start.named_buffers(), trained.model.buffers(), strict=True):
        assert torch.equal(a, b), name
    assert load_backbone(backbone.spec).digest == before
    assert torch.equal(
        torch.cat([p.flatten() for p in backbone.model.parameters()]),
        torch.cat([p.flatten() for p in load_backbone(backbone.spec).model.parameters()]),
    )


def test_killed_block_training_goes_on(drawn, backbone):
    _, _, maps, head = drawn
    interrupted_equals_whole(TrainSpec(depth="block", lr=0.01, epochs=3, batch_size=8), head, maps, backbone=backbone)


@pytest.mark.parametrize("workers", [0, 1])
def test_full_network_on_augmented_pictures(drawn, backbone, workers):
    image_set, _, _, head = drawn
    pictures = Pictures.of(image_set, backbone)
    spec = TrainSpec(depth="full", lr=0.01, epochs=3, batch_size=6, distill=0.1)
    if workers == 0:
        interrupted_equals_whole(spec, head, pictures, backbone=backbone)
    alone = train(replace(spec, epochs=1), head, pictures, backbone=backbone, generator=seeded())
    ahead = replace(pictures, workers=workers)
    shared = train(replace(spec, epochs=1), head, ahead, backbone=backbone, generator=seeded())
    assert alone.history == shared.history


def test_models_of_every_depth_can_be_diagnosed(drawn, backbone):
    _, _, maps, head = drawn
    sample = Sample(maps.x.float(), maps.y)
    old = at_depth(head, "block", backbone)
    new = train(TrainSpec(depth="block", lr=0.05, epochs=1), head, maps, backbone=backbone, generator=seeded()).model
    found = diagnose(
        old, new, sample, sample, feature_map=old.features, gradient_at=(old.features, new.features), anchor_test=sample
    )
    assert found.model_change > 0
    assert found.evidence.sensitivity_target is not None
    assert found.evidence.sensitivity_target.value > 0
