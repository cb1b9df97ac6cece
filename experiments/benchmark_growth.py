"""How the cost of each estimator grows with n: times from 1,000 to 50,000 samples, and the log-log slope.

Part of `python -m experiments benchmark`; the table and the figure `growth` are made from its record. An estimator is
measured at larger and larger n until one call takes longer than `LIMIT` seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from trace.estimators import gradient_quantile, mmd, output_distance, rkhs_norm, sinkhorn_divergence, wasserstein1
from trace.losses import ClippedCrossEntropy
from trace.selection import mmdmin, w1min

from .benchmark_cases import unit_samples
from .records import Record

SIZES = {"cpu": [1000, 2000, 5000, 10_000, 20_000, 50_000], "smoke": [60, 120]}
DIM = {"cpu": 64, "smoke": 8}
LIMIT = 15.0
CLASSES = 10
CHOSEN = 50

Estimator = Callable[[Tensor, Tensor, Tensor], float]
"""Of source and target features ``[n, d]`` and labels ``[n]``."""


def _gradients(x: Tensor, _y: Tensor, labels: Tensor) -> float:
    layers = nn.Sequential(nn.Linear(x.shape[1], 128), nn.ReLU(), nn.Linear(128, CLASSES))
    return gradient_quantile(layers, x, labels, ClippedCrossEntropy()).value


def _selected_w1(x: Tensor, y: Tensor, _labels: Tensor) -> float:
    return w1min(x, y, CHOSEN, generator=torch.Generator().manual_seed(0)).objective


ESTIMATORS: dict[str, Estimator] = {
    "Sinkhorn divergence": lambda x, y, _: sinkhorn_divergence(x, y).value,
    "exact W1": lambda x, y, _: wasserstein1(x, y, max_samples=len(x)).value,
    "MMD, unbiased": lambda x, y, _: mmd(x, y).squared,
    "MMD, linear": lambda x, y, _: mmd(x, y, estimator="linear").squared,
    "kernel ridge norm (3,000 at most)": lambda x, _y, labels: rkhs_norm(x, labels.to(x.dtype)).value,
    "gradient quantile": _gradients,
    "output distance": lambda x, y, _: output_distance(x, y).value,
    "mmdmin, choose 50": lambda x, y, _: mmdmin(x, y, CHOSEN).objective,
    "w1min, choose 50": _selected_w1,
}


def growth(profile: str, seed: int, *, limit: float = LIMIT) -> list[Record]:
    """One row per estimator and size: seconds of one call, the better of two at the smaller sizes."""
    sizes, dim = SIZES[profile], DIM[profile]
    rows = []
    for name, estimator in ESTIMATORS.items():
        for n in sizes:
            generator = torch.Generator().manual_seed(seed)
            x, y = unit_samples(n, n, dim, generator)
            labels = torch.randint(0, CLASSES, (n,), generator=generator)
            seconds = min(_seconds(estimator, x, y, labels) for _ in range(2 if n <= sizes[0] * 10 else 1))
            rows.append({"estimator": name, "n": n, "dim": dim, "seconds": seconds})
            if seconds > limit:
                break
    return rows


def _seconds(estimator: Estimator, x: Tensor, y: Tensor, labels: Tensor) -> float:
    started = time.perf_counter()
    estimator(x, y, labels)
    return time.perf_counter() - started
