"""Gradients under all labels against one backward pass each; Jacobian changes against torch.func; bad input."""

import pytest
import torch
from torch import nn
from torch.func import jacrev, vmap

from trace.estimators.gradient_quantile import NoGradientError, gradient_norms
from trace.estimators.jacobians import FEWEST_PASSES
from trace.estimators.jacobians import slopes as slopes_of
from trace.losses import ClippedCrossEntropy, Huber, SquaredError, ZeroOne


def network(seed=0, outputs=4, end=()):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs), *end).double()


def inputs(n=40, seed=0):
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slopes(models, x, loss, num_outputs=4, **options):
    return slopes_of(models, x, loss, num_outputs=num_outputs, **options)


@pytest.mark.parametrize("clip_at", [0.2, 10.0])
@pytest.mark.parametrize("batch_size", [1, 7, 1024])
def test_the_largest_gradient_is_that_of_the_worst_label(clip_at, batch_size):
    model, x, loss = network(), inputs(), ClippedCrossEntropy(clip_at)
    by_label = [gradient_norms(model, x, torch.full((len(x),), y), loss) for y in range(4)]
    (found,), change = slopes([model], x, loss, batch_size=batch_size)
    assert found.value == pytest.approx(float(torch.stack(by_label).max()), rel=1e-9)
    assert (found.num_samples, change) == (len(x), None)
    assert model.training


@pytest.mark.parametrize("loss", [SquaredError(limit=2.0), Huber(limit=2.0, delta=0.5)])
def test_of_regression_the_worst_target_is_an_end_of_the_range(loss):
    model, x = network(outputs=1), inputs()
    targets = torch.linspace(-2.0, 2.0, 41, dtype=torch.float64)
    largest = max(
        float(gradient_norms(model, x, torch.full((len(x),), float(y)).double(), loss).max()) for y in targets
    )
    (found,), _ = slopes([model], x, loss, 1)
    assert found.value == pytest.approx(largest, rel=1e-9)


def test_in_the_features_of_a_layer():
    model, x, loss = network(), inputs(), ClippedCrossEntropy()
    by_label = [gradient_norms(model, x, torch.full((len(x),), y), loss, at=model[2]) for y in range(4)]
    (found,), _ = slopes([model], x, loss, at=[model[2]])
    assert found.value == pytest.approx(float(torch.stack(by_label).max()), rel=1e-9)
    assert slopes([model, model], x, loss, at=[model[2], model[2]])[1] is None


@pytest.mark.parametrize("centred", [False, True])
def test_the_change_is_the_operator_norm_of_the_difference(centred):
    old, new, x = network(0).eval(), network(1).eval(), inputs()
    jacobian = vmap(jacrev(lambda row: (new(row[None]) - old(row[None]))[0]))(x).detach()
    jacobian = jacobian - jacobian.mean(dim=1, keepdim=True) if centred else jacobian
    norms = torch.linalg.matrix_norm(jacobian, ord=2)
    gradients, change = slopes([old, new], x, ClippedCrossEntropy(), q=0.5, centred=centred)
    assert change.value == pytest.approx(float(norms.max()), rel=1e-9)
    assert change.quantile == pytest.approx(float(norms.sort().values[19]), rel=1e-9)
    assert [g.value for g in gradients] == [slopes([m], x, ClippedCrossEntropy())[0][0].value for m in (old, new)]
    assert slopes([old, old], x, ClippedCrossEntropy())[1].value == 0.0


def test_many_outputs_look_at_fewer_rows():
    """Never more backward passes than rows, or the least that is affordable."""
    model = nn.Linear(3, 100).double()
    for n, looked in ((10, 10), (50, FEWEST_PASSES // 100), (5000, 50)):
        (found,), _ = slopes([model], inputs(n), ClippedCrossEntropy(), 100)
        assert found.num_samples == looked


def test_what_has_no_largest_gradient_is_said():
    (found,), _ = slopes([network(outputs=1)], inputs(), SquaredError(), 1)
    assert "no limit" in found


def test_without_gradients_there_is_none():
    with pytest.raises(NoGradientError, match="ZeroOne has no gradient"):
        slopes([network()], inputs(), ZeroOne())
    with pytest.raises(NoGradientError, match="model has no gradient in its inputs"):
        slopes([lambda x: x.detach()], inputs(), ClippedCrossEntropy())
