"""Many small networks as one: a stack of k multilayer perceptrons whose layers are batched matrix products."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import skip_init

_LAYERS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh}


class Stack(nn.Module):
    """k perceptrons of one shape. Member i computes what ``member(i)`` does, all of them in one product per layer."""

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: str = "relu") -> None:
        """``weights[l] [k, in, out]`` and ``biases[l] [k, 1, out]`` of every layer l."""
        super().__init__()
        if activation not in _LAYERS:
            raise ValueError(f"activation must be one of {', '.join(_LAYERS)}, got {activation!r}")
        self.weights = nn.ParameterList(weights)
        self.biases = nn.ParameterList(biases)
        self.activation = activation

    @classmethod
    def draw(
        cls,
        sizes: Sequence[int],
        generators: Sequence[Generator],
        *,
        activation: str = "relu",
        dtype: torch.dtype = torch.float32,
    ) -> "Stack":
        """One member per generator, layers of ``sizes`` (inputs, hidden ..., outputs), initialised like `nn.Linear`."""
        if len(sizes) < 2 or not generators:
            raise ValueError(f"a stack needs input and output sizes and a generator per member, got sizes {sizes}")
        weights: list[list[Tensor]] = []
        biases: list[list[Tensor]] = []
        for generator in generators:
            drawn = [
                (2 * torch.rand((n_in + 1, n_out), generator=generator, dtype=dtype) - 1) / math.sqrt(n_in)
                for n_in, n_out in pairwise(sizes)
            ]
            weights.append([layer[:-1] for layer in drawn])
            biases.append([layer[-1:] for layer in drawn])
        return cls(
            [torch.stack(w) for w in zip(*weights, strict=True)],
            [torch.stack(b) for b in zip(*biases, strict=True)],
            activation,
        )

    def __len__(self) -> int:
        return len(self.weights[0])

    def forward(self, x: Tensor) -> Tensor:
        """``[k, n, in] -> [k, n, out]``."""
        act = torch.relu if self.activation == "relu" else torch.tanh
        for layer, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(b, act(x) if layer else x, w)
        return x

    def select(self, members: Sequence[int]) -> "Stack":
        """A stack of copies of some members, in the given order and possibly repeated."""
        index = torch.as_tensor(list(members))
        return Stack(
            [w.detach()[index] for w in self.weights], [b.detach()[index] for b in self.biases], self.activation
        )

    @classmethod
    def joined(cls, stacks: Sequence["Stack"]) -> "Stack":
        """The members of several stacks of one shape, in their order."""
        weights = [torch.cat([w.detach() for w in layer]) for layer in zip(*(s.weights for s in stacks), strict=True)]
        biases = [torch.cat([b.detach() for b in layer]) for layer in zip(*(s.biases for s in stacks), strict=True)]
        return cls(weights, biases, stacks[0].activation)

    def member(self, i: int) -> nn.Sequential:
        """Member i as a model of its own, with copies of its parameters; the last hidden layer is ``[-2]``."""
        layers: list[nn.Module] = []
        for w, b in zip(self.weights, self.biases, strict=True):
            linear = skip_init(nn.Linear, w.shape[1], w.shape[2], dtype=w.dtype, device=w.device)
            linear.load_state_dict({"weight": w[i].T, "bias": b[i, 0]})
            layers += [linear, _LAYERS[self.activation]()]
        return nn.Sequential(*layers[:-1])


def sigmoid_twin(model: nn.Sequential) -> nn.Sequential:
    """The same function with ``tanh(z) = 2 sigmoid(2 z) - 1`` folded into the weights: torch's sigmoid is far faster.

    For models of linear layers and tanh in turns, as `Stack.member` makes; any other comes back as it is.
    """
    kinds = [type(layer) for layer in model]
    if kinds != [nn.Linear, nn.Tanh] * (len(kinds) // 2) + [nn.Linear] or len(kinds) == 1:
        return model
    layers: list[nn.Module] = []
    for i, layer in enumerate(model):
        if not isinstance(layer, nn.Linear):
            layers.append(nn.Sigmoid())
            continue
        first, last = i == 0, i == len(model) - 1
        W, b = layer.weight.detach(), layer.bias.detach()
        twin = skip_init(nn.Linear, layer.in_features, layer.out_features, dtype=W.dtype, device=W.device)
        outer, inner = (1 if last else 2), (1 if first else 2)
        twin.load_state_dict({"weight": outer * inner * W, "bias": outer * (b if first else b - W.sum(dim=1))})
        layers.append(twin)
    return nn.Sequential(*layers)
