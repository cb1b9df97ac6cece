"""Benchmark cases of the estimators beside geomloss, POT, scikit-learn, and plain torch.

geomloss and POT solve for the cost ``|x - y|^2`` and the regularisation epsilon of the paper. geomloss works with
``|x - y|^2 / 2`` and ``epsilon = blur^2``, so blur is ``sqrt(epsilon / 2)`` and its value counts twice.
"""

import math
from collections.abc import Callable
from functools import partial

import ot
import torch
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad, vmap

from trace.checks import check_positive, check_samples
from trace.estimators import gradient_norms, mmd, rkhs_norm, sinkhorn_divergence, wasserstein1
from trace.estimators.kernels import gram, median_bandwidth
from trace.losses import ClippedCrossEntropy

from . import BenchmarkCase, Contender, Target, unit_samples

RIDGES = torch.logspace(-8, 1, 30, dtype=torch.float64)


def geomloss_divergence(x: Tensor, y: Tensor, *, epsilon: float = 0.1, scaling: float = 0.9) -> float:
    """Debiased divergence by geomloss (epsilon scaling). ``scaling=0.5``, its default, is off by up to a third."""
    from geomloss import SamplesLoss

    check_samples(x, y)
    check_positive(epsilon, "epsilon")
    loss = SamplesLoss("sinkhorn", p=2, blur=math.sqrt(epsilon / 2), scaling=scaling, backend="tensorized")
    with torch.no_grad():
        return 2 * float(loss(x, y))


def pot_divergence(x: Tensor, y: Tensor, *, epsilon: float = 0.1, num_iters: int = 1000, tol: float = 1e-4) -> float:
    """Debiased divergence from three POT solves in the dual form, entropy included."""
    check_samples(x, y)
    check_positive(epsilon, "epsilon")

    def transport(p: Tensor, q: Tensor) -> float:
        cost = ot.dist(p, q, metric="sqeuclidean")
        result = ot.solve(cost, reg=epsilon, reg_type="KL", max_iter=num_iters, tol=tol, grad="detach")
        return float(result.value)

    return transport(x, y) - (transport(x, x) + transport(y, y)) / 2


SINKHORN: dict[str, Contender] = {
    "ours": lambda x, y: sinkhorn_divergence(x, y).value,
    "geomloss, scaling 0.9": geomloss_divergence,
    "POT, tol 1e-4": pot_divergence,
}


def cases(size: dict[str, int]) -> list[BenchmarkCase]:
    n, d, n_large, d_large = size["n"], size["d"], size["n_large"], size["d_large"]
    n_plane, m = size["n_plane"], size["m_ridge"]
    return [
        BenchmarkCase(
            "Sinkhorn divergence, unit features",
            f"{n} x {n} x {d}",
            partial(unit_samples, n, n, d),
            {**SINKHORN, "three bare products": _bare_products},
            (
                Target("geomloss, scaling 0.9", "time", at_least=10),
                Target("geomloss, scaling 0.9", "memory", at_least=2),
                Target("POT, tol 1e-4", "time", at_least=3),
                Target("three bare products", "time", at_least=1 / 1.6),
            ),
        ),
        BenchmarkCase(
            "Sinkhorn divergence, large",
            f"{n_large} x {n_large} x {d_large}",
            partial(unit_samples, n_large, n_large, d_large),
            {"ours": SINKHORN["ours"]},
            (Target("ours", "bytes", at_most=3e9),),
        ),
        BenchmarkCase(
            "Sinkhorn divergence, log domain", f"{n_plane} x {n_plane} x 2", partial(_plane, n_plane), SINKHORN
        ),
        BenchmarkCase(
            "MMD, unbiased",
            f"{n} x {n} x {d_large}",
            partial(_with_bandwidth, n, d_large),
            {"ours": lambda x, y, bandwidth: mmd(x, y, bandwidth=bandwidth).squared, "dense formula": _dense_mmd},
            (Target("dense formula", "time", at_least=1), Target("dense formula", "memory", at_least=1)),
        ),
        BenchmarkCase(
            "MMD, unbiased, large",
            f"{n_large} x {n_large} x {d_large}",
            partial(unit_samples, n_large, n_large, d_large),
            {"ours": lambda x, y: mmd(x, y, bandwidth=1.0).squared},
            (Target("ours", "bytes", at_most=3e8),),
        ),
        BenchmarkCase(
            "kernel ridge norm, 30 lambdas",
            f"{m} x 4",
            partial(_regression, m),
            {
                "ours": lambda u, t: rkhs_norm(u, t, bandwidth=0.5, ridges=RIDGES).value,
                "scikit-learn grid search": _grid_search,
            },
            (Target("scikit-learn grid search", "time", at_least=5),),
        ),
        *_gradient_cases(size["n_mlp"]),
        *_exact_cases(n_plane),
    ]


