"""Feature maps."""

import pytest
import torch
from torch import nn

from trace.features import extract, extract_with_outputs, identity, l2_normalised, layer_features


@pytest.fixture
def model():
    return nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def test_identity_flattens():
    assert identity(torch.zeros(4, 2, 3)).shape == (4, 6)


def test_layer_features_are_the_penultimate_outputs(model, generator):
    x = torch.randn(10, 3, generator=generator)
    features = extract(layer_features(model, model[2]), x, batch_size=4)
    assert torch.allclose(features, model.eval()[:3](x))
    assert not features.requires_grad


def test_models_come_back_as_they_were(model):
    layer_features(model, model[2])(torch.zeros(2, 3))
    assert model.training
    assert not model[2]._forward_hooks


def test_normalised_features_have_unit_length(model, generator):
    u = extract(l2_normalised(identity), torch.randn(5, 3, generator=generator))
    assert u.norm(dim=1).tolist() == pytest.approx([1.0] * 5)


def test_normalising_keeps_a_module_in_eval_mode(model, generator):
    x = torch.randn(10, 3, generator=generator)
    before = model[1].running_mean.clone()
    features = extract(l2_normalised(model), x)
    assert torch.equal(model[1].running_mean, before)
    assert model.training
    assert torch.allclose(features, nn.functional.normalize(model.eval()(x), dim=1))


def test_in_place_layers_do_no_harm(generator):
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = torch.randn(10, 3, generator=generator)
    kept = x.clone()
    features = extract(layer_features(model, model[1]), x)
    assert torch.equal(x, kept)
    assert float(features.min()) < 0


def test_batches_do_not_matter(model, generator):
    x = torch.randn(9, 3, generator=generator)
    assert torch.allclose(extract(model, x, batch_size=2), extract(model, x))


@pytest.mark.parametrize(
    "bad", [lambda x: x.sum(dim=1), lambda x: x.tolist(), lambda x: x[:2], lambda x: x * torch.nan]
)
def test_bad_feature_map(bad):
    with pytest.raises(ValueError, match="feature_map returned"):
        extract(bad, torch.zeros(4, 3))


def test_layer_outside_the_model(model):
    with pytest.raises(ValueError, match="layer was run 0 times"):
        layer_features(model, nn.ReLU())(torch.zeros(2, 3))
    recurrent = nn.GRU(3, 2)
    with pytest.raises(ValueError, match="layer returns a tuple"):
        layer_features(recurrent, recurrent)(torch.zeros(2, 3))


def test_features_and_outputs_of_one_pass(model, generator):
    x = torch.randn(10, 3, generator=generator)
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))
    features, outputs = extract_with_outputs(model, model[2], x, batch_size=4)
    assert len(calls) == 3
    assert model.training
    assert torch.allclose(features, extract(layer_features(model, model[2]), x))
    assert torch.allclose(outputs, model.eval()(x))
