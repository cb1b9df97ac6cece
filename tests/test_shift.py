"""The shift between two samples: what it holds, and large samples thinned for the quadratic MMD."""

import functools

import pytest
import torch

from trace import Sample, Settings, diagnose
from trace import shift as shift_module
from trace.estimators import mmd, transport
from trace.shift import measure_shift, shared_self


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
