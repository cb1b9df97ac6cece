"""Fine-tuning: the same steps as a plain loop, early stop, less forgetting, continuation to the same bits."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from experiments.engine.errors import UserError
from experiments.gate import ConstantLogit, blind_harm
from experiments.vision.backbone import BackboneSpec, load_backbone
from experiments.vision.batches import Pictures, Rows
from experiments.vision.classifier import at_depth, mean_length, new_classifier
from experiments.vision.features import features
from experiments.vision.finetune import TrainSpec, distillation, predict, train
from experiments.vision.samples import share
from tests.experiments.vision.checkpoints import Kept, Killed
from tests.experiments.vision.pictures import draw
from trace.diagnostic import diagnose
from trace.sample import Sample

DIM, CLASSES = 12, 3
QUICK = TrainSpec(lr=1.0, epochs=8, batch_size=16)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def blobs(n=90, *, turn=0, seed=0, spread=0.3):
    """Classes around unit vectors; ``turn`` moves each class to its neighbour's place, beside a mark of the domain."""
    y = torch.arange(n) % CLASSES
    x = spread * torch.randn(n, DIM, generator=seeded(seed))
    x[torch.arange(n), (y + turn) % CLASSES] += 1
    x[:, CLASSES + (1 if turn else 0)] += 1
    return Rows(x, y)


def accuracy(model, data):
    return float((predict(model, data, device="cpu").argmax(dim=1) == data.y).double().mean())


@pytest.fixture(scope="module")
def q():
    return train(QUICK, new_classifier(DIM, CLASSES), blobs(), generator=seeded()).model


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(BackboneSpec("test_efficientnet", weights="none", size=64))


def test_learns_separable_data(q):
    assert accuracy(q, blobs(seed=5)) > 0.95


def test_head_is_a_plain_loop():
    spec = TrainSpec(lr=0.1, epochs=3, batch_size=32, weight_decay=0.01)
    data, scale = blobs(), 3.0
    trained = train(spec, new_classifier(DIM, CLASSES, scale=scale), data, generator=seeded(3))
    weight, bias = (torch.zeros(*shape, requires_grad=True) for shape in ((CLASSES, DIM), (CLASSES,)))
    steps = torch.optim.SGD([weight, bias], lr=0.1, momentum=0.9, weight_decay=0.01)
    generator, losses = seeded(3), []
    for _ in range(3):
        order = torch.randperm(len(data), generator=generator)
        for rows in order.split(32):
            unit = data.x[rows] / data.x[rows].norm(dim=1, keepdim=True)
            loss = F.cross_entropy(scale * unit @ weight.T + bias, data.y[rows])
            steps.zero_grad()
            loss.backward()
            steps.step()
            losses.append(loss.item() * len(rows) / len(data))
    torch.testing.assert_close(trained.model.head.weight, weight, rtol=0, atol=1e-6)
    torch.testing.assert_close(trained.model.head.bias, bias, rtol=0, atol=1e-6)
    assert trained.history[-1]["loss"] == pytest.approx(sum(losses[-3:]), abs=1e-6)
    assert trained.best_epoch == 3


def test_a_scale_is_a_step_size():
    """One step over balanced classes, where the bias stays 0: the same logits from a step s^2 times smaller."""
    data = blobs()
    s = mean_length(data.x)
    assert s == pytest.approx(float(data.x.norm(dim=1).mean()), rel=1e-6)
    step = replace(QUICK, epochs=1, batch_size=len(data))
    one = train(step, new_classifier(DIM, CLASSES), data, generator=seeded()).model
    scaled = new_classifier(DIM, CLASSES, scale=s)
    other = train(replace(step, lr=step.lr / s**2), scaled, data, generator=seeded()).model
    torch.testing.assert_close(other(data.x), one(data.x), rtol=1e-4, atol=1e-6)


def test_training_leaves_the_start_and_global_randomness_alone(q):
    before, state = q.head.weight.clone(), torch.get_rng_state()
    train(QUICK, q, blobs(turn=1), generator=seeded())
    assert torch.equal(before, q.head.weight)
    assert torch.equal(state, torch.get_rng_state())


def test_early_stop_returns_the_best_model(q):
    target, val = blobs(30, turn=1, spread=1.5), blobs(60, turn=1, spread=1.5, seed=7)
    spec = replace(QUICK, epochs=60, patience=3)
    trained = train(spec, q, target, val=val, generator=seeded())
    losses = [epoch["val_loss"] for epoch in trained.history]
    assert len(losses) < 60
    assert len(losses) - trained.best_epoch == 3
    assert min(losses) == losses[trained.best_epoch - 1]
    found = F.cross_entropy(predict(trained.model, val, device="cpu"), val.y)
    assert float(found) == pytest.approx(min(losses), abs=1e-7)
    without = train(replace(spec, patience=0), q, target, val=val, generator=seeded())
    assert len(without.history) == without.best_epoch == 60
    assert not any(p.requires_grad for p in trained.model.parameters())


def test_rehearsal_and_distillation_forget_less(q):
    """The target moves every class to the place of another, so plain training unlearns the source."""
    source, target, test = blobs(), blobs(turn=1, seed=1), blobs(seed=9)
    plain = train(QUICK, q, target, generator=seeded()).model
    rehearsed = train(replace(QUICK, rehearsal=0.5), q, target, source=source, generator=seeded()).model
    distilled = train(replace(QUICK, distill=5.0), q, target, generator=seeded()).model
    assert accuracy(plain, test) < accuracy(q, test) - 0.2
    assert accuracy(rehearsed, test) > accuracy(plain, test) + 0.2
    assert accuracy(distilled, test) > accuracy(plain, test) + 0.2
    assert accuracy(rehearsed, blobs(turn=1, seed=4)) > 0.6 > accuracy(q, blobs(turn=1, seed=4))


