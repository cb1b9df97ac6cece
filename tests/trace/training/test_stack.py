"""A stack computes what its members do."""

import pytest
import torch

from trace.training.stack import Stack, sigmoid_twin


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_members_compute_what_the_stack_does(activation):
    stack = Stack.draw([3, 8, 5, 2], [seeded(i) for i in range(4)], activation=activation, dtype=torch.float64)
    x = torch.randn(4, 10, 3, generator=seeded(9), dtype=torch.float64)
    together = stack(x)
    for i in range(len(stack)):
        torch.testing.assert_close(stack.member(i)(x[i]), together[i], rtol=1e-12, atol=1e-12)


def test_a_member_is_drawn_from_its_generator_alone():
    pair = Stack.draw([2, 4, 2], [seeded(0), seeded(1)])
    alone = Stack.draw([2, 4, 2], [seeded(1)])
    for together, single in zip(pair.parameters(), alone.parameters(), strict=True):
        assert torch.equal(together[1], single[0])


def test_initial_weights_are_those_of_linear_layers():
    w = Stack.draw([100, 50, 2], [seeded(0)]).weights[0].detach()
    assert w.abs().max() <= 0.1
    assert abs(float(w.std()) - 0.1 / 3**0.5) < 2e-3


def test_select_copies():
    stack = Stack.draw([2, 4, 2], [seeded(0), seeded(1)])
    chosen = stack.select([1, 1, 0])
    assert len(chosen) == 3
    with torch.no_grad():
        chosen.weights[0].zero_()
    assert stack.weights[0].abs().sum() > 0


def test_joined_keeps_the_order():
    first, second = (Stack.draw([2, 4, 2], [seeded(i)], activation="tanh") for i in range(2))
    both = Stack.joined([first, second])
    x = torch.randn(5, 2, generator=seeded(7))
    for i, alone in enumerate((first, second)):
        torch.testing.assert_close(both.member(i)(x), alone.member(0)(x))


def test_bad_shapes_and_activations():
    with pytest.raises(ValueError, match="activation must be one of relu, tanh"):
        Stack.draw([2, 2], [seeded(0)], activation="gelu")
    with pytest.raises(ValueError, match="a stack needs"):
        Stack.draw([2], [seeded(0)])


@pytest.mark.parametrize("sizes", [[3, 8, 2], [3, 8, 5, 2]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_sigmoid_twin_computes_the_same(sizes, dtype):
    model = Stack.draw(sizes, [seeded(0)], activation="tanh", dtype=dtype).member(0)
    x = 5 * torch.randn(200, 3, generator=seeded(1), dtype=dtype)
    twin = sigmoid_twin(model)
    assert not any(isinstance(layer, torch.nn.Tanh) for layer in twin)
    close = 1e-12 if dtype == torch.float64 else 2e-6
    torch.testing.assert_close(twin(x), model(x), rtol=close, atol=close)


def test_only_tanh_networks_have_a_twin():
    for model in (
        Stack.draw([3, 8, 2], [seeded(0)], activation="relu").member(0),
        Stack.draw([3, 2], [seeded(0)], activation="tanh").member(0),
        torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()),
    ):
        assert sigmoid_twin(model) is model


def test_members_and_twins_leave_the_global_random_state_alone():
    stack = Stack.draw([3, 8, 2], [seeded(0)], activation="tanh")
    before = torch.random.get_rng_state()
    sigmoid_twin(stack.member(0))
    assert torch.equal(torch.random.get_rng_state(), before)
