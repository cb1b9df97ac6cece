"""Every world keeps the contract; those that relabel know their own P(y|x)."""

import dataclasses

import pytest
import torch

from trace.estimators import mmd
from trace.worlds import names, num_classes, world

RELABELLING = [name for name in names() if "labels" in {f.name for f in dataclasses.fields(world(name))}]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_four_worlds_are_there():
    assert {"blobs_shift", "moons_warp", "scale_shift", "mixture_shift"} <= set(names())


@pytest.mark.parametrize("name", names())
class TestContract:
    def test_is_a_frozen_dataclass_with_defaults(self, name):
        made = world(name)
        assert all(field.default is not dataclasses.MISSING for field in dataclasses.fields(made))
        with pytest.raises(dataclasses.FrozenInstanceError):
            made.severity = 3.0

    def test_draws_labelled_samples_that_the_generator_decides(self, name):
        made = world(name, severity=0.7)
        for draw in (made.source, made.target):
            x, y, _ = draw(500, generator=seeded())
            assert x.shape[0] == len(y) == 500
            assert x.dtype == torch.float32
            assert x.isfinite().all()
            assert set(y.tolist()) == set(range(num_classes(made)))
            again = draw(500, generator=seeded())
            assert torch.equal(x, again.x)
            assert torch.equal(y, again.y)
            assert not torch.equal(x, draw(500, generator=seeded(1)).x)

    def test_severity_zero_shifts_nothing(self, name):
        still = world(name, severity=0.0)
        source, target = (draw(1000, generator=seeded()) for draw in (still.source, still.target))
        torch.testing.assert_close(source.x, target.x)
        assert torch.equal(source.y, target.y)

    def test_the_shift_grows_with_severity_and_leaves_the_source_alone(self, name):
        mild, severe = world(name, severity=0.5), world(name, severity=2.0)
        x = mild.source(2000, generator=seeded()).x
        assert torch.equal(x, severe.source(2000, generator=seeded()).x)
        near, far = (mmd(x, w.target(2000, generator=seeded(1)).x).squared for w in (mild, severe))
        assert far > 1.5 * near > 0


@pytest.mark.parametrize("name", RELABELLING)
def test_posterior_is_calibrated(name):
    """Within each tenth of the posterior, labels of the source occur as often as it says."""
    made = world(name)
    x, y, _ = made.source(200_000, generator=seeded())
    p = made.posterior(x)
    for low in torch.arange(0, 1, 0.1):
        chosen = (p >= low) & (p < low + 0.1)
        error = (p[chosen] * (1 - p[chosen])).mean().sqrt() / chosen.sum().sqrt()
        assert abs((y[chosen] - p[chosen]).mean()) < 4 * error + 1e-4, float(low)


@pytest.mark.parametrize("name", RELABELLING)
def test_invariant_labels_follow_the_source_and_travelling_ones_do_not(name):
    for labels, follows in (("invariant", True), ("travel", False)):
        made = world(name, severity=2.0, labels=labels)
        x, y, _ = made.target(100_000, generator=seeded())
        excess = (y - made.posterior(x)).abs().mean() - 2 * (made.posterior(x) * (1 - made.posterior(x))).mean()
        assert (abs(excess) < 0.01) == follows


def test_blobs_move_and_turn():
    x = world("blobs_shift").source(100, generator=seeded()).x
    turned = world("blobs_shift", severity=0.5, rotation=90.0).target(100, generator=seeded()).x
    torch.testing.assert_close(turned, torch.stack([0.5 - x[:, 1], x[:, 0]], dim=1))


def test_the_twist_keeps_radii_and_turns_by_half_alpha_r():
    x = world("moons_warp").source(100, generator=seeded()).x
    twisted = world("moons_warp", severity=0.8).target(100, generator=seeded()).x
    before, after = (torch.view_as_complex((z - torch.tensor([0.5, 0.25])).contiguous()) for z in (x, twisted))
    torch.testing.assert_close(after.abs(), before.abs())
    torch.testing.assert_close((after / before).angle(), 0.4 * before.abs(), atol=1e-5, rtol=1e-5)


def test_moons_are_those_of_scikit_learn():
    from sklearn.datasets import make_moons

    theirs = torch.as_tensor(make_moons(4000, noise=0.2, random_state=0)[0], dtype=torch.float32)
    ours = world("moons_warp").source(4000, generator=seeded()).x
    assert mmd(theirs, ours).squared < 3e-4


def test_unknown_names_get_the_nearest():
    with pytest.raises(ValueError, match="did you mean blobs_shift"):
        world("blob_shift")
    with pytest.raises(ValueError, match="did you mean severity"):
        world("blobs_shift", severty=1.0)
    with pytest.raises(ValueError, match="labels must be travel or invariant"):
        world("blobs_shift", labels="moved").target(10, generator=seeded())
