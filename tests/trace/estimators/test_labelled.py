"""What labels show of an update: brute force, scikit-learn's recalls, closed forms, coverage, bad input."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, recall_score

from trace.estimators.labelled import (
    Slices,
    labelled_change,
    slices,
    slices_of_record,
    tail_interval,
    tail_mean,
    worst_slice,
)
from trace.losses import ClippedCrossEntropy, SquaredError
from trace.stats.betting import confidence_sequence, tally

LOSS = ClippedCrossEntropy()


def update(seed, n=200, classes=3):
    g = torch.Generator().manual_seed(seed)
    z, z_new = 2 * torch.randn(2, n, classes, generator=g, dtype=torch.float64)
    return z, z_new, torch.randint(0, classes, (n,), generator=g)


@given(st.integers(0, 10_000))
def test_changes_and_flips_by_brute_force(seed):
    z, z_new, y = update(seed, n=60)
    found = labelled_change(z, z_new, y, LOSS)
    was, now = ((a.argmax(dim=1) == y).tolist() for a in (z, z_new))
    assert found.negative_flips == sum(a and not b for a, b in zip(was, now, strict=True))
    assert found.positive_flips == sum(b and not a for a, b in zip(was, now, strict=True))
    change = accuracy_score(y, z.argmax(dim=1)) - accuracy_score(y, z_new.argmax(dim=1))
    assert found.error.value == pytest.approx(change, abs=1e-12)
    assert found.error.value == pytest.approx((found.negative_flips - found.positive_flips) / 60)
    losses = (LOSS(z_new, y) - LOSS(z, y)).tolist()
    assert found.risk.value == pytest.approx(math.fsum(losses) / 60, rel=1e-12)
    assert found.tail == pytest.approx(sum(sorted(losses)[-3:]) / 3)
    assert found.error.tally == tally([b - a for a, b in zip(now, was, strict=True)], -1, 1)


@given(st.integers(0, 10_000))
def test_slices_by_class_are_recalls(seed):
    z, z_new, y = update(seed)
    found = slices(z, z_new, y, "abc", y)
    before, after = z.argmax(dim=1), z_new.argmax(dim=1)
    recalls = [recall_score(y, guess, labels=[0, 1, 2], average=None, zero_division=0.0) for guess in (before, after)]
    rows = np.array(found.rows)
    assert rows.tolist() == np.bincount(y, minlength=3).tolist()
    np.testing.assert_allclose(np.array(found.right) / rows, recalls[0])
    np.testing.assert_allclose((np.array(found.worse) - found.better) / rows, recalls[0] - recalls[1], atol=1e-12)
    assert sum(found.changed) == int((before != after).sum())
    worst = worst_slice(found, 0.05, labelled=True)
    assert worst.value == pytest.approx(max(recalls[0] - recalls[1]))


def test_slices_share_the_level():
    found = Slices(("a", "b", "none"), (100, 300, 0), (20, 30, 0), (90, 280, 0), (15, 10, 0), (5, 10, 0))
    falls = [tally([1] * 15 + [-1] * 5 + [0] * 80, -1, 1), tally([1] * 10 + [-1] * 10 + [0] * 280, -1, 1)]
    ends = [confidence_sequence(rows, 0.05 / 3) for rows in falls]
    worst = worst_slice(found, 0.05, labelled=True)
    assert (worst.value, worst.lower, worst.upper) == (0.1, ends[0].lower, ends[0].upper)
    assert (worst.least_harmed, worst.least_known, worst.tally) == ("a", "a", falls[0])
    shares = worst_slice(found, 0.05, labelled=False)
    assert (shares.value, shares.tally.low) == (0.2, 0.0)


def test_the_worst_of_many_slices_is_covered():
    """Twenty classes without any change: the largest of their shares looks like harm, its interval does not."""
    rng, rejected = np.random.default_rng(0), 0
    for _ in range(300):
        worse, better = rng.binomial(50, 0.1, size=(2, 20))
        rows = (50,) * 20
        found = Slices(tuple(map(str, range(20))), rows, rows, rows, tuple(worse // 2), tuple(better // 2))
        worst = worst_slice(found, 0.2, labelled=True)
        assert worst.value > 0
        rejected += worst.lower > 0
    assert rejected <= 300 * 0.1 + 3 * math.sqrt(300 * 0.1 * 0.9)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=60), st.sampled_from([0.05, 0.1, 0.37, 0.9]))
def test_the_tail_is_its_variational_form(values, share):
    """``min_t t + E(x - t)^+ / share``, which is attained at one of the values."""
    x = np.array(values)
    expected = min(t + np.maximum(x - t, 0).mean() / share for t in x)
    assert tail_mean(torch.tensor(values, dtype=torch.float64), share) == pytest.approx(expected, abs=1e-9)


def test_tail_interval_holds_for_all_n_at_once():
    """Uniform values on [-1, 1]: the worst fifth has the mean 0.8. Seen after 50, 200, 800 and 3,200 rows."""
    rng, held, widths = np.random.default_rng(0), 0, []
    for _ in range(60):
        x = rng.uniform(-1, 1, 3200)
        found = [tail_interval(tally(x[:n], -1, 1), 0.2, 0.2) for n in (50, 200, 800, 3200)]
        held += all(f.lower <= 0.8 <= f.upper for f in found)
        widths.append(found[-1].upper - found[-1].lower)
        assert all(
            f.lower <= tail_mean(torch.tensor(x[:n]), 0.2) <= f.upper for f, n in zip(found, (50, 200), strict=False)
        )
    assert held >= 60 * 0.8
    assert max(widths) < 0.35


def test_regression_has_a_risk_and_no_classes():
    z, z_new, y = torch.zeros(50, 1), torch.ones(50, 1), torch.zeros(50)
    found = labelled_change(z, z_new, y, SquaredError(limit=2.0))
    assert (found.risk.value, found.tail, found.negative_flips) == (1.0, 1.0, 0)
    assert math.isnan(found.error.value)
    assert "classification only" in found.error.reason
    assert labelled_change(z, z_new, y, SquaredError()).risk.tally is None


def test_slices_go_through_json():
    z, z_new, y = update(0)
    found = slices(z, z_new, y, "abc", y)
    assert slices_of_record(json.loads(json.dumps(found._asdict()))) == found


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": [1]}, "counts that no rows could have"),
        ({"worse": [900, 0, 0]}, "counts that no rows could have"),
        ({"better": [-1, 0, 0]}, "counts that no rows could have"),
        ({"rows": "many"}, "holds no slices"),
        ({"rows": None}, "holds no slices"),
    ],
)
def test_records_that_no_rows_made(changed, message):
    z, z_new, y = update(0)
    record = json.loads(json.dumps(slices(z, z_new, y, "abc", y)._asdict()))
    with pytest.raises(ValueError, match=f"{message}.*: make it again"):
        slices_of_record({**record, **changed})


def test_bad_input():
    z, z_new, y = update(0)
    with pytest.raises(ValueError, match="run both models on the same inputs"):
        labelled_change(z, z_new[:5], y, LOSS)
    with pytest.raises(ValueError, match="share must lie strictly"):
        tail_mean(torch.ones(3), 1.0)
    with pytest.raises(ValueError, match="values has 0 samples"):
        tail_mean(torch.ones(0))
