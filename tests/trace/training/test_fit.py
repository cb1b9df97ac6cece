"""Stacked training is the plain loop; logistic regression is scikit-learn's at convergence."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn.functional import cross_entropy

from trace.training.fit import fit, fit_logistic
from trace.training.stack import Stack
from trace.worlds import world


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def moons(k, n, dtype=torch.float32):
    drawn = [world("moons_warp", severity=0.3 * i).target(n, generator=seeded(i)) for i in range(k)]
    return torch.stack([s.x for s in drawn]).to(dtype), torch.stack([s.y for s in drawn])


def plain_loop(model, x, y, *, lr, weight_decay, epochs, batch_size, generator):
    """What anyone would write for one model."""
    optimiser = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for batch in order.split(batch_size):
            optimiser.zero_grad()
            cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    return model


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_a_stack_learns_what_a_plain_loop_does(dtype, tolerance):
    k, n = 4, 150
    x, y = moons(k, n, dtype)
    lr, decay = torch.tensor([1e-3, 1e-2, 3e-3, 1e-4]), torch.tensor([0.0, 1e-3, 1e-2, 1e-4])
    first = Stack.draw([2, 16, 2], [seeded(i) for i in range(k)], activation="tanh", dtype=dtype)
    stack = first.select(range(k))
    seen = []
    fit(stack, x, y, lr=lr, weight_decay=decay, epochs=5, batch_size=64, generators=[seeded(10 + i) for i in range(k)],
        progress=lambda epoch, losses: seen.append((epoch, losses.mean())))  # fmt: skip
    for i in range(k):
        alone = plain_loop(first.member(i), x[i], y[i], lr=float(lr[i]), weight_decay=float(decay[i]), epochs=5,
                           batch_size=64, generator=seeded(10 + i))  # fmt: skip
        losses = [float(cross_entropy(m(x[i]), y[i]).detach()) for m in (stack.member(i), alone)]
        assert abs(losses[0] - losses[1]) < tolerance
    assert [epoch for epoch, _ in seen] == list(range(5))
    assert seen[-1][1] < seen[0][1]


def test_training_refuses_what_it_cannot_do():
    x, y = moons(2, 20)
    stack = Stack.draw([2, 4, 2], [seeded(0), seeded(1)])
    arguments = {"weight_decay": torch.zeros(2), "epochs": 3, "batch_size": 10, "generators": [seeded(0), seeded(1)]}
    with pytest.raises(ValueError, match=r"members \[1\] is not finite"):
        fit(stack, x, y, lr=torch.tensor([1e-3, 1e38]), **arguments)
    with pytest.raises(ValueError, match="a stack of 2 needs"):
        fit(stack, x, y, lr=torch.tensor([1e-3]), **arguments)
    with pytest.raises(ValueError, match="epochs"):
        fit(stack, x, y, lr=torch.tensor([1e-3, 1e-3]), **{**arguments, "epochs": 0})


def test_logistic_is_scikit_learns():
    k, n = 3, 400
    drawn = [world("blobs_shift", severity=0.4 * i).target(n, generator=seeded(i)) for i in range(k)]
    x, y = torch.stack([s.x for s in drawn]).double(), torch.stack([s.y for s in drawn])
    decay = torch.tensor([1e-6, 1e-4, 1e-2], dtype=torch.float64)
    found = fit_logistic(x, y, weight_decay=decay)
    for i in range(k):
        peer = LogisticRegression(C=1 / (n * float(decay[i])), tol=1e-12, max_iter=1000).fit(x[i].numpy(), y[i].numpy())
        torch.testing.assert_close(found.weights[i], torch.as_tensor(peer.coef_[0]), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.intercepts[i], torch.as_tensor(peer.intercept_[0]), rtol=1e-4, atol=1e-5)
    assert found.gradient_norm < 1e-9
    logits = found.stack()(x)
    torch.testing.assert_close(
        logits[..., 1] - logits[..., 0], torch.einsum("knd,kd->kn", x, found.weights) + found.intercepts[:, None]
    )


def test_logistic_on_separable_classes_needs_decay():
    x = torch.tensor([[[-1.0], [-0.5], [0.5], [1.0]]], dtype=torch.float64)
    y = torch.tensor([[0, 0, 1, 1]])
    assert fit_logistic(x, y, weight_decay=torch.tensor([1e-3])).gradient_norm < 1e-9
    with pytest.raises(ValueError, match="raise weight_decay"):
        fit_logistic(x, y, weight_decay=torch.tensor([0.0]), max_iters=20)


def test_logistic_keeps_the_dtype():
    x, y = moons(1, 100)
    assert fit_logistic(x, y, weight_decay=torch.tensor([1e-3])).weights.dtype == torch.float32
