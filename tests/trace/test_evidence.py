"""Probes: what is known is not computed again, and what is computed equals the estimators."""

import functools
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from trace import Sample, Settings, diagnose
from trace import evidence as shift_module
from trace.estimators import gradient_quantile, mmd
from trace.estimators import sinkhorn as transport
from trace.estimators.gradient_quantile import NoGradientError
from trace.evidence import Features, Probe, examine, gather, measure_shift, shared_self
from trace.losses import ClippedCrossEntropy, SquaredError

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


@pytest.fixture
def samples(generator):
    return torch.randn(60, 3, generator=generator), torch.randn(40, 3, generator=generator) + 1


def test_of_large_samples_some_rows_at_even_strides_enter_the_mmd(samples):
    x, y = samples
    whole, few = measure_shift(x, y), measure_shift(x, y, Settings(mmd_samples=20))
    kept = [torch.linspace(0, n - 1, 20).round().long() for n in (60, 40)]
    assert few.mmd == mmd(x[kept[0]], y[kept[1]])
    assert whole.mmd == mmd(x, y)
    assert few.transport == whole.transport


def test_floors_are_those_of_the_sizes_compared(samples, generator, monkeypatch):
    x, y = samples
    whole = measure_shift(x, y, generator=generator)
    assert (whole.floor.sample_sizes, whole.target_floor.sample_sizes) == ((30, 30), (20, 20))
    monkeypatch.setattr(shift_module, "MAX_SAMPLES", 50)
    few = functools.partial(transport.sinkhorn_divergence, subsample=15)
    monkeypatch.setattr(shift_module, "sinkhorn_divergence", few)
    found = measure_shift(x, y, generator=generator)
    assert found.transport.sample_sizes == (15, 15)
    assert found.floor.sample_sizes == found.target_floor.sample_sizes == (15, 15)


def test_the_remainder_counts_the_rows_that_entered(samples):
    x, y = samples
    pair = Sample(x, (x[:, 0] > 0).long()), Sample(y, (y[:, 0] > 1).long())
    models = (lambda x: x[:, :2], lambda x: 2 * x[:, :2])
    whole, few = (diagnose(*models, *pair, settings=Settings(mmd_samples=rows)) for rows in (100, 20))
    norms = [d.evidence.rkhs_norm.value for d in (whole, few)]
    assert few.population_mmd / norms[1] > 1.2 * whole.population_mmd / norms[0]


def test_samples_are_named(samples):
    x, y = samples
    with pytest.raises(ValueError, match="target has 1 samples, at least 2 are needed"):
        measure_shift(x, y[:1])
    with pytest.raises(ValueError, match="source has 1 samples, at least 2 are needed"):
        measure_shift(x[:1], y)
    still = torch.zeros(200, 3)
    with pytest.raises(ValueError, match=r"most rows of source and target coincide.*Settings\(bandwidth=\.\.\.\)"):
        measure_shift(x, still)
    assert measure_shift(x, still, Settings(bandwidth=1.0)).mmd.value > 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kernel": "cosine"}, "kernel must be 'rbf' or 'laplace', got 'cosine'"),
        ({"bandwidth": 0.0}, "bandwidth must be finite and positive, got 0"),
        ({"bandwidth": -1.0}, "bandwidth must be finite and positive, got -1"),
        ({"bandwidth": 1e-20}, "bandwidth must be at least 1e-15"),
        ({"mmd_constant": -1.0}, "mmd_constant must be finite and at least 0, got -1"),
        ({"mmd_samples": 1}, "mmd_samples must be at least 2"),
        ({"delta": 0.6, "eta": 0.5}, "delta \\+ eta must lie strictly between 0 and 1"),
    ],
)
def test_settings_are_refused_when_they_are_made(wrong, message):
    with pytest.raises(ValueError, match=message):
        Settings(**wrong)


def test_levels_as_printed_do_not_share_a_budget():
    assert Settings(delta=0.6, eta=0.5, remainders="paper").delta == 0.6


def test_other_settings_are_refused(samples):
    x, y = samples
    with pytest.raises(ValueError, match="another mmd_samples"):
        measure_shift(x, y).check(Settings(mmd_samples=20), (60, 40))
    with pytest.raises(ValueError, match="mmd_samples"):
        Settings(mmd_samples=0)


def test_what_is_shared_between_comparisons_changes_nothing(samples, monkeypatch):
    x, y = samples
    whole = measure_shift(x, y, generator=torch.Generator().manual_seed(0))
    shared = measure_shift(x, y, source_self=shared_self(x, Settings()), floors=False, generator=torch.Generator())
    assert (shared.transport, shared.mmd) == (whole.transport, whole.mmd)
    assert whole.floor is not None
    assert (shared.floor, shared.target_floor) == (None, None)
    assert shared_self(x, Settings(distance="wasserstein1")) is None
    monkeypatch.setattr(shift_module, "MAX_SAMPLES", 50)
    assert shared_self(x, Settings()) is None
