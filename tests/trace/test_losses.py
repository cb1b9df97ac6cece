"""Losses: torch as the oracle, bounds that are reached, Lipschitz constants that are reached, label-free changes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from trace.checks import check_within_bound
from trace.losses import ClippedCrossEntropy, Huber, SquaredError, ZeroOne

CLASSIFICATION = [ClippedCrossEntropy(), ClippedCrossEntropy(clip_at=2.0), ZeroOne()]
REGRESSION = [SquaredError(limit=3.0), Huber(limit=3.0), Huber(limit=3.0, delta=10.0), Huber(limit=0.2, delta=1.0)]


def logits(seed, n=20, classes=4, scale=8.0):
    return scale * torch.randn(n, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(seed, n=20, classes=4):
    return torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(seed))


def targets(seed, n=20, limit=0.2):
    return limit * (2 * torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1)


def test_values_equal_torch():
    z, y = logits(0), labels(0)
    assert torch.equal(ClippedCrossEntropy()(z, y), F.cross_entropy(z.clamp(-10, 10), y, reduction="none"))
    assert torch.equal(ZeroOne()(z, y), (z.argmax(1) != y).double())
    out, t = logits(1, classes=1), targets(1)
    assert torch.equal(SquaredError()(out, t), (out[:, 0] - t) ** 2)
    assert torch.equal(Huber(delta=2.0)(out, t), F.huber_loss(out[:, 0], t, reduction="none", delta=2.0))


@pytest.mark.parametrize("classes", [2, 3, 345])
@pytest.mark.parametrize("clip_at", [0.5, 10.0])
def test_cross_entropy_reaches_its_bound_and_exceeds_the_published_one(classes, clip_at):
    loss = ClippedCrossEntropy(clip_at)
    worst = torch.full((1, classes), 100.0, dtype=torch.float64)
    worst[0, 0] = -100.0
    reached = float(loss(worst, torch.tensor([0])))
    assert reached == pytest.approx(loss.bound(classes), rel=1e-12)
    assert loss.bound(classes, "paper") == pytest.approx(clip_at + math.log(classes))
    if clip_at == 10.0:
        assert reached > loss.bound(classes, "paper") + 7


@pytest.mark.parametrize("loss", REGRESSION)
def test_regression_reaches_its_bound(loss):
    b = loss.limit
    reached = loss(torch.tensor([[10 * b]], dtype=torch.float64), torch.tensor([-b], dtype=torch.float64))
    assert float(reached) == pytest.approx(loss.bound(1), rel=1e-12)


@given(st.integers(0, 10_000), st.sampled_from(CLASSIFICATION), st.floats(0.01, 20))
def test_classification_stays_within_bound(seed, loss, scale):
    losses = loss(logits(seed, scale=scale), labels(seed))
    assert check_within_bound(losses, loss.bound(4), "losses") is losses


@given(st.integers(0, 10_000), st.floats(0.01, 20))
def test_cross_entropy_lipschitz_constant(seed, scale):
    loss, y = ClippedCrossEntropy(), labels(seed)
    z, z_new = logits(seed, scale=scale), logits(seed + 1, scale=scale)
    change = (loss(z_new, y) - loss(z, y)).abs()
    assert bool((change <= loss.lipschitz * (z_new - z).norm(dim=1) + 1e-12).all())


def test_cross_entropy_lipschitz_constant_is_reached():
    loss, y = ClippedCrossEntropy(), torch.tensor([0])
    z = torch.tensor([[-9.0, 9.0]], dtype=torch.float64)
    step = torch.tensor([[-1e-4, 1e-4]], dtype=torch.float64)
    rate = float(loss(z + step, y) - loss(z, y)) / float(step.norm())
    assert rate == pytest.approx(math.sqrt(2), rel=1e-6)


@given(st.integers(0, 10_000), st.sampled_from(REGRESSION))
def test_regression_lipschitz_constant(seed, loss):
    y = targets(seed)
    z, z_new = logits(seed, classes=1, scale=2.0), logits(seed + 1, classes=1, scale=2.0)
    change = (loss(z_new, y) - loss(z, y)).abs()
    clipped = (loss.clip(z_new) - loss.clip(z)).abs()[:, 0]
    assert bool((change <= loss.lipschitz * clipped + 1e-12).all())


@pytest.mark.parametrize("loss", REGRESSION)
def test_regression_lipschitz_constant_is_reached(loss):
    b = torch.tensor([loss.limit], dtype=torch.float64)
    step = 1e-6
    rate = float(loss((b - step)[:, None], -b) - loss((b - 2 * step)[:, None], -b)) / step
    assert rate == pytest.approx(loss.lipschitz, rel=1e-4)


@given(st.integers(0, 10_000), st.sampled_from(CLASSIFICATION))
def test_worst_label_is_the_maximum_over_labels(seed, loss):
    z, z_new = logits(seed, scale=5.0), logits(seed + 1, scale=5.0)
    per_label = torch.stack([loss(z_new, torch.full((20,), c)) - loss(z, torch.full((20,), c)) for c in range(4)])
    assert loss.worst_label_change(z, z_new).numpy() == pytest.approx(per_label.abs().amax(dim=0).numpy(), abs=1e-12)
    least, most = loss.change_range(z, z_new)
    assert least.numpy() == pytest.approx(per_label.amin(dim=0).numpy(), abs=1e-12)
    assert most.numpy() == pytest.approx(per_label.amax(dim=0).numpy(), abs=1e-12)


@given(st.integers(0, 10_000), st.sampled_from(REGRESSION))
def test_worst_target_is_the_maximum_over_a_grid(seed, loss):
    z, z_new = logits(seed, classes=1, scale=2.0), logits(seed + 1, classes=1, scale=2.0)
    grid = torch.linspace(-loss.limit, loss.limit, 101, dtype=torch.float64)
    changes = torch.stack([loss(z_new, y.expand(20)) - loss(z, y.expand(20)) for y in grid])
    assert loss.worst_label_change(z, z_new).numpy() == pytest.approx(changes.abs().amax(dim=0).numpy(), abs=1e-12)
    least, most = loss.change_range(z, z_new)
    assert least.numpy() == pytest.approx(changes.amin(dim=0).numpy(), abs=1e-12)
    assert most.numpy() == pytest.approx(changes.amax(dim=0).numpy(), abs=1e-12)


@given(st.integers(0, 10_000), st.sampled_from(CLASSIFICATION))
def test_expected_change_is_the_mean_under_the_old_prediction(seed, loss):
    z, z_new = logits(seed, scale=3.0), logits(seed + 1, scale=3.0)
    p = loss.clip(z).softmax(dim=1)
    by_label = torch.stack([loss(z_new, torch.full((20,), c)) - loss(z, torch.full((20,), c)) for c in range(4)], dim=1)
    assert loss.expected_change(z, z_new).numpy() == pytest.approx((p * by_label).sum(dim=1).numpy(), abs=1e-12)


def test_expected_squared_change_is_the_squared_distance():
    z, z_new = logits(0, classes=1), logits(1, classes=1)
    assert torch.equal(SquaredError().expected_change(z, z_new), (z_new - z).square()[:, 0])


@given(st.integers(0, 10_000), st.floats(-5, 5))
def test_cross_entropy_ignores_a_constant(seed, constant):
    z = logits(seed, scale=1.0)
    assert ClippedCrossEntropy(50.0).worst_label_change(z, z + constant).abs().max() < 1e-9


def test_losses_without_finite_constants():
    assert SquaredError().bound(1) == SquaredError().lipschitz == math.inf
    assert Huber().bound(1) == math.inf
    assert Huber(delta=0.7).lipschitz == 0.7
    assert ZeroOne().lipschitz == math.inf
    assert ZeroOne().output_diameter(3) == math.inf
    assert ClippedCrossEntropy().output_diameter(4) == pytest.approx(40.0)
    with pytest.raises(ValueError, match="SquaredError without a limit has no worst label: set limit"):
        SquaredError().worst_label_change(logits(0, classes=1), logits(1, classes=1))


def test_dtype_is_kept():
    for dtype in (torch.float32, torch.float64):
        z = logits(0).to(dtype)
        for loss in CLASSIFICATION:
            assert loss(z, labels(0)).dtype == dtype
            assert loss.worst_label_change(z, z).dtype == dtype


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ClippedCrossEntropy(clip_at=0.0), "clip_at must be finite and positive"),
        (lambda: SquaredError(limit=-1.0), "limit must be finite and positive"),
        (lambda: Huber(delta=math.inf), "delta must be finite and positive"),
        (lambda: ClippedCrossEntropy()(torch.zeros(3, 1), torch.zeros(3).long()), "one logit per class is needed"),
        (lambda: ClippedCrossEntropy()(torch.zeros(3, 2), torch.tensor([0, 1, 2])), "targets holds labels 0 to 2"),
        (lambda: ClippedCrossEntropy()(torch.zeros(3, 2), torch.tensor([0, -1, 1])), "targets holds labels -1 to 1"),
        (lambda: ClippedCrossEntropy()(torch.zeros(3, 2), torch.zeros(3)), "targets must be an integer tensor"),
        (lambda: ClippedCrossEntropy()(torch.zeros(3, 2), torch.zeros(2).long()), r"targets has shape \[2\] for 3"),
        (lambda: ClippedCrossEntropy()(torch.full((3, 2), torch.nan), torch.zeros(3).long()), "outputs holds NaN"),
        (lambda: SquaredError()(torch.zeros(3, 2), torch.zeros(3)), r"regression losses need \[n, 1\]"),
        (lambda: SquaredError()(torch.zeros(3, 1), torch.zeros(2)), "targets has 2 values for 3 samples"),
        (lambda: SquaredError(limit=1.0)(torch.zeros(3, 1), torch.full((3,), 2.0)), "targets reach 2, beyond limit=1"),
        (
            lambda: ZeroOne().worst_label_change(torch.zeros(3, 2), torch.zeros(4, 2)),
            "run both models on the same inputs",
        ),
        (lambda: ClippedCrossEntropy().bound(3, "exact"), "convention must be 'true' or 'paper'"),
        (
            lambda: check_within_bound(torch.tensor([0.5, 3.0]), 2.0, "losses"),
            r"losses lie in \[0.5, 3\], outside \[0, M = 2",
        ),
        (lambda: check_within_bound(torch.tensor([-0.5]), 2.0, "losses"), "outside"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
