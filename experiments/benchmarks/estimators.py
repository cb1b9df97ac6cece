"""Benchmark cases of the estimators beside geomloss, POT, scikit-learn, and plain torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from trace.estimators import gradient_norms, mmd, rkhs_norm, sinkhorn_divergence
from trace.estimators.kernels import gram, median_bandwidth
from trace.losses import ClippedCrossEntropy

from .case import BenchmarkCase, Contender, Target, unit_samples
from .peers import geomloss_divergence, pot_divergence


def _sinkhorn_contenders(x: Tensor, y: Tensor) -> dict[str, Contender]:
    return {
        "ours": lambda: sinkhorn_divergence(x, y).value,
        "geomloss, scaling 0.9": lambda: geomloss_divergence(x, y),
        "POT, tol 1e-4": lambda: pot_divergence(x, y),
    }


def sinkhorn(size: dict[str, int]) -> BenchmarkCase:
    n, d = size["n"], size["d"]

    def contenders(generator: torch.Generator) -> dict[str, Contender]:
        x, y = unit_samples(n, n, d, generator)

        def bare_products() -> float:
            for p, q in ((x, x), (y, y), (x, y)):
                p @ q.T
            return math.nan

        return {**_sinkhorn_contenders(x, y), "three bare products": bare_products}

    return BenchmarkCase(
        "Sinkhorn divergence, unit features",
        f"{n} x {n} x {d}",
        contenders,
        (
            Target("geomloss, scaling 0.9", "time", at_least=10),
            Target("geomloss, scaling 0.9", "memory", at_least=2),
            Target("POT, tol 1e-4", "time", at_least=3),
            Target("three bare products", "time", at_least=1 / 1.6),
        ),
    )


def sinkhorn_large(size: dict[str, int]) -> BenchmarkCase:
    n, d = size["n_large"], size["d_large"]

    def contenders(generator: torch.Generator) -> dict[str, Contender]:
        x, y = unit_samples(n, n, d, generator)
        return {"ours": lambda: sinkhorn_divergence(x, y).value}

    return BenchmarkCase(
        "Sinkhorn divergence, large",
        f"{n} x {n} x {d}",
        contenders,
        (Target("ours", "bytes", at_most=3e9),),
    )


def sinkhorn_plane(size: dict[str, int]) -> BenchmarkCase:
    n = size["n_plane"]

    def contenders(generator: torch.Generator) -> dict[str, Contender]:
        x, y = torch.randn(n, 2, generator=generator), torch.randn(n, 2, generator=generator) + 0.5
        return _sinkhorn_contenders(x, y)

    return BenchmarkCase("Sinkhorn divergence, log domain", f"{n} x {n} x 2", contenders)


def mmd_blocks(size: dict[str, int]) -> BenchmarkCase:
    n, d = size["n"], size["d_large"]

    def contenders(generator: torch.Generator) -> dict[str, Contender]:
        x, y = unit_samples(n, n, d, generator)
        bandwidth = median_bandwidth(x, y)

        def dense() -> float:
            """The textbook formula on three whole Gram matrices."""
            xx, yy, xy = (gram(p, q, kernel="rbf", bandwidth=bandwidth) for p, q in ((x, x), (y, y), (x, y)))
            off_diagonal = [(K.sum(dtype=torch.float64) - n) / (n * (n - 1)) for K in (xx, yy)]
            return float(sum(off_diagonal) - 2 * xy.mean(dtype=torch.float64))

        return {"ours": lambda: mmd(x, y, bandwidth=bandwidth).squared, "dense formula": dense}

    return BenchmarkCase(
        "MMD, unbiased",
        f"{n} x {n} x {d}",
        contenders,
        (Target("dense formula", "time", at_least=1), Target("dense formula", "memory", at_least=1)),
    )


def mmd_large(size: dict[str, int]) -> BenchmarkCase:
    n, d = size["n_large"], size["d_large"]

    def contenders(generator: torch.Generator) -> dict[str, Contender]:
        x, y = unit_samples(n, n, d, generator)
        return {"ours": lambda: mmd(x, y, bandwidth=1.0).squared}

    return BenchmarkCase(
        "MMD, unbiased, large", f"{n} x {n} x {d}", contenders, (Target("ours", "bytes", at_most=3e8),)
    )


def gradients(size: dict[str, int]) -> Iterator[BenchmarkCase]:
    n = size["n_mlp"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mlp = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 20))
        convnet = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 20),
        )
    for name, model, shape in (("MLP", mlp, (n, 512)), ("convnet", convnet, (max(8, n // 8), 3, 32, 32))):
        contenders = partial(_gradient_contenders, model.eval().requires_grad_(False), shape)
        targets = (Target("vmap(grad)", "time", at_least=15),)
        yield BenchmarkCase(f"gradient norms, {name}", " x ".join(map(str, shape)), contenders, targets)


def _gradient_contenders(model: nn.Module, shape: tuple[int, ...], generator: torch.Generator) -> dict[str, Contender]:
    x = torch.randn(shape, generator=generator)
    y = torch.randint(0, 20, (len(x),), generator=generator)
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    loss = ClippedCrossEntropy()

    def one(xi: Tensor, yi: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, state, (xi[None],)).clamp(-10, 10), yi[None])

    def summed(gradients: Tensor) -> float:
        return float(gradients.flatten(start_dim=1).norm(dim=1).double().sum())

    def by_loop() -> float:
        return sum(summed(grad(one)(xi, yi)[None]) for xi, yi in zip(x, y, strict=True))

    return {
        "ours": lambda: float(gradient_norms(model, x, y, loss).double().sum()),
        "vmap(grad)": lambda: summed(vmap(grad(one))(x, y)),
        "loop of grad": by_loop,
    }


def kernel_ridge(size: dict[str, int]) -> BenchmarkCase:
    m = size["m_ridge"]

    def contenders(generator: torch.Generator) -> dict[str, Contender]:
        u = torch.rand(m, 4, generator=generator, dtype=torch.float64)
        t = (4 * u[:, 0]).sin() + u[:, 1] + 0.3 * torch.randn(m, generator=generator, dtype=torch.float64)
        ridges = torch.logspace(-8, 1, 30, dtype=torch.float64)

        def grid_search() -> float:
            """scikit-learn with 5 folds; its alpha is m lambda."""
            search = GridSearchCV(
                KernelRidge(kernel="rbf", gamma=2.0), {"alpha": (m * ridges).numpy()}, scoring="neg_mean_squared_error"
            ).fit(u.numpy(), t.numpy())
            alpha = torch.as_tensor(search.best_estimator_.dual_coef_)
            return math.sqrt(float(alpha @ gram(u, u, kernel="rbf", bandwidth=0.5) @ alpha))

        ours = partial(rkhs_norm, u, t, bandwidth=0.5, ridges=ridges)
        return {"ours": lambda: ours().value, "scikit-learn grid search": grid_search}

    return BenchmarkCase(
        "kernel ridge norm, 30 lambdas",
        f"{m} x 4",
        contenders,
        (Target("scikit-learn grid search", "time", at_least=5),),
    )


def cases(size: dict[str, int]) -> list[BenchmarkCase]:
    single = [make(size) for make in (sinkhorn, sinkhorn_large, sinkhorn_plane, mmd_blocks, mmd_large, kernel_ridge)]
    return [*single, *gradients(size)]
