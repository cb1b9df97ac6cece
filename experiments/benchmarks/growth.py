"""How the cost of each estimator grows with n: times from 1,000 to 50,000 samples, and the log-log slope.

Part of `python -m experiments benchmark`; the table and the figure `growth` are made from its record. An estimator is
measured at larger and larger n until one call takes longer than `LIMIT` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trace.estimators import gradient_quantile, mmd, output_distance, rkhs_norm, sinkhorn_divergence, wasserstein1
from trace.losses import ClippedCrossEntropy
from trace.selection import mmdmin, w1min
from trace.training.stack import Stack

from ..engine.records import Record
from . import unit_samples

SIZES = {"cpu": [1000, 2000, 5000, 10_000, 20_000, 50_000], "smoke": [60, 120]}
DIM = {"cpu": 64, "smoke": 8}
LIMIT = 15.0
CLASSES = 10
CHOSEN = 50


class Inputs(NamedTuple):
    """What an estimator is given; drawing it is not timed."""

    x: Tensor
    """Source features ``[n, d]``."""
    y: Tensor
    """Target features ``[n, d]``."""
    labels: Tensor
    """``[n]``."""
    layers: nn.Sequential
    """A perceptron with 128 hidden units."""

    @classmethod
    def draw(cls, n: int, dim: int, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        x, y = unit_samples(n, n, dim, generator)
        labels = torch.randint(0, CLASSES, (n,), generator=generator)
        return cls(x, y, labels, Stack.draw([dim, 128, CLASSES], [generator], activation="relu").member(0))


def _selected_w1(given: Inputs) -> float:
    return w1min(given.x, given.y, CHOSEN, generator=torch.Generator().manual_seed(0)).objective


ESTIMATORS: dict[str, Callable[[Inputs], float]] = {
    "Sinkhorn divergence": lambda i: sinkhorn_divergence(i.x, i.y).value,
    "exact W1": lambda i: wasserstein1(i.x, i.y, max_samples=len(i.x)).value,
    "MMD, unbiased": lambda i: mmd(i.x, i.y).squared,
    "MMD, linear": lambda i: mmd(i.x, i.y, estimator="linear").squared,
    "kernel ridge norm (3,000 at most)": lambda i: rkhs_norm(i.x, i.labels.to(i.x.dtype)).value,
    "gradient quantile": lambda i: gradient_quantile(i.layers, i.x, i.labels, ClippedCrossEntropy()).value,
    "output distance": lambda i: output_distance(i.x, i.y).value,
    "mmdmin, choose 50": lambda i: mmdmin(i.x, i.y, CHOSEN).objective,
    "w1min, choose 50": _selected_w1,
}


def growth(profile: str, seed: int, *, limit: float = LIMIT) -> list[Record]:
    """One row per estimator and size: seconds of one call, the better of two at the smaller sizes."""
    sizes, dim = SIZES[profile], DIM[profile]
    rows = []
    for name, estimator in ESTIMATORS.items():
        for n in sizes:
            given = Inputs.draw(n, dim, seed)
            seconds = min(_seconds(estimator, given) for _ in range(2 if n <= sizes[0] * 10 else 1))
            rows.append({"estimator": name, "n": n, "dim": dim, "seconds": seconds})
            if seconds > limit:
                break
    return rows


def _seconds(estimator: Callable[[Inputs], float], given: Inputs) -> float:
    started = time.perf_counter()
    estimator(given)
    return time.perf_counter() - started
