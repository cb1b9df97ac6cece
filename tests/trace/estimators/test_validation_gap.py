"""Validation gaps."""

import pytest
import torch

from trace.estimators import validation_gap
from trace.stats.betting import tally


def test_equals_the_definition():
    train, val = torch.tensor([0.0, 1.0, 5.0]), torch.tensor([4.0, 6.0])
    gap = validation_gap(train, val)
    assert (gap.value, gap.train_risk, gap.val_risk) == (3.0, 2.0, 5.0)
    assert validation_gap(val, train).value == 3.0
    assert validation_gap(train, train).value == 0.0
    assert gap.tally is None
    assert validation_gap(train, val, bound=8.0).tally == tally(val, 0, 8.0)


def test_float32_sums_do_not_drift():
    losses = torch.full((10_000_001,), 0.1, dtype=torch.float32)
    assert validation_gap(losses, losses[:3]).value < 1e-9


@pytest.mark.parametrize(
    ("train", "val", "message"),
    [
        (torch.zeros(0), torch.zeros(3), "train_losses has 0 samples"),
        (torch.zeros(3), torch.tensor([torch.nan]), "val_losses holds NaN"),
        (torch.zeros(3), torch.zeros(3, 1), r"val_losses must have shape \[n\]"),
        (torch.zeros(3).long(), torch.zeros(3), "train_losses must be float32 or float64"),
    ],
)
def test_bad_input(train, val, message):
    with pytest.raises(ValueError, match=message):
        validation_gap(train, val)
