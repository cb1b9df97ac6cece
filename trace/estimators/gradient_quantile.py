"""Sensitivity of a model: norms of the loss gradient in the inputs, and their high quantile (``assump:Lx``)."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..checks import check_level
from ..losses import Loss
from ..stats.betting import sequence_ranks
from .kernels import tiles

Model = Callable[[Tensor], Tensor]

BAND_DELTAS = tuple(0.2 / 2**k for k in range(14))
"""Failure probabilities of the bands that a `GradientQuantile` keeps, from 0.2 down to 2.4e-5."""


class NoGradientError(ValueError):
    """The loss is not differentiable in the point where its gradient was asked for."""


class GradientQuantile(NamedTuple):
    """``L_x^(q)``: the q-quantile of gradient norms, with a band that holds with probability ``1 - eta`` for all n."""

    value: float
    lower: float
    upper: float
    """Infinite where so few samples say nothing about the quantile from above."""
    q: float
    eta: float
    num_samples: int
    pseudo_labels: bool
    bands: tuple[tuple[float, float, float], ...] = ()
    """``(delta, lower, upper)`` for levels from loose to strict: each holds alone with probability ``1 - delta``.

    By order statistics (`sequence_ranks`): much narrower than the paper's DKW band, which holds for all quantiles at
    once but at one n.
    """


@contextmanager
def evaluation_mode(*models: Model) -> Iterator[None]:
    """Put modules in eval mode and give every submodule back as it was, whatever happens inside."""
    modules = [m for model in models if isinstance(model, nn.Module) for m in model.modules()]
    training = [m.training for m in modules]
    try:
        for m in modules:
            m.training = False
        yield
    finally:
        for m, was_training in zip(modules, training, strict=True):
            m.training = was_training


def rows_of(function: Model, x: Tensor, name: str) -> Tensor:
    """``function(x)``, checked to be one finite row per input, ``[n, k]``. Its errors name it and the inputs."""
    try:
        rows = function(x)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
            raise ValueError(f"{name} ran out of memory on {len(x)} inputs: lower batch_size ({error})") from error
        raise ValueError(
            f"{name} failed on inputs {list(x.shape)} of {x.dtype} on {x.device}: give it the shape, dtype and device "
            f"it was made for ({error})"
        ) from error
    if not isinstance(rows, Tensor) or rows.ndim != 2 or len(rows) != len(x):
        got = list(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise ValueError(
            f"{name} returned {got} for {len(x)} inputs: it must return a tensor [n, k], one row per input"
        )
    if not bool(torch.isfinite(rows).all()):
        raise ValueError(f"{name} returned NaN or infinity: check its weights and the scale of the inputs")
    return rows


def gradient_norms(
    model: Model,
    x: Tensor,
    y: Tensor | None,
    loss: Loss,
    *,
    at: nn.Module | None = None,
    batch_size: int = 1024,
    name: str = "model",
) -> Tensor:
    """``|grad_x ell(f(x_i), y_i)|`` of every sample, ``[n]``: one backward pass of the summed loss per batch.

    Samples do not interact in eval mode, so the gradient of the sum holds every sample's own gradient.

    Args:
        model: maps ``x [n, ...]`` to outputs ``[n, C]``; a module is run in eval mode and given back as it was.
        y: labels ``[n]``, or None for the model's own predictions as pseudo-labels (classification only).
        at: a submodule; the gradient is then taken in its output (feature space) instead of in x.
        batch_size: samples per backward pass.

    Raises:
        ValueError: for bad inputs, outputs of the wrong shape, or a loss without a gradient.
    """
    if not isinstance(x, Tensor) or not x.is_floating_point() or len(x) == 0:
        raise ValueError("x must be a non-empty floating-point tensor [n, ...]: convert it with x.float()")
    if y is None and not loss.classification:
        raise ValueError("y is None, but pseudo-labels exist for classification only: pass the targets")
    if y is not None and len(y) != len(x):
        raise ValueError(f"y has {len(y)} labels for {len(x)} samples: pass one per sample")
    norms = []
    with torch.enable_grad(), evaluation_mode(model):
        for batch in tiles(len(x), batch_size):
            gradient = _gradient(model, x[batch], None if y is None else y[batch], loss, at, name)
            norms.append(torch.linalg.vector_norm(gradient.flatten(start_dim=1), dim=1))
    found = torch.cat(norms)
    if not bool(torch.isfinite(found).all()):
        raise ValueError(f"the gradient of {name} is NaN or infinite for some inputs: smooth the model there")
    return found


def outputs_at(model: Model, x: Tensor, at: nn.Module | None, name: str) -> tuple[Tensor, Tensor]:
    """The leaf where gradients are taken, x or the output of ``at``, and the model's outputs as a function of it."""
    x = x.detach().requires_grad_(at is None)
    if at is None:
        return x, rows_of(model, x.clone(), name)
    with watched(at, "at", by=name, leaf=True) as captured:
        outputs = rows_of(model, x.clone(), name)
    return captured[0], outputs


