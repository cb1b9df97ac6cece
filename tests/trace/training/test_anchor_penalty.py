"""Anchor penalties: the values of the anchor terms, their gradients, the calls in a loop, and what is refused."""

import copy

import pytest
import torch
from torch import nn

from trace.estimators import anchor_terms
from trace.losses import ClippedCrossEntropy, Huber, SquaredError, ZeroOne
from trace.training.anchor_penalty import KINDS, PENALTIES, AnchorPenalty

CROSS_ENTROPY = ClippedCrossEntropy()


def outputs(seed, n=30, classes=4, dtype=torch.float64):
    return 3 * torch.randn(n, classes, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def inputs(n=64):
    return torch.randn(n, 2, generator=torch.Generator().manual_seed(5))


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("loss", "classes"), [(CROSS_ENTROPY, 4), (ClippedCrossEntropy(2.0), 3), (Huber(limit=2.0), 1)]
)
def test_the_value_is_that_of_the_anchor_term(kind, dtype, loss, classes):
    z, z_new = outputs(0, classes=classes, dtype=dtype), outputs(1, classes=classes, dtype=dtype)
    expected = getattr(anchor_terms(z, z_new, loss), kind).value
    assert float(PENALTIES[kind](z, z_new, loss)) == pytest.approx(expected, rel=1e-5)
    assert expected > 0.1


def test_plug_in_is_distillation_and_the_penalties_form_a_chain():
    z, z_new = outputs(0) / 2, outputs(1) / 2
    divergence = nn.functional.kl_div(z_new.log_softmax(1), z.softmax(1), reduction="batchmean")
    values = [float(PENALTIES[kind](z, z_new, CROSS_ENTROPY)) for kind in ("plug_in", "worst_label", "lipschitz")]
    assert values[0] == pytest.approx(float(divergence))
    assert values == sorted(values)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("loss", "classes"), [(CROSS_ENTROPY, 4), (SquaredError(limit=12.0), 1), (Huber(limit=12.0), 1)]
)
def test_gradients_away_from_kinks(kind, loss, classes):
    z, z_new = outputs(0, n=6, classes=classes), outputs(1, n=6, classes=classes).requires_grad_()
    assert torch.autograd.gradcheck(lambda new: PENALTIES[kind](z, new, loss), (z_new,))


@pytest.mark.parametrize("kind", KINDS)
def test_where_fine_tuning_starts_the_penalty_and_its_gradient_are_zero(kind):
    z = outputs(0)
    z_new = z.clone().requires_grad_()
    value = PENALTIES[kind](z, z_new, CROSS_ENTROPY)
    value.backward()
    assert value.item() == 0
    assert z_new.grad.abs().max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_the_old_model_is_left_as_it_was(kind):
    old, new, x = network(0).train(), network(1), inputs()
    before = copy.deepcopy(old.state_dict())
    penalty = AnchorPenalty(old, x, kind=kind)
    penalty(new).backward()
    assert old.training
    assert all(torch.equal(before[name], value) for name, value in old.state_dict().items())
    assert all(parameter.grad is None for parameter in old.parameters())
    assert all(parameter.grad.abs().sum() > 0 for parameter in new[-1].parameters())


def test_a_module_can_be_trained_against_its_own_past():
    model, x = network().eval(), inputs()
    penalty = AnchorPenalty(model, x)
    with torch.no_grad():
        model[-1].bias += torch.tensor([0.0, 1.0, 0.0])
    assert penalty(model).item() > 0.01


def test_batches_are_drawn_from_the_generator_and_average_to_the_whole():
    old, new, x = network(0).eval(), network(1).eval(), inputs()
    whole = AnchorPenalty(old, x)(new).item()

    def drawn(seed, calls):
        penalty = AnchorPenalty(old, x, batch_size=8, generator=seeded(seed))
        return [penalty(new).item() for _ in range(calls)]

    assert drawn(0, 3) == drawn(0, 3) != drawn(1, 3)
    many = torch.tensor(drawn(0, 400))
    assert float(many.mean()) == pytest.approx(whole, abs=4 * float(many.std()) / 20)
    assert AnchorPenalty(old, x, batch_size=64, generator=seeded())(new).item() == pytest.approx(whole)


@pytest.mark.parametrize("kind", KINDS)
def test_it_holds_a_training_back(kind):
    """A task that pulls one logit up: the penalised model stays nearer to the old one on the anchor."""
    x = inputs()

    def trained(weight):
        old, new = nn.Linear(2, 3), nn.Linear(2, 3)
        for model in (old, new):
            nn.init.zeros_(model.weight)
            nn.init.zeros_(model.bias)
        penalty = AnchorPenalty(old, x, kind=kind, weight=weight, batch_size=32, generator=seeded())
        optimiser = torch.optim.SGD(new.parameters(), 0.1)
        for _ in range(100):
            task = nn.functional.cross_entropy(new(x + 3), torch.zeros(64, dtype=torch.long))
            optimiser.zero_grad()
            (task + penalty(new)).backward()
            optimiser.step()
        with torch.no_grad():
            return anchor_terms(old(x), new(x), CROSS_ENTROPY).worst_label.value

    free, light, heavy = trained(0.0), trained(0.3), trained(3.0)
    assert free > 1.2 * light > 1.2**2 * heavy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "kl"}, "kind must be one of worst_label, lipschitz, plug_in"),
        ({"weight": -1.0}, "weight must be finite and at least 0"),
        ({"weight": float("nan")}, "weight must be finite and at least 0"),
        ({"batch_size": 0, "generator": seeded()}, "batch_size must be a whole number"),
        ({"batch_size": 4}, "needs a generator"),
        ({"loss": ZeroOne()}, "ZeroOne has no gradient"),
        ({"loss": SquaredError(), "kind": "worst_label"}, "no worst label"),
        ({"loss": SquaredError(), "kind": "lipschitz"}, "no finite Lipschitz constant"),
    ],
)
def test_bad_options_are_named(options, message):
    outputs_alone = (lambda x: x[:, :1]) if isinstance(options.get("loss"), SquaredError) else network()
    with pytest.raises(ValueError, match=message):
        AnchorPenalty(outputs_alone, inputs(), **options)


def test_bad_inputs_and_models_are_named():
    with pytest.raises(ValueError, match="anchor_inputs holds NaN"):
        AnchorPenalty(network(), torch.full((3, 2), float("nan")))
    with pytest.raises(ValueError, match="old_model failed on inputs"):
        AnchorPenalty(network(), torch.zeros(3, 5))
    with pytest.raises(ValueError, match="the two models must have the same outputs"):
        AnchorPenalty(network(), inputs())(nn.Linear(2, 7))
