"""Benchmark cases of training."""

from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from trace.training.fit import fit
from trace.training.stack import Stack
from trace.worlds import world

from ..pairs.train import labels
from . import BenchmarkCase, Target

LR = 1e-2
EPOCHS = 2


def cases(size: dict[str, int]) -> list[BenchmarkCase]:
    """Many small perceptrons as one stack against a loop with torch's own Adam; the value is their mean loss.

    What a sweep gains: an hour of training in a loop takes 12 minutes at most in batches of 64, 24 in larger ones.
    """
    k, n = size["k_stack"], size["n_stack"]
    return [
        BenchmarkCase(
            f"training, batches of {batch_size}",
            f"{k} perceptrons, {EPOCHS} epochs of {n}",
            partial(_drawn, k, n, batch_size),
            {"ours": _stacked, "loop over models": _looped},
            (Target("loop over models", "time", at_least=gain),),
        )
        for batch_size, gain in ((64, 5.0), (256, 2.5))
    ]


def _drawn(k: int, n: int, batch_size: int, generator: Generator) -> tuple[Stack, Tensor, Tensor, int]:
    drawn = [world("moons_warp").target(n, generator=generator) for _ in range(k)]
    x, y = torch.stack([sample.x for sample in drawn]), torch.stack([labels(sample) for sample in drawn])
    return Stack.draw([2, 64, 64, 2], [generator] * k, activation="tanh"), x, y, batch_size


def _orders(k: int) -> list[Generator]:
    return [torch.Generator().manual_seed(i) for i in range(k)]


def _stacked(first: Stack, x: Tensor, y: Tensor, batch_size: int) -> float:
    k = len(x)
    stack = fit(
        first.select(range(k)),
        x,
        y,
        lr=torch.full((k,), LR),
        weight_decay=torch.zeros(k),
        epochs=EPOCHS,
        batch_size=batch_size,
        generators=_orders(k),
    )
    with torch.no_grad():
        return float(cross_entropy(stack(x).flatten(0, 1), y.flatten()))


def _looped(first: Stack, x: Tensor, y: Tensor, batch_size: int) -> float:
    losses = []
    for i, generator in enumerate(_orders(len(x))):
        model = first.member(i)
        optimiser = torch.optim.Adam(model.parameters(), LR)
        for _ in range(EPOCHS):
            for batch in torch.randperm(x.shape[1], generator=generator).split(batch_size):
                optimiser.zero_grad()
                cross_entropy(model(x[i][batch]), y[i][batch]).backward()
                optimiser.step()
        with torch.no_grad():
            losses.append(float(cross_entropy(model(x[i]), y[i])))
    return sum(losses) / len(losses)