def _exact_cases(n: int) -> list[BenchmarkCase]:
    """In any dimension never slower than POT by more than a tenth; in 512 at least twice as fast."""
    return [
        BenchmarkCase(
            f"exact W1, {d} dimensions",
            f"{n} x {n} x {d}",
            partial(unit_samples, n, n, d),
            {"ours": lambda x, y: wasserstein1(x, y).value, "POT emd2": _pot_exact},
            (Target("POT emd2", "time", at_least=2 if d == 512 else 1 / 1.1),),
        )
        for d in (2, 8, 64, 512)
    ]


def _pot_exact(x: Tensor, y: Tensor) -> float:
    cost = ot.dist(x.double().numpy(), y.double().numpy(), metric="euclidean")
    return float(ot.emd2([], [], cost, numItermax=10_000_000))


def _bare_products(x: Tensor, y: Tensor) -> float:
    for p, q in ((x, x), (y, y), (x, y)):
        p @ q.T
    return math.nan


def _plane(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    return torch.randn(n, 2, generator=generator), torch.randn(n, 2, generator=generator) + 0.5


def _with_bandwidth(n: int, d: int, generator: Generator) -> tuple[Tensor, Tensor, float]:
    x, y = unit_samples(n, n, d, generator)
    return x, y, median_bandwidth(x, y)


def _dense_mmd(x: Tensor, y: Tensor, bandwidth: float) -> float:
    """The textbook formula on three whole Gram matrices."""
    n = len(x)
    xx, yy, xy = (gram(p, q, kernel="rbf", bandwidth=bandwidth) for p, q in ((x, x), (y, y), (x, y)))
    off_diagonal = [(K.sum(dtype=torch.float64) - n) / (n * (n - 1)) for K in (xx, yy)]
    return float(sum(off_diagonal) - 2 * xy.mean(dtype=torch.float64))


def _regression(m: int, generator: Generator) -> tuple[Tensor, Tensor]:
    u = torch.rand(m, 4, generator=generator, dtype=torch.float64)
    return u, (4 * u[:, 0]).sin() + u[:, 1] + 0.3 * torch.randn(m, generator=generator, dtype=torch.float64)


def _grid_search(u: Tensor, t: Tensor) -> float:
    """scikit-learn with 5 folds; its alpha is m lambda."""
    search = GridSearchCV(
        KernelRidge(kernel="rbf", gamma=2.0), {"alpha": (len(u) * RIDGES).numpy()}, scoring="neg_mean_squared_error"
    ).fit(u.numpy(), t.numpy())
    alpha = torch.as_tensor(search.best_estimator_.dual_coef_)
    return math.sqrt(float(alpha @ gram(u, u, kernel="rbf", bandwidth=0.5) @ alpha))


def _gradient_cases(n: int) -> list[BenchmarkCase]:
    """One backward pass a batch: as fast as vmap with two thirds of its memory, and much faster than a loop."""
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
    return [
        BenchmarkCase(
            f"gradient norms, {name}",
            " x ".join(map(str, shape)),
            partial(_classified, model.eval().requires_grad_(False), shape),
            {
                "ours": lambda model, x, y: float(gradient_norms(model, x, y, ClippedCrossEntropy()).double().sum()),
                "vmap(grad)": lambda model, x, y: _summed(vmap(_gradient(model))(x, y)),
                "loop of grad": _by_loop,
            },
            (
                Target("vmap(grad)", "time", at_least=0.9),
                Target("vmap(grad)", "memory", at_least=1.5),
                Target("loop of grad", "time", at_least=per_loop),
            ),
        )
        for name, model, shape, per_loop in (
            ("MLP", mlp, (n, 512), 10.0),
            ("convnet", convnet, (max(8, n // 8), 3, 32, 32), 1.2),
        )
    ]


def _classified(model: nn.Module, shape: tuple[int, ...], generator: Generator) -> tuple[nn.Module, Tensor, Tensor]:
    x = torch.randn(shape, generator=generator)
    return model, x, torch.randint(0, 20, (len(x),), generator=generator)


def _gradient(model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """Of the loss of one sample in its input."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def loss(x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(functional_call(model, state, (x[None],)).clamp(-10, 10), y[None])

    return grad(loss)


def _summed(gradients: Tensor) -> float:
    return float(gradients.flatten(start_dim=1).norm(dim=1).double().sum())


def _by_loop(model: nn.Module, x: Tensor, y: Tensor) -> float:
    gradient = _gradient(model)
    return sum(_summed(gradient(xi, yi)[None]) for xi, yi in zip(x, y, strict=True))
