"""Anchor terms: the chain of inequalities on every draw, known values, what is not available, bad input."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trace.estimators import anchor_terms
from trace.losses import ClippedCrossEntropy, Huber, Loss, SquaredError, ZeroOne
from trace.stats.betting import confidence_sequence, tally
from trace.training.anchor_penalty import lipschitz_penalty


def logits(seed, n=40, classes=3, scale=4.0, dtype=torch.float64):
    return scale * torch.randn(n, classes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def labels(seed, n=40, classes=3):
    return torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 10_000), st.floats(0.1, 8))
def test_chain_of_bounds_for_every_labelling(seed, scale):
    loss, z, z_new, y = ClippedCrossEntropy(), logits(seed, scale=scale), logits(seed + 1, scale=scale), labels(seed)
    terms = anchor_terms(z, z_new, loss)
    change = abs(float(loss(z_new, y).mean() - loss(z, y).mean()))
    error_change = abs(float(ZeroOne()(z_new, y).mean() - ZeroOne()(z, y).mean()))
    assert change <= terms.worst_label.value + 1e-12
    assert terms.worst_label.value <= terms.lipschitz.value + 1e-12
    assert error_change <= terms.disagreement.value + 1e-12
    assert abs(terms.plug_in.value) <= terms.worst_label.value + 1e-12
    assert 0 <= terms.error_plug_in.value <= terms.disagreement.value


def test_a_constant_added_to_all_logits_changes_nothing():
    z = logits(0, scale=1.0)
    terms = anchor_terms(z, z + 2.0, ClippedCrossEntropy())
    for term in (terms.worst_label, terms.lipschitz, terms.disagreement, terms.plug_in, terms.error_plug_in):
        assert term.value == pytest.approx(0.0, abs=1e-12)


class Margin(ClippedCrossEntropy):
    """``|z|_1 / sqrt(C)``: 1-Lipschitz, and a constant added to all outputs changes it."""

    lipschitz = 1.0
    change_norms = Loss.change_norms

    def __call__(self, outputs, targets):
        return self.clip(outputs).abs().sum(dim=1) / math.sqrt(outputs.shape[1])


def test_only_losses_that_ignore_a_constant_are_centred():
    z, loss = logits(0, scale=1.0), Margin()
    y = labels(0)
    change = abs(float((loss(z + 2, y) - loss(z, y)).mean()))
    assert 0.1 < change <= anchor_terms(z, z + 2, loss).lipschitz.value
    assert change <= float(lipschitz_penalty(z, z + 2, loss))
    limited = Huber(limit=20.0)
    moved = limited.change_norms(z[:, :1], z[:, :1] + 2)
    assert moved.tolist() == pytest.approx([2.0] * len(z))


def test_plug_in_is_exact_for_a_calibrated_model():
    """Labels drawn from the old model's own distribution: the plug-in is the expected change."""
    z, z_new = logits(0, n=200_000, scale=1.5), logits(1, n=200_000, scale=1.5)
    y = z.softmax(dim=1).multinomial(1, generator=torch.Generator().manual_seed(2))[:, 0]
    loss = ClippedCrossEntropy()
    true = float((loss(z_new, y) - loss(z, y)).mean())
    terms = anchor_terms(z, z_new, loss)
    assert terms.plug_in.value == pytest.approx(true, abs=0.02)
    assert true > 0.5
    errors = float((ZeroOne()(z_new, y) - ZeroOne()(z, y)).mean())
    assert terms.error_plug_in.value == pytest.approx(errors, abs=0.005)
    assert errors > 0.1


def test_intervals_are_the_stated_ones():
    z, z_new = logits(0), logits(1)
    terms = anchor_terms(z, z_new, ClippedCrossEntropy())
    changed = (z.argmax(1) != z_new.argmax(1)).double()
    differs = float(changed.mean())
    assert terms.disagreement.value == differs
    assert terms.disagreement.interval(0.1) == confidence_sequence(tally(changed, 0, 1), 0.1)
    assert terms.num_samples == 40
    assert terms.disagreement.deviation == pytest.approx(math.sqrt(differs * (1 - differs) * 40 / 39))
    high = terms.worst_label.tally.high
    assert terms.plug_in.tally[:2] == (-high, high)
    assert terms.error_plug_in.tally[:2] == (0, 1)
    for term in (terms.worst_label, terms.lipschitz, terms.disagreement, terms.plug_in, terms.error_plug_in):
        interval = term.interval(0.1)
        assert interval.lower <= term.value <= interval.upper
        assert interval.level == pytest.approx(0.9)
        assert term.tally.mean == pytest.approx(term.value)


@given(st.integers(0, 10_000))
def test_regression_chain(seed):
    loss = Huber(limit=2.0)
    z, z_new = logits(seed, classes=1, scale=1.0), logits(seed + 1, classes=1, scale=1.0)
    y = logits(seed + 2, classes=1, scale=1.0)[:, 0].clamp(-2, 2)
    terms = anchor_terms(z, z_new, loss)
    change = abs(float(loss(z_new, y).mean() - loss(z, y).mean()))
    assert change <= terms.worst_label.value + 1e-12 <= terms.lipschitz.value + 2e-12
    assert math.isnan(terms.disagreement.value)
    assert terms.disagreement.reason == "disagreement is defined for classification only"


def test_what_is_not_available_says_why():
    z, z_new = logits(0, classes=1), logits(1, classes=1)
    unbounded = anchor_terms(z, z_new, SquaredError())
    assert math.isnan(unbounded.worst_label.value)
    assert "SquaredError is unbounded" in unbounded.worst_label.reason
    assert "no finite Lipschitz constant" in unbounded.lipschitz.reason
    assert unbounded.plug_in.value == pytest.approx(float((z_new - z).square().mean()))
    assert unbounded.plug_in.interval(0.05).upper == math.inf
    assert "no interval" in unbounded.plug_in.reason
    huber = anchor_terms(z, z_new, Huber(delta=0.5)).lipschitz
    assert huber.value == pytest.approx(0.5 * float((z_new - z).abs().mean()))
    assert "no interval" in huber.reason


def test_zero_one_loss_worst_label_is_the_disagreement():
    terms = anchor_terms(logits(0), logits(1), ZeroOne())
    assert terms.worst_label.value == terms.disagreement.value > 0


@pytest.mark.parametrize(
    ("z", "z_new", "message"),
    [
        (torch.zeros(3, 2), torch.zeros(4, 2), "run both models on the same inputs"),
        (torch.zeros(0, 2), torch.zeros(0, 2), "outputs has 0 samples"),
        (torch.zeros(3, 2), torch.full((3, 2), torch.nan), "new_outputs holds NaN"),
    ],
)
def test_bad_input(z, z_new, message):
    with pytest.raises(ValueError, match=message):
        anchor_terms(z, z_new, ClippedCrossEntropy())


def test_bad_level():
    with pytest.raises(ValueError, match="delta must lie strictly between"):
        anchor_terms(logits(0), logits(1), ClippedCrossEntropy()).disagreement.interval(0.0)
