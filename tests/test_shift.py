"""The shift between two samples: what it holds, and large samples thinned for the quadratic MMD."""

import functools

import pytest
import torch

from trace import Sample, Settings, diagnose, shift
from trace.estimators import mmd, transport
from trace.shift import measure_shift


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
    few = functools.partial(transport.sinkhorn_divergence, max_samples=50, subsample=15)
    monkeypatch.setattr(shift, "sinkhorn_divergence", few)
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


def test_other_settings_are_refused(samples):
    x, y = samples
    with pytest.raises(ValueError, match="another mmd_samples"):
        measure_shift(x, y).check(Settings(mmd_samples=20), (60, 40))
    with pytest.raises(ValueError, match="mmd_samples"):
        Settings(mmd_samples=0)
