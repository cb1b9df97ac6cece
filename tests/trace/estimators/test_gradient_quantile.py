"""Gradient norms against per-sample autograd and closed forms; quantiles against numpy; the DKW band; bad input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, grad, vmap

from trace.estimators import gradient_norms, gradient_quantile
from trace.estimators.gradient_quantile import NoGradientError, evaluation_mode, quantile
from trace.losses import ClippedCrossEntropy, Huber, SquaredError, ZeroOne
from trace.stats.betting import sequence_ranks

LOSS = ClippedCrossEntropy()


def network(seed=0, dtype=torch.float64):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.5), nn.Linear(16, 4)).to(
            dtype
        )


def data(seed=0, n=30, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, generator=g, dtype=dtype), torch.randint(0, 4, (n,), generator=g)


def per_sample_norms(model, x, y):
    """One backward pass per sample, the slow way."""
    norms = []
    for xi, yi in zip(x, y, strict=True):
        xi = xi[None].clone().requires_grad_()
        (g,) = torch.autograd.grad(LOSS(model(xi), yi[None]).sum(), xi)
        norms.append(g.norm())
    return torch.stack(norms)


@pytest.mark.parametrize("batch_size", [1, 7, 1024])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_per_sample_autograd(batch_size, dtype):
    model, (x, y) = network(dtype=dtype), data(dtype=dtype)
    found = gradient_norms(model, x, y, LOSS, batch_size=batch_size)
    model.eval()
    assert found.dtype == dtype
    assert found.numpy() == pytest.approx(
        per_sample_norms(model, x, y).numpy(), rel=1e-10 if dtype.itemsize == 8 else 1e-4
    )


def test_equals_vmap_of_grad():
    model, (x, y) = network().eval(), data()
    weights = dict(model.named_parameters()) | dict(model.named_buffers())

    def one_loss(xi, yi):
        return nn.functional.cross_entropy(functional_call(model, weights, (xi[None],)).clamp(-10, 10), yi[None])

    expected = vmap(grad(one_loss))(x, y).norm(dim=1).detach()
    assert gradient_norms(model, x, y, LOSS).numpy() == pytest.approx(expected.numpy(), rel=1e-10)


def test_linear_model_closed_form():
    """ell = (w x - y)^2 has |grad_x| = 2 |w x - y| |w|."""
    w = torch.tensor([[3.0], [4.0]], dtype=torch.float64)
    x = torch.randn(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.linspace(-1, 1, 20, dtype=torch.float64)
    expected = 2 * ((x @ w)[:, 0] - y).abs() * 5
    assert gradient_norms(lambda x: x @ w, x, y, SquaredError()).numpy() == pytest.approx(expected.numpy(), rel=1e-12)
    assert float(gradient_norms(lambda x: x @ w, x, y, Huber(delta=0.5)).max()) <= 0.5 * 5 + 1e-12


def test_images_are_flattened():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(2 * 4 * 4, 2))
    x = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    assert gradient_norms(model, x, torch.zeros(5).long(), LOSS).shape == (5,)


def test_clipping_stops_the_gradient():
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).sign() * 100
    assert gradient_norms(lambda x: x, x, torch.zeros(6).long(), LOSS).abs().max() == 0


def test_feature_space_is_the_gradient_in_the_layer_output():
    model, (x, y) = network().eval(), data()
    head, body = model[4], model[:3]
    expected = per_sample_norms(head, body(x).detach(), y)
    found = gradient_norms(model, x, y, LOSS, at=model[2])
    assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-10)


def test_pseudo_labels_are_the_predictions():
    model, (x, _) = network(), data()
    found = gradient_quantile(model, x, None, LOSS)
    labels = model.eval()(x).argmax(dim=1)
    assert found.pseudo_labels
    assert found.value == gradient_quantile(model, x, labels, LOSS).value


def test_models_come_back_as_they_were():
    model, (x, y) = network(), data()
    model[3].eval()  # a mixed state
    before = [m.training for m in model.modules()]
    running_mean = model[1].running_mean.clone()
    gradient_norms(model, x, y, LOSS)
    assert [m.training for m in model.modules()] == before
    assert torch.equal(model[1].running_mean, running_mean)
    assert all(p.grad is None for p in model.parameters())
    assert not x.requires_grad
    with evaluation_mode(model):
        assert not any(m.training for m in model.modules())
    assert [m.training for m in model.modules()] == before


def test_models_come_back_even_after_an_error():
    model = network()

    def fail():
        with evaluation_mode(model):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert all(m.training for m in model.modules())


def test_works_inside_no_grad():
    model, (x, y) = network(), data()
    with torch.no_grad():
        assert gradient_norms(model, x, y, LOSS).max() > 0


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.floats(0.001, 0.999))
def test_quantile_equals_numpy(values, q):
    expected = np.quantile(np.array(values), q, method="inverted_cdf")
    assert quantile(torch.tensor(values, dtype=torch.float64), q) == expected


def test_band_is_made_of_order_statistics():
    norms = torch.arange(1.0, 1001.0, dtype=torch.float64)
    x = norms[:, None]
    found = gradient_quantile(lambda x: x.square() / 2, x, torch.zeros(1000).double(), Huber(delta=1e-3), q=0.9)
    lower, upper = sequence_ranks(1000, 0.9, 0.05)
    assert [found.lower / 1e-3, found.value / 1e-3, found.upper / 1e-3] == pytest.approx([lower, 900, upper])


def test_single_quantile_bands_are_nested_order_statistics():
    x, y = data(n=200)
    model = network()
    norms = gradient_norms(model, x, y, LOSS).sort().values.tolist()
    found = gradient_quantile(model, x, y, LOSS, q=0.9)
    for delta, lower, upper in found.bands:
        low, high = sequence_ranks(200, 0.9, delta)
        expected = (norms[low - 1] if low else 0.0, norms[high - 1] if high <= 200 else math.inf)
        assert (lower, upper) == expected
    assert [b[0] for b in found.bands] == sorted((b[0] for b in found.bands), reverse=True)
    by_level = {round(delta, 4): (lower, upper) for delta, lower, upper in found.bands}
    assert (found.lower, found.upper) == by_level[0.05]
    assert found.lower <= found.value <= found.upper


def test_few_samples_have_no_upper_end():
    model, (x, y) = network(), data(n=32)
    found = gradient_quantile(model, x, y, LOSS)
    assert found.upper == math.inf
    assert found.value == float(gradient_norms(model, x, y, LOSS).max())  # q = 0.99 of 32 is the maximum
    assert gradient_quantile(model, x[:1], y[:1], LOSS, q=0.5).lower == 0.0


@pytest.mark.parametrize(
    ("model", "x", "y", "loss", "message"),
    [
        (lambda x: x.sum(dim=1), *data(), LOSS, r"model returned \[30\] for 30 inputs"),
        (lambda x: x[:5], *data(), LOSS, r"model returned \[5, 3\] for 30 inputs"),
        (lambda x: (x, x), *data(), LOSS, "model returned tuple"),
        (lambda x: x * torch.nan, *data(), LOSS, "model returned NaN or infinity"),
        (lambda x: x, data()[0][:0], data()[1][:0], LOSS, "x must be a non-empty floating-point tensor"),
        (lambda x: x, data()[0].long(), data()[1], LOSS, "x must be a non-empty floating-point tensor"),
        (lambda x: x, data()[0], data()[1][:3], LOSS, "y has 3 labels for 30 samples"),
        (lambda x: x, data()[0], torch.full((30,), 3), LOSS, "targets holds labels 3 to 3"),
        (lambda x: x[:, :1], data()[0], None, SquaredError(), "pseudo-labels exist for classification only"),
    ],
)
def test_bad_input(model, x, y, loss, message):
    with pytest.raises(ValueError, match=message):
        gradient_norms(model, x, y, loss)


def test_no_gradient():
    x, y = data()
    with pytest.raises(NoGradientError, match="ZeroOne of model has no gradient in its inputs"):
        gradient_norms(network(), x, y, ZeroOne())
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)
    with pytest.raises(NoGradientError, match="does not depend on the point"):
        gradient_norms(lambda x: weight.expand(len(x), 4), x, y, LOSS)


def test_in_place_layers_do_no_harm():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 8), nn.ReLU(inplace=True), nn.Linear(8, 4)).double()
    plain = nn.Sequential(nn.ReLU(), model[1], nn.ReLU(), model[3])
    x, y = data()
    kept = x.clone()
    for at in (None, 1):
        layers = [None, None] if at is None else [model[at], plain[at]]
        found, expected = (
            gradient_norms(m, x, y, LOSS, at=layer) for m, layer in zip((model, plain), layers, strict=True)
        )
        assert torch.equal(found, expected)
    assert torch.equal(x, kept)


def test_gradients_that_are_not_finite_are_refused():
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="the gradient of model is NaN or infinite"):
        gradient_norms(lambda x: x.sqrt(), x, torch.zeros(3).long(), LOSS)


def test_a_failing_model_is_named():
    with pytest.raises(ValueError, match=r"model failed on inputs \[30, 3\] of torch.float64 on cpu"):
        gradient_norms(nn.Linear(7, 2).double(), *data(), LOSS)
    attention = nn.MultiheadAttention(3, 1).double()
    with pytest.raises(ValueError, match="at returns a tuple"):
        gradient_norms(lambda x: attention(x, x, x)[0], *data(), LOSS, at=attention)


def test_a_model_without_room_is_told_apart_from_a_wrong_shape():
    with pytest.raises(ValueError, match="model ran out of memory on 10 inputs: lower batch_size"):
        gradient_norms(lambda x: x.new_empty(2**50), *data(), LOSS, batch_size=10)


def test_layer_that_does_not_run_once():
    model, (x, y) = network(), data()
    with pytest.raises(ValueError, match="at was run 0 times by model"):
        gradient_norms(model, x, y, LOSS, at=nn.Linear(2, 2))


@pytest.mark.parametrize("q", [0.0, 1.0, 1.5])
def test_bad_level(q):
    with pytest.raises(ValueError, match="q must lie strictly between 0 and 1"):
        gradient_quantile(network(), *data(), LOSS, q=q)
