"""Model change: direct formulas, the Lipschitz inequality it stands for, invariances, bad input."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trace.estimators import output_distance
from trace.losses import ClippedCrossEntropy


def logits(seed, n=25, classes=5, scale=6.0, dtype=torch.float64):
    return scale * torch.randn(n, classes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_definition(dtype):
    z, z_new = logits(0, dtype=dtype), logits(1, dtype=dtype)
    change = (z_new.clamp(-10, 10) - z.clamp(-10, 10)).double()
    centred = change - change.mean(dim=1, keepdim=True)
    found = output_distance(z, z_new)
    assert found.value == pytest.approx(float(change.norm(dim=1).mean()), rel=1e-12)
    assert found.squared == pytest.approx(float(change.square().sum(dim=1).mean()), rel=1e-12)
    assert found.centred == pytest.approx(float(centred.norm(dim=1).mean()), rel=1e-12)
    assert found.centred_squared == pytest.approx(float(centred.square().sum(dim=1).mean()), rel=1e-12)
    assert (found.tally.low, found.tally.high) == (0, pytest.approx(20 * math.sqrt(5)))
    assert (found.tally.n, found.tally.mean) == (len(z), pytest.approx(found.value))
    assert found.standard_error == pytest.approx(float(change.norm(dim=1).std()) / 5, rel=1e-12)


def test_readings_of_a_known_change():
    z = torch.zeros(2, 2)
    found = output_distance(z, torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    assert (found.value, found.squared) == (2.5, 12.5)
    assert found.centred == pytest.approx(math.sqrt(0.5) / 2)


def test_clipping_is_optional():
    z, z_new = torch.zeros(1, 2), torch.tensor([[30.0, 0.0]])
    assert output_distance(z, z_new).value == 10.0
    assert output_distance(z, z_new, clip_at=3.0).value == 3.0
    assert output_distance(z, z_new, clip_at=None).value == 30.0


@given(st.integers(0, 10_000), st.floats(-3, 3))
def test_centred_reading_ignores_a_constant(seed, constant):
    z = logits(seed, scale=1.0)
    found = output_distance(z, z + constant)
    assert found.centred == pytest.approx(0.0, abs=1e-12)
    assert found.value == pytest.approx(abs(constant) * math.sqrt(5))


@given(st.integers(0, 10_000))
def test_bounds_the_change_in_empirical_risk(seed):
    """``|R(Q~) - R(Q)| <= L_ell M_l2`` for every labelling, with the centred distance too."""
    loss, z, z_new = ClippedCrossEntropy(), logits(seed), logits(seed + 1)
    y = torch.randint(0, 5, (25,), generator=torch.Generator().manual_seed(seed))
    change = abs(float(loss(z_new, y).mean() - loss(z, y).mean()))
    found = output_distance(z, z_new)
    assert change <= loss.lipschitz * found.centred + 1e-12
    assert found.centred <= found.value + 1e-12
    assert found.value**2 <= found.squared + 1e-12


@given(st.integers(0, 10_000))
def test_symmetric_and_zero_on_itself(seed):
    z, z_new = logits(seed), logits(seed + 1)
    assert output_distance(z, z_new) == output_distance(z_new, z)
    assert output_distance(z, z).squared == 0.0


def test_single_output_is_not_centred():
    found = output_distance(torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]))
    assert found.value == found.centred == 2.0
    assert math.isnan(output_distance(torch.zeros(1, 1), torch.ones(1, 1)).standard_error)


@pytest.mark.parametrize(
    ("z", "z_new", "options", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(4, 2), {}, "logits has 3 rows but new_logits has 4"),
        (torch.zeros(3, 2), torch.zeros(3, 3), {}, "logits and new_logits differ in columns"),
        (torch.zeros(0, 2), torch.zeros(0, 2), {}, "logits has 0 samples"),
        (torch.zeros(3, 2), torch.full((3, 2), torch.inf), {}, "new_logits holds NaN or infinity"),
        (torch.zeros(3, 2), torch.zeros(3, 2).long(), {}, "new_logits must be float32 or float64"),
        (torch.zeros(3, 2), torch.zeros(3, 2), {"clip_at": -1.0}, "clip_at must be finite and positive"),
    ],
)
def test_bad_input(z, z_new, options, message):
    with pytest.raises(ValueError, match=message):
        output_distance(z, z_new, **options)