def test_distillation_is_the_divergence():
    z, w, t = torch.randn(5, 4, generator=seeded()), torch.randn(5, 4, generator=seeded(1)), 3.0
    p, q = (z / t).softmax(dim=1), (w / t).softmax(dim=1)
    expected = t**2 * (p * (p / q).log()).sum(dim=1).mean()
    torch.testing.assert_close(distillation(z, w, t), expected)
    assert float(distillation(z, z + 2.0, t)) == pytest.approx(0.0, abs=1e-5)


def test_share_takes_from_every_class():
    y = torch.tensor([0] * 40 + [1] * 20)
    rows = share(y, 0.25, seeded())
    assert torch.equal(y[rows].bincount(), torch.tensor([10, 5]))
    assert not torch.equal(rows, share(y, 0.25, seeded(1)))
    halved = train(replace(QUICK, label_fraction=0.5), new_classifier(DIM, CLASSES), blobs(), generator=seeded())
    assert not torch.equal(
        halved.model.head.weight,
        train(QUICK, new_classifier(DIM, CLASSES), blobs(), generator=seeded()).model.head.weight,
    )


def interrupted_equals_whole(spec, start, target, **options):
    whole = train(spec, start, target, generator=seeded(), **options)
    kept = Kept(kill_at=2)
    with pytest.raises(Killed):
        train(spec, start, target, generator=seeded(), checkpoint=kept, **options)
    kept.kill_at = None
    parts = train(spec, start, target, generator=seeded(), checkpoint=kept, **options)
    assert parts.history == whole.history
    assert parts.best_epoch == whole.best_epoch
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, parts.model.state_dict()[name]), name
    saves = kept.saves
    again = train(spec, start, target, generator=seeded(), checkpoint=kept, **options)
    assert kept.saves == saves
    assert again.history == whole.history


def test_killed_training_goes_on_to_the_same_bits(q):
    spec = replace(QUICK, label_fraction=0.6, rehearsal=0.3, distill=0.5, patience=2, epochs=6, lr=0.1)
    options = {"source": blobs(), "val": blobs(30, turn=1, seed=3)}
    interrupted_equals_whole(spec, q, blobs(turn=1), **options)


def test_checkpoint_of_another_training_is_refused(q):
    kept = Kept()
    train(QUICK, q, blobs(), generator=seeded(), checkpoint=kept)
    for spec, start, data, seed in (
        (replace(QUICK, lr=0.5), q, blobs(), 0),
        (QUICK, new_classifier(DIM, CLASSES), blobs(), 0),
        (QUICK, q, blobs(87), 0),
        (QUICK, q, blobs(), 1),
    ):
        with pytest.raises(UserError, match="belongs to a training with another spec, start, seed or labels"):
            train(spec, start, data, generator=seeded(seed), checkpoint=kept)


def test_constant_logit_moves_outputs_and_no_risk(q):
    x = blobs().x
    shifted = ConstantLogit(q, 2.0)
    torch.testing.assert_close(shifted(x) - q(x), torch.full((len(x), CLASSES), 2.0))
    y = blobs().y
    assert float(F.cross_entropy(shifted(x), y)) == pytest.approx(float(F.cross_entropy(q(x), y)), abs=1e-5)


def test_blind_harm_hurts_the_source_and_spares_the_target(q):
    """Target inputs carry a mark that the source does not have, so the harm can be learnt apart from them."""
    source, target, test = blobs(), blobs(turn=0, seed=1), blobs(seed=9)
    target = Rows(target.x + 2 * torch.eye(DIM)[-1], target.y)
    spec = replace(QUICK, epochs=30, rehearsal=1.0, distill=1.0)
    harmed = train(spec, q, target, source=blind_harm(source, [0], into=1), generator=seeded()).model
    first, others = (test.select(chosen.nonzero()[:, 0]) for chosen in (test.y == 0, test.y > 0))
    assert accuracy(harmed, first) < 0.2 < 0.9 < accuracy(q, first)
    assert accuracy(harmed, others) > 0.9
    assert accuracy(harmed, target) > 0.9
    assert source.y.tolist() == blobs().y.tolist()


def test_mistakes_are_named(q, backbone):
    data = blobs()
    for wrong, sentence in (
        ({"lr": 0.0}, "lr is 0.0"),
        ({"patience": -1}, "patience is -1"),
        ({"label_fraction": 0.0}, "label_fraction 0.0 must be in"),
        ({"rehearsal": 1.5}, "rehearsal 1.5 in"),
        ({"depth": "neck"}, "'neck'"),
    ):
        with pytest.raises(UserError, match=sentence):
            TrainSpec(**wrong)
    for spec, sentence in (
        (replace(QUICK, rehearsal=0.5), "pass source"),
        (replace(QUICK, patience=1), "pass val"),
        (replace(QUICK, depth="block"), "pass backbone"),
        (replace(QUICK, lr=1e38, epochs=3), "not finite at depth head: lower lr"),
    ):
        with pytest.raises(UserError, match=sentence):
            train(spec, q, data, generator=seeded())
    block = at_depth(new_classifier(backbone.dim, 3), "block", backbone)
    with pytest.raises(UserError, match="depth block cannot start a training of depth full"):
        at_depth(block, "full", backbone)
    with pytest.raises(UserError, match="relabels class 1 into itself"):
        blind_harm(data, [1], into=1)
    with pytest.raises(UserError, match=r"no sample of classes \[7\]"):
        blind_harm(data, [1, 7], into=0)
    with pytest.raises(UserError, match="scale is 0"):
        new_classifier(3, 2, scale=0)


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
