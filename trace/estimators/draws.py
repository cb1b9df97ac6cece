"""What the transport estimators share: their result, weights, and subsampling of samples too large to solve whole."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import check_count, check_vector
from ..hardware import wide

_NO_MASS = 1e-12
"""A weight below this share of the largest one counts as 0."""


class TransportEstimate(NamedTuple):
    """A transport distance and what is known about its quality."""

    value: float
    """In units of ``cost``: squared input units, or input units."""
    cost: Literal["squared_euclidean", "euclidean"]
    converged: bool
    num_iters: int
    """Sweeps of the cross term (Sinkhorn); 0 for an exact solver. The most over all draws."""
    marginal_error: float
    """L1 violation of the plan's marginals, the worst of all solves."""
    value_error: float
    """Bound on the error of the value that is left by imperfect convergence; 0 for an exact solver that finished."""
    spread: float = math.nan
    """Standard deviation over draws; NaN if the whole sample was used."""
    num_draws: int = 1
    sample_sizes: tuple[int, int] = (0, 0)
    """Sizes of what was compared, after subsampling."""
    standard_error: float = math.nan
    """Of ``value``, by its central limit theorem, the largest over draws; NaN where there is none.

    It vanishes faster than ``n^-1/2`` where the samples do not differ, and says nothing of the bias upwards.
    """


Estimator = Callable[[Tensor, Tensor | None, Tensor, Tensor | None], TransportEstimate]


def over_draws(
    estimate: Estimator,
    x: Tensor,
    a: Tensor | None,
    y: Tensor,
    b: Tensor | None,
    subsample: int,
    num_draws: int,
    generator: Generator | None,
) -> TransportEstimate:
    """Mean and spread of an estimate over random subsamples without replacement."""
    if generator is None:
        raise ValueError(
            f"{max(len(x), len(y))} samples are more than max_samples, so subsamples are drawn: pass a torch.Generator"
        )
    check_count(subsample, "subsample")
    if num_draws < 2:
        raise ValueError(f"num_draws must be at least 2 to give a spread, got {num_draws}")

    def draw(z: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
        chosen = torch.randperm(len(z), generator=generator, device=generator.device)[:subsample].to(z.device)
        return z[chosen], None if weights is None else weights[chosen]

    return pool([estimate(*draw(x, a), *draw(y, b)) for _ in range(num_draws)])


def pool(draws: list[TransportEstimate]) -> TransportEstimate:
    """The mean of several estimates with their spread, and the worst of their errors."""
    values = torch.tensor([d.value for d in draws], dtype=torch.float64)
    return draws[0]._replace(
        value=float(values.mean()),
        converged=all(d.converged for d in draws),
        num_iters=max(d.num_iters for d in draws),
        marginal_error=max(d.marginal_error for d in draws),
        value_error=max(d.value_error for d in draws),
        spread=float(values.std()) if len(draws) > 1 else math.nan,
        num_draws=len(draws),
        standard_error=max(d.standard_error for d in draws),
    )


def positive_weights(x: Tensor, weights: Tensor | None, name: str) -> tuple[Tensor, Tensor]:
    """The points that carry mass, and their weights, in the `wide` dtype and summing to 1."""
    if weights is None:
        return x, torch.full((len(x),), 1.0 / len(x), dtype=wide(x.device), device=x.device)
    check_vector(weights, name, length=len(x))
    if bool((weights < 0).any()) or not bool((weights > 0).any()):
        raise ValueError(f"{name} must be nonnegative with a positive sum: clip them at 0")
    a = weights.to(x.device, wide(x.device))
    kept = a > _NO_MASS * a.max()
    if not bool(kept.all()):
        x, a = x[kept], a[kept]
    a = a / a.max()
    return x, a / a.sum()
