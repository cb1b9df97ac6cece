"""Fine-tuning with a term added: what weight 0 and share 1 must be, where each method's pull goes, what is refused."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from experiments.anchoring import (
    SHARED,
    WEIGHTED,
    Adaptation,
    Parts,
    Recipe,
    added,
    fine_tune,
    interpolated,
    steadied,
    updates,
)
from experiments.engine.errors import UserError
from trace import Sample
from trace.losses import ClippedCrossEntropy
from trace.training.anchor_penalty import KINDS

RECIPE = Recipe(lr=0.02, epochs=6, batch_size=20, weight_decay=0.0)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def case():
    """The anchor's label is the sign of the first input, the target's that of the second."""
    x = torch.randn(120, 2, generator=seeded(1))
    torch.manual_seed(0)
    old = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    optimiser = torch.optim.Adam(old.parameters(), 0.02)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(old(x), (x[:, 0] > 0).long()).backward()
        optimiser.step()
    source, target = (Sample(x, (x[:, i] > 0).long()) for i in (0, 1))
    parts = Parts(source, source, source), Parts(target, target, target)
    return Adaptation(old.requires_grad_(False), *parts, RECIPE, ClippedCrossEntropy())


def final(case, term=None, recipe=RECIPE):
    *_, model = fine_tune(case, recipe, term=term, generator=seeded())
    return model


def risk(model, sample):
    return float(ClippedCrossEntropy()(model(sample.x).detach(), sample.y).mean())


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_q_is_left_alone_and_the_training_repeats_itself(case):
    before = copy.deepcopy(case.old)
    first, second = final(case), final(case)
    assert same(first, second)
    assert same(case.old, before)
    assert risk(first, case.target.train) < 0.7 * risk(case.old, case.target.train)


@pytest.mark.parametrize("method", WEIGHTED)
def test_a_weight_of_zero_is_the_plain_fine_tune(case, method):
    assert same(final(case), final(case, added(method, 0.0, case, seeded(3))))


@pytest.mark.parametrize("method", WEIGHTED)
def test_a_weight_holds_the_anchor(case, method):
    plain, held = final(case), final(case, added(method, 3.0, case, seeded(3)))
    harm = [risk(model, case.source.test) - risk(case.old, case.source.test) for model in (plain, held)]
    assert harm[0] > 0.1
    assert harm[1] < 0.5 * harm[0]


def test_penalties_and_distillation_never_see_the_labels_of_the_anchor(case):
    x, y, _ = case.source.train
    blind = case._replace(source=case.source._replace(train=Sample(x, 1 - y)))
    for method in (*KINDS, "distillation"):
        assert same(
            final(case, added(method, 1.0, case, seeded(3))), final(blind, added(method, 1.0, blind, seeded(3)))
        )
    assert not same(*(final(c, added("rehearsal", 1.0, c, seeded(3))) for c in (case, blind)))


def test_interpolation_goes_from_q_to_the_plain_fine_tune(case):
    plain = final(case)
    assert same(interpolated(case.old, plain, 0.0), case.old)
    assert same(interpolated(case.old, plain, 1.0), plain)
    half = interpolated(case.old, plain, 0.5)
    assert torch.allclose(half[0].weight, (case.old[0].weight + plain[0].weight) / 2)


def test_early_stops_are_the_epochs_of_the_plain_training(case):
    strengths = {"early_stop": [0.5], "small_steps": [0.1], "plug_in": [1.0], "interpolation": [0.3]}
    found = {u.method: u for u in updates(case, strengths, order=seeded, batches=seeded)}
    assert set(found) == {"plain", *strengths}
    assert same(found["early_stop"].model, final(case, recipe=replace(RECIPE, epochs=3)))
    assert same(found["plain"].model, final(case))
    assert same(found["small_steps"].model, final(case, recipe=replace(RECIPE, lr=0.002)))


def test_early_stops_that_round_to_one_epoch_are_all_kept(case):
    found = updates(case, {"early_stop": [0.3, 0.35, 0.5]}, order=seeded, batches=seeded)
    assert [u.strength for u in found if u.method == "early_stop"] == [0.3, 0.35, 0.5]


def test_sgd_takes_smaller_steps_on_a_steeper_loss():
    assert steadied(replace(RECIPE, optimiser="sgd"), 3.0).lr == pytest.approx(RECIPE.lr / 4)
    assert steadied(RECIPE, 3.0) == RECIPE


def test_mistakes_are_named(case):
    with pytest.raises(UserError, match=f"there is no method 'kl': take some of {WEIGHTED[0]}.*{SHARED[-1]}"):
        next(updates(case, {"kl": [1.0]}, order=seeded, batches=seeded))
    with pytest.raises(UserError, match="optimiser must be adam or sgd"):
        final(case, recipe=replace(RECIPE, optimiser="lbfgs"))
    with pytest.raises(UserError, match="not finite after epoch"):
        final(case, recipe=Recipe("sgd", 3e38, 4, 20, 0.0))
