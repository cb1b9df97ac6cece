"""Benchmark cases of training and of the run engine, in the form of `experiments.benchmarks.estimators`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from trace.training.fit import fit
from trace.training.stack import Stack
from trace.worlds import world

from ..pairs.train import labels
from .engine import cluster_answers, inline_runs_per_second, slurm_submit_seconds
from .estimators import Case, Contender, Target

LR = 1e-2
EPOCHS = 2


def stacked_training(size: dict[str, int]) -> Iterator[Case]:
    """Many small perceptrons as one stack against a loop with torch's own Adam; the value is their mean loss."""
    k, n = size["k_stack"], size["n_stack"]
    for batch_size in (64, 256):
        yield Case(
            f"training, batches of {batch_size}",
            f"{k} perceptrons, {EPOCHS} epochs of {n}",
            partial(_training_contenders, k, n, batch_size),
            (Target("loop over models", "time", at_least=10),) if batch_size == 64 else (),
        )


def _training_contenders(k: int, n: int, batch_size: int, generator: Generator) -> dict[str, Contender]:
    drawn = [world("moons_warp").target(n, generator=generator) for _ in range(k)]
    x, y = torch.stack([sample.x for sample in drawn]), torch.stack([labels(sample) for sample in drawn])
    first = Stack.draw([2, 64, 64, 2], [generator] * k, activation="tanh")
    return {
        "ours": partial(_stacked, first, x, y, batch_size),
        "loop over models": partial(_looped, first, x, y, batch_size),
    }


def _orders(k: int) -> list[Generator]:
    return [torch.Generator().manual_seed(i) for i in range(k)]


def _stacked(first: Stack, x: Tensor, y: Tensor, batch_size: int) -> float:
    k = len(x)
    stack = fit(first.select(range(k)), x, y, lr=torch.full((k,), LR), weight_decay=torch.zeros(k), epochs=EPOCHS,
                batch_size=batch_size, generators=_orders(k))  # fmt: skip
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


def engine(size: dict[str, int]) -> Iterator[Case]:
    """Empty runs, and a grid submitted to SLURM where a cluster answers; the value is what was counted."""
    count, submitted = size["runs_inline"], size["runs_slurm"]

    def inline() -> float:
        inline_runs_per_second(count)
        return count

    quick = Target("ours", "seconds", at_most=count / 50)
    yield Case("empty runs, inline", f"{count} runs", lambda _: {"ours": inline}, (quick,))

    def submit() -> float:
        slurm_submit_seconds(submitted)
        return submitted

    if cluster_answers():
        prompt = Target("ours", "seconds", at_most=5)
        yield Case("grid to SLURM, one array", f"{submitted} runs", lambda _: {"ours": submit}, (prompt,))
