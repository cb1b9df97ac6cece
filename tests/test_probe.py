"""Probes: what is known is not computed again, and what is computed equals the estimators."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from trace import Sample, Settings
from trace.estimators import gradient_quantile
from trace.estimators.lipschitz import NoGradientError
from trace.evidence import examine, gather
from trace.losses import ClippedCrossEntropy, SquaredError
from trace.probe import Features, Probe

LOSS = ClippedCrossEntropy()


@pytest.fixture
def sample(generator):
    x = torch.randn(50, 3, generator=generator)
    return Sample(x, (x[:, 0] > 0).long())


@pytest.fixture
def model(generator):
    network = nn.Linear(3, 2)
    with torch.no_grad():
        network.weight.copy_(torch.randn(2, 3, generator=generator))
    network.calls = 0
    network.register_forward_hook(lambda module, *_: setattr(module, "calls", module.calls + 1))
    return network


def test_outputs_and_sensitivities_are_computed_once(model, sample):
    probe = Probe(model, "model", LOSS, Settings())
    assert torch.equal(probe.outputs(sample), probe.outputs(sample))
    assert model.calls == 1
    first = probe.sensitivity(sample, probe, None, {}, "key")
    assert first == probe.sensitivity(sample, probe, None, {}, "key")
    assert model.calls == 2
    assert first == gradient_quantile(model, sample.x, sample.y, LOSS, q=0.99)
    other = Sample(2 * sample.x, sample.y)
    assert probe.sensitivity(other, probe, None, {}, "key") != first


def test_other_labels_are_another_sensitivity(model, sample):
    probe = Probe(model, "model", LOSS, Settings())
    given, flipped, pseudo = (
        probe.sensitivity(Sample(sample.x, y), probe, None, {}, "key") for y in (sample.y, 1 - sample.y, None)
    )
    assert flipped == gradient_quantile(model, sample.x, 1 - sample.y, LOSS, q=0.99)
    assert (given.pseudo_labels, flipped.pseudo_labels, pseudo.pseudo_labels) == (False, False, True)
    assert given != flipped


def test_inputs_that_are_gone_leave_no_key_behind(model, generator):
    probe = Probe(model, "model", LOSS, Settings())
    for scale in range(1, 30):
        x = torch.full((1, 3), float(scale))  # a new tensor may take the address of the one before
        assert torch.allclose(probe.outputs(Sample(x)), model(x))


def test_saved_outputs_are_taken_as_they_are(sample):
    def refuse(x):
        raise NoGradientError("only outputs are known")

    outputs = torch.stack([sample.x[:, 0], -sample.x[:, 0]], dim=1)
    probe, reasons = Probe(refuse, "model", LOSS, Settings()), {}
    probe.know(sample, outputs)
    assert probe.outputs(sample) is outputs
    assert probe.gap(sample, sample, reasons, "gap").value == 0
    assert probe.sensitivity(sample, probe, None, reasons, "sensitivity") is None
    assert reasons == {"sensitivity": "only outputs are known"}
    with pytest.raises(ValueError, match="3 saved rows for 50 samples"):
        probe.know(sample, outputs[:3])


def test_regression_has_no_pseudo_labels(model, sample):
    probe, reasons = Probe(model, "model", SquaredError(), Settings()), {}
    assert probe.sensitivity(Sample(sample.x), probe, None, reasons, "key") is None
    assert "no pseudo-labels for regression" in reasons["key"]


def test_features_are_computed_once(sample):
    seen = []
    features = Features(lambda x: seen.append(len(x)) or x, batch_size=30)
    assert torch.equal(features.of(sample), sample.x)
    assert features.of(sample) is features.of(sample)
    assert seen == [30, 20]
    other = Sample(sample.x + 1)
    features.know(other, sample.x)
    assert features.of(other) is sample.x


def test_examining_tells_its_stages_and_equals_gathering(model, sample):
    target = Sample(sample.x + 0.5, sample.y)
    samples = {"source_val": sample, "target_val": target}
    stages = []

    def new(x):
        return -model(x)

    @contextmanager
    def stage(name):
        stages.append(name)
        yield

    probes = (Probe(model, "model", LOSS, Settings()), Probe(new, "new_model", LOSS, Settings()))
    found = examine(*probes, sample, target, **samples, features=Features(lambda x: x), stage=stage)
    assert stages == ["outputs", "gradients", "shift", "kernel norm"]
    assert found == gather(model, new, sample, target, **samples, loss=LOSS, settings=Settings())