def _gradient(model: Model, x: Tensor, y: Tensor | None, loss: Loss, at: nn.Module | None, name: str) -> Tensor:
    where, outputs = outputs_at(model, x, at, name)
    losses = loss(outputs, outputs.detach().argmax(dim=1) if y is None else y)
    if not losses.requires_grad:
        raise NoGradientError(
            f"{type(loss).__name__} of {name} has no gradient in its inputs: use a differentiable loss and model"
        )
    (gradient,) = torch.autograd.grad(losses.sum(), where, allow_unused=True)
    if gradient is None:
        raise NoGradientError(
            f"{name} does not depend on the point where the gradient is taken: check `at` and the model"
        )
    return gradient.detach()


@contextmanager
def watched(module: nn.Module, name: str, *, by: str, leaf: bool = False) -> Iterator[list[Tensor]]:
    """Collect a copy of a submodule's output, which later in-place layers leave alone, while the model runs once.

    As a ``leaf`` it is what the model goes on with, and the graph is cut there. Messages call the submodule ``name``
    and the model ``by``.
    """
    captured: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor | None:
        if not isinstance(output, Tensor):
            raise ValueError(f"{name} returns a {type(output).__name__}: name a submodule that returns one tensor")
        captured.append(output.detach().clone().requires_grad_() if leaf else output.clone())
        return captured[-1].clone() if leaf else None

    with module.register_forward_hook(keep):
        yield captured
    if len(captured) != 1:
        raise ValueError(f"{name} was run {len(captured)} times by {by}: name a submodule that runs once per input")


def quantile(values: Tensor, q: float) -> float:
    """Smallest value whose empirical distribution function reaches q: an order statistic, no interpolation."""
    return float(values.kthvalue(max(1, math.ceil(q * len(values) - 1e-9))).values)


def gradient_quantile(
    model: Model,
    x: Tensor,
    y: Tensor | None,
    loss: Loss,
    *,
    q: float = 0.99,
    eta: float = 0.05,
    at: nn.Module | None = None,
    batch_size: int = 1024,
    name: str = "model",
) -> GradientQuantile:
    """``L_x^(q) = Quantile_q(|grad_x ell(f(x_i), y_i)|)`` (``subsec:computable_proxies``) with its band.

    Args as in `gradient_norms`; q is the level, eta the failure probability of the band.

    >>> from ..losses import SquaredError
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> gradient_quantile(lambda x: 3 * x, x, torch.zeros(3), SquaredError(), q=0.5).value  # 2 |3x| 3 at x = 1
    18.0
    """
    check_level(q, "q")
    norms = gradient_norms(model, x, y, loss, at=at, batch_size=batch_size, name=name)
    return quantile_with_bands(norms, q, eta)._replace(pseudo_labels=y is None)


def quantile_with_bands(norms: Tensor, q: float, eta: float) -> GradientQuantile:
    """The q-quantile of gradient norms ``[n]`` under given labels, where they do not come from one tensor of inputs."""
    ordered = norms.cpu().sort().values
    lower, upper = _band(ordered, q, eta)
    return GradientQuantile(
        value=quantile(ordered, q),
        lower=lower,
        upper=upper,
        q=q,
        eta=eta,
        num_samples=len(norms),
        pseudo_labels=False,
        bands=tuple((delta, *_band(ordered, q, delta)) for delta in BAND_DELTAS),
    )


def _band(ordered: Tensor, q: float, delta: float) -> tuple[float, float]:
    n = len(ordered)
    lower, upper = _ranks(n, q, delta)
    return float(ordered[lower - 1]) if lower > 0 else 0.0, float(ordered[upper - 1]) if upper <= n else math.inf


_ranks = cache(sequence_ranks)
