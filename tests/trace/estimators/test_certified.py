"""Certified constants against Jacobians by autograd and explicit operators; what is unknown is said."""

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.func import jacrev, vmap
from torch.nn import functional as F

from trace.adapters import from_sklearn
from trace.estimators.certified import certified_lipschitz, tail
from trace.losses import ClippedCrossEntropy, Huber, SquaredError

LOSS = ClippedCrossEntropy()


def draws(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def randomised(model, seed=0):
    """Every parameter and running statistic away from where it starts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, values in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items():
            if values.is_floating_point():
                drawn = torch.randn(values.shape, generator=generator)
                values.copy_(drawn.abs() + 0.1 if "var" in name else drawn)
    return model.double().eval()


def jacobian_norms(model, x):
    """``|J|`` of every row, from all its entries."""
    jacobian = vmap(jacrev(lambda row: model(row[None])[0]))(x)
    return torch.linalg.matrix_norm(jacobian.flatten(start_dim=2), ord=2).detach()


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        return F.relu(x + self.body(x))


class Mixed(nn.Module):
    """All that is done by functions and methods."""

    def __init__(self):
        super().__init__()
        self.convolution, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(8, 3)
        self.register_buffer("mean", torch.tensor([0.1, 0.2]).view(1, 2, 1, 1))
        self.register_buffer("std", torch.tensor([0.5, 2.0]).view(1, 2, 1, 1))

    def forward(self, x):
        x = (x - self.mean) / self.std
        x = torch.relu(self.convolution(x))
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = torch.cat([x.mean(dim=(2, 3)), 0.5 * F.adaptive_avg_pool2d(F.gelu(x), 1).flatten(1)], dim=1)
        x = F.dropout(x, 0.5, self.training)
        return F.log_softmax(self.head(x), dim=1)


IMAGES = {
    "plain": nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(27, 4)
    ),
    "residual": nn.Sequential(
        Residual(nn.Conv2d(2, 2, 3, padding=1), nn.SiLU(), nn.Conv2d(2, 2, 3, padding=1)),
        nn.AdaptiveAvgPool2d((2, 3)),
        nn.Flatten(),
        nn.Linear(12, 2),
    ),
    "strided": nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, groups=2), nn.ELU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(16, 2)
    ),
    "circular": nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular", stride=3), nn.Tanh(), nn.Flatten(), nn.Linear(18, 2)
    ),
    "normed": nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4, eps=0.5), nn.GELU(), nn.Flatten(), nn.Linear(144, 3)
    ),
    "functions": Mixed(),
}


@pytest.mark.parametrize("name", IMAGES)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([0.1, 1.0, 10.0]))
def test_no_jacobian_of_an_image_model_exceeds_it(name, seed, scale):
    model, x = randomised(copy.deepcopy(IMAGES[name]), seed), draws(20, 2, 8, 8, seed=seed, scale=scale)
    found = certified_lipschitz(model, x)
    assert found.reason == ""
    assert math.isfinite(found.value)
    assert float(jacobian_norms(model, x).max()) <= found.value * (1 + 1e-9)


ACTIVATIONS = [
    *(nn.ReLU(), nn.ReLU6(), nn.Tanh(), nn.Softplus(), nn.Softsign(), nn.LogSigmoid(), nn.CELU(2.0), nn.Hardtanh()),
    *(nn.Sigmoid(), nn.Hardsigmoid(), nn.Hardswish(), nn.GELU(), nn.GELU(approximate="tanh"), nn.SiLU(), nn.Mish()),
    *(nn.SELU(), nn.LeakyReLU(3.0), nn.ELU(2.0), nn.PReLU(init=-2.0), nn.Identity(), nn.Dropout(0.5)),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_slopes_are_reached_and_never_exceeded(activation):
    x = torch.linspace(-12.0, 12.0, 2_000_001, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(activation.double().eval()(x).sum(), x)
    steepest = float(slopes.abs().max())
    found = certified_lipschitz(nn.Sequential(nn.Identity(), activation), torch.zeros(1, 1, dtype=torch.float64))
    assert steepest <= found.value <= 1.0003 * steepest


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(1, 6), min_size=2, max_size=4))
def test_linear_chains_are_exact(seed, sizes):
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    model = randomised(nn.Sequential(*layers, nn.BatchNorm1d(sizes[-1])), seed)
    true = float(jacobian_norms(model, torch.zeros(1, sizes[0], dtype=torch.float64)))
    assert certified_lipschitz(model, torch.zeros(1, sizes[0], dtype=torch.float64)).value == pytest.approx(
        true, rel=1e-7
    )


def test_pooling_by_hand():
    """A mean over all d entries has the constant d^-1/2; windows that overlap four times have 2 at most."""
    image = torch.zeros(1, 1, 4, 4)
    for pool in (nn.AdaptiveAvgPool2d(1), nn.AvgPool2d(4)):
        assert certified_lipschitz(nn.Sequential(pool, nn.Flatten()), image).value == pytest.approx(0.25)
    assert certified_lipschitz(nn.Sequential(nn.MaxPool2d(2, 1), nn.Flatten()), image).value == 2.0
    assert certified_lipschitz(nn.Sequential(nn.MaxPool2d(2), nn.Flatten()), image).value == 1.0


def test_layer_norm_reaches_its_constant_at_rows_without_spread():
    model = nn.LayerNorm(5, eps=1e-3).double()
    at_zero = float(jacobian_norms(model, torch.zeros(1, 5, dtype=torch.float64)))
    assert certified_lipschitz(model, torch.zeros(1, 5, dtype=torch.float64)).value == pytest.approx(at_zero, rel=1e-12)


def loss_gradients(model, x, loss, targets):
    found = []
    for target in targets:
        rows = x.clone().requires_grad_()
        y = torch.full((len(x),), target, dtype=torch.long if loss.classification else x.dtype)
        (gradient,) = torch.autograd.grad(loss(model(rows), y).sum(), rows)
        found.append(gradient.flatten(start_dim=1).norm(dim=1))
    return torch.stack(found)


@settings(max_examples=20)
@given(seed=st.integers(0, 10_000), clip_at=st.sampled_from([0.5, 2.0, 10.0]), normalised=st.booleans())
def test_no_gradient_of_the_loss_exceeds_it_under_any_label(seed, clip_at, normalised):
    ends = [nn.LogSoftmax(dim=1)] if normalised else []
    model = randomised(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4), *ends), seed)
    loss, x = ClippedCrossEntropy(clip_at), draws(300, 3, seed=seed, scale=2.0)
    known = tail(model, x)
    constant = known.loss_lipschitz(loss, 4)
    assert float(loss_gradients(model, x, loss, range(4)).max()) <= constant * (1 + 1e-9)
    assert constant <= loss.lipschitz * known.lipschitz * (1 + 1e-9)


def test_of_a_logistic_model_it_is_what_its_gradients_tend_to():
    """A linear model with logits (-w.x/2, w.x/2): the loss has slope |w| where it is surely wrong."""
    model = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    w = torch.tensor([3.0, 4.0], dtype=torch.float64)
    model.weight.data.copy_(torch.stack([-w / 2, w / 2]))
    far = w[None] / 25 * 9.9 * torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    constant = tail(model, far).loss_lipschitz(LOSS, 2)
    assert constant == pytest.approx(5.0, rel=1e-12)
    assert float(loss_gradients(model, far, LOSS, range(2)).max()) == pytest.approx(5.0, rel=1e-3)


def test_a_clipped_logit_counts_by_itself():
    """Both logits grow together, so the loss ignores them, until one of them is clipped."""
    model = nn.Linear(1, 2, dtype=torch.float64)
    model.weight.data.fill_(3.0)
    model.bias.data.copy_(torch.tensor([0.0, 1.0]))
    x = torch.tensor([[3.2]], dtype=torch.float64)  # logits 9.6 and 10.6
    seen = float(loss_gradients(model, x, LOSS, range(2)).max())
    assert 1.0 < seen <= tail(model, x).loss_lipschitz(LOSS, 2) == pytest.approx(3.0)


def test_regression_losses_multiply_by_their_own_constant():
    model = nn.Linear(2, 1, dtype=torch.float64)
    x = torch.zeros(1, 2, dtype=torch.float64)
    size = float(model.weight.detach().norm())
    assert tail(model, x).loss_lipschitz(Huber(delta=2.0), 1) == pytest.approx(2 * size)
    assert tail(model, x).loss_lipschitz(SquaredError(limit=3.0), 1) == pytest.approx(12 * size)
    assert tail(model, x).loss_lipschitz(SquaredError(), 1) == math.inf


def test_the_difference_of_linear_models_is_exact():
    old, new = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    x = torch.zeros(1, 3, dtype=torch.float64)
    change = (new.weight - old.weight).detach()
    assert tail(old, x).difference(tail(new, x)) == pytest.approx(float(torch.linalg.matrix_norm(change, ord=2)))
    assert tail(old, x).difference(tail(old, x)) == 0.0


def test_the_difference_of_heads_on_one_body_is_that_of_the_heads():
    body = randomised(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 5), nn.Tanh()))
    old, new = (nn.Sequential(copy.deepcopy(body), nn.Linear(5, 3)).double() for _ in range(2))
    x = draws(200, 1, 4, 4, seed=3)
    known, updated = tail(old, x), tail(new, x)
    change = torch.linalg.matrix_norm((new[1].weight - old[1].weight).detach(), ord=2)
    assert known.difference(updated) == pytest.approx(float(change) * certified_lipschitz(body, x).value)
    moved = jacobian_norms(lambda row: new(row) - old(row), x)
    assert float(moved.max()) <= known.difference(updated) < known.lipschitz + updated.lipschitz


def test_models_that_differ_below_add_up():
    old, new = (randomised(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2)), seed) for seed in (0, 1))
    x = draws(500, 2)
    assert tail(old, x).difference(tail(new, x)) == pytest.approx(tail(old, x).lipschitz + tail(new, x).lipschitz)
    assert tail(old, x).difference(tail(copy.deepcopy(old), x)) == 0.0


def test_log_probabilities_differ_by_their_centred_part():
    """Cross-entropy sees no more of two log softmaxes than the centred difference, which is linear in x."""
    old, new = (randomised(nn.Sequential(nn.Linear(3, 4), nn.LogSoftmax(dim=1)), seed) for seed in (0, 1))
    x = draws(100, 3)
    change = (new[0].weight - old[0].weight).detach()
    exact = torch.linalg.matrix_norm(change - change.mean(dim=0), ord=2)
    assert tail(old, x).difference(tail(new, x)) == pytest.approx(float(exact))
    moved = new(x) - old(x)
    worst = LOSS.worst_label_change(old(x), new(x))
    assert bool((worst <= LOSS.lipschitz * (moved - moved.mean(dim=1, keepdim=True)).norm(dim=1) + 1e-12).all())


def test_a_scaler_before_a_logistic_regression_is_part_of_the_matrix():
    x = draws(200, 3).numpy() * [1.0, 100.0, 0.01]
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, x[:, 0] + x[:, 1] / 100 > 0)
    slopes = fitted[1].coef_[0] / fitted[0].scale_
    known = tail(from_sklearn(fitted), torch.as_tensor(x))
    assert known.loss_lipschitz(LOSS, 2) == pytest.approx(float((slopes**2).sum() ** 0.5), rel=1e-9)


class Doubling(nn.Module):
    def forward(self, x):
        return x * x


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (lambda x: x, "<lambda> is no torch module"),
        (Doubling(), "mul"),
        (Branching(), "Branching cannot be traced"),
        (nn.Sequential(nn.Hardshrink()), "Hardshrink"),
        (nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)), "BatchNorm1d"),
        (nn.Sequential(nn.Linear(2, 2), nn.Softmax(dim=0)), "Softmax"),
        (nn.Sequential(nn.LayerNorm(2, eps=0.0)), "LayerNorm"),
        (nn.Sequential(nn.Unflatten(1, (1, 2)), nn.Conv1d(1, 1, 2, padding=1, padding_mode="reflect")), "Unflatten"),
    ],
)
def test_what_is_unknown_is_named(model, named):
    found = certified_lipschitz(model, torch.zeros(4, 2))
    assert found.value == math.inf
    assert named in found.reason


def test_padding_that_repeats_entries_is_unknown():
    model = nn.Sequential(nn.Conv1d(1, 1, 3, padding=1, padding_mode="reflect"), nn.Flatten())
    assert "reflect" in certified_lipschitz(model, torch.zeros(1, 1, 5)).reason
    twice = nn.Sequential(nn.Conv1d(1, 1, 1, padding=2, padding_mode="circular"), nn.Flatten())
    assert "circular" in certified_lipschitz(twice, torch.zeros(1, 1, 5)).reason


def test_the_model_is_given_back_in_its_mode():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).train()
    assert certified_lipschitz(model, torch.zeros(1, 2)).reason == ""
    assert model.training
    assert model[1].training
