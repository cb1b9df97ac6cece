"""The paper's protocol on a small tree: Q and updates fine-tuned whole, rows to stop by, gradients in images."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

from experiments import active, gate
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.vision.backbone import BackboneSpec, load_backbone
from experiments.vision.batches import Pictures, Rows
from experiments.vision.classifier import at_depth, new_classifier
from experiments.vision.features import features
from experiments.vision.finetune import TrainSpec, predict, train
from experiments.vision.sensitivity import ALL_LABELS, image_sensitivity, on_images
from experiments.vision.study import Study
from experiments.vision.updates import known_views, models_at, side_by_side
from tests.device import NAME, counted, short_of_memory
from tests.experiments.vision.pictures import draw
from trace import Settings
from trace.estimators.gradient_quantile import gradient_quantile
from trace.estimators.jacobians import slopes
from trace.evidence import Update
from trace.losses import ClippedCrossEntropy

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")

NETWORK = BackboneSpec("test_efficientnet", weights="none", size=32)
LOSS = ClippedCrossEntropy()
PROTOCOL = {"source_depth": "full", "gradient_in": "input"}


@pytest.fixture
def selecting(tree):
    return active.Config(**{**tree, **PROTOCOL, "depth": "full", "patience": 1, "source_epochs": 1, "rounds": 1})


@pytest.fixture
def gating(tree):
    (point, *_) = expand("gate", ["config=smoke", f"data={tree['data']}"])
    candidate = gate.FineTune(name="full", depth="full", epochs=1, patience=1)
    return replace(point.config, **PROTOCOL, source_epochs=1, candidate=candidate)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return Pictures.of(draw(tmp_path_factory.mktemp("pictures"), size=40), load_backbone(NETWORK))


def new_generator():
    return torch.Generator().manual_seed(0)


def test_the_profile_asks_for_it():
    runs = expand("gate", ["config=paper", "seed=0"])
    assert len({point.config.candidate.name for point in runs}) == len(runs) == 20
    trained = [point.config.candidate for point in runs]
    assert {(c.depth, c.lr, c.momentum, c.patience > 0) for c in trained} == {("full", 3e-4, 0.9, True)}
    rounds = expand("active", ["config=paper", "seed=0"])
    assert {(p.config.depth, p.config.lr, p.config.epochs, p.config.patience > 0) for p in rounds} == {
        ("full", 3e-4, 5, True)
    }
    for point in (*runs, *rounds):
        c = point.config
        assert (c.arch, c.weights, c.source_depth, c.gradient_in) == ("resnet50", "hub", "full", "input")
    for experiment in ("gate", "active"):
        quick = {point.config.source_depth for point in expand(experiment, ["config=paper-head"])}
        assert quick == {"head"}


def test_the_gate_on_a_device(gating, new_context):
    expected = gate.run(gating, new_context())
    with counted(1100):
        assert gate.run(replace(gating, device=NAME), new_context()) == expected
    in_features = gate.run(replace(gating, gradient_in="features"), new_context())
    changed = {name for name, value in in_features.items() if value != expected[name]}
    assert changed == {
        *("sensitivity_source", "sensitivity_target", "largest_gradient_source", "largest_gradient_target"),
        "population_ot",
    }


def test_active_selection_on_a_device(selecting, new_context):
    expected = active.run(selecting, new_context())
    with counted(1100):
        assert active.run(replace(selecting, device=NAME), new_context()) == expected
    assert expected["columns"]["labeled"] == [4]


def test_rows_that_end_a_training_are_read_by_no_term(selecting):
    study, plain = Study.of(selecting, stopping=selecting.target), Study.of(selecting)
    (at_full, stop), (at_head, _) = study.at("full", selecting.target), study.at("head", selecting.target)
    whole = plain.pictures(selecting.target)
    assert set(at_full.val.paths).isdisjoint(stop.paths)
    assert {*at_full.val.paths, *stop.paths} == set(whole.val.paths)
    assert torch.equal(at_full.val.y, at_head.val.y)
    assert at_full.train.paths == whole.train.paths
    assert study.pictures(selecting.source).val.paths == plain.pictures(selecting.source).val.paths


def test_h_is_the_frozen_network_and_not_q(selecting, new_context):
    study, context = Study.of(replace(selecting, source_epochs=3, source_lr=0.1)), new_context()
    source, target = study.domain(selecting.source), study.domain(selecting.target)
    q = study.source_model(source, context)
    assert q.depth == "full"
    frozen, own = study.backbone.model.state_dict(), q.features[0].state_dict()
    assert any(not torch.equal(tensor, own[name]) for name, tensor in frozen.items())
    models = models_at(study, "full", q, selecting.target, context)
    seen = side_by_side(models, q, device="cpu")
    settings = Settings()
    views = known_views(study, selecting.target, models.q, q, seen.held_out, LOSS, settings)(
        Update((seen.q, seen.update), LOSS, settings, seen.q.features, (seen.q.features, seen.update.features))
    )
    assert torch.equal(views["target_val"].features, target.val.x)
    assert not torch.allclose(views["target_val"].features, models.target_view.val, atol=1e-6)


def test_gradients_in_images_are_those_of_one_tensor(pictures):
    network = load_backbone(NETWORK)
    model = at_depth(new_classifier(network.dim, 3), "full", network).requires_grad_(False)
    torch.nn.init.normal_(model.head.weight, generator=new_generator())
    x = torch.cat(list(pictures.stream([torch.arange(len(pictures))])))
    found = image_sensitivity(model, pictures, LOSS, Settings(), device="cpu")
    expected = gradient_quantile(model, x, pictures.y, LOSS)
    assert found.quantile[:7] == pytest.approx(expected[:7], rel=1e-4)
    (largest,), _ = slopes([model], x, LOSS, num_outputs=3)
    assert found.largest.num_samples == ALL_LABELS < len(x)
    assert float(found.quantile.lower) <= found.largest.value <= largest.value * (1 + 1e-4)


@pytest.mark.parametrize("depth", ["head", "block", "full"])
def test_a_model_of_any_depth_is_one_of_images(depth, tmp_path):
    network, images = load_backbone(NETWORK), draw(tmp_path, size=40)
    y = torch.tensor(images.labels)
    inputs = {
        "head": lambda: Rows(normalize(features(images, network, cache=tmp_path)), y),
        "block": lambda: Rows.on_disk(features(images, network, cache=tmp_path, layer="maps"), y),
        "full": lambda: Pictures.of(images, network),
    }[depth]()
    spec = TrainSpec(depth=depth, lr=0.01, epochs=1, batch_size=8)
    model = train(spec, new_classifier(network.dim, 3), inputs, backbone=network, generator=new_generator()).model
    expected = predict(model, inputs, device="cpu")
    found = predict(on_images(model, network), Pictures.of(images, network), device="cpu")
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_memory_that_is_short_is_answered_by_halves(pictures, capsys):
    network = load_backbone(NETWORK, device=NAME)
    spec = TrainSpec(depth="full", lr=0.01, epochs=1, batch_size=8, distill=0.5)

    def trained():
        start = new_classifier(network.dim, 3).to(NAME)
        return train(spec, start, pictures, backbone=network, generator=new_generator(), device=NAME)

    expected = trained().model.state_dict()
    assert "memory" not in capsys.readouterr().out
    with short_of_memory(4):
        found = trained().model.state_dict()
    assert capsys.readouterr().out.count("batches of 8 go on in two halves") == 1
    for name, tensor in found.items():
        assert torch.allclose(tensor.cpu(), expected[name].cpu(), rtol=1e-5, atol=1e-7), name
    with short_of_memory(3), pytest.raises(UserError, match=r"too little memory for 4 inputs .* lower batch_size=8"):
        trained()


def test_depths_that_do_not_fit_are_refused(selecting, gating):
    with pytest.raises(UserError, match="Q is trained at depth full and its update at head"):
        active.check(replace(selecting, depth="head"))
    with pytest.raises(UserError, match="Q is trained at depth full and its update at block"):
        gate.check(replace(gating, candidate=gate.FineTune(name="block", depth="block")))
    with pytest.raises(UserError, match="gradient_in is 'pixels': it must be one of features, input"):
        active.check(replace(selecting, gradient_in="pixels"))
    with pytest.raises(UserError, match="depth 'deep' is unknown"):
        active.check(replace(selecting, depth="deep"))
