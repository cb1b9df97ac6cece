"""Rows worth looking at: inputs farthest from the source, and inputs on which two models disagree most."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import check_count, check_logits, check_paired, check_samples
from ..estimators.kernels import squared_distances

_TILE = 1024


class Ranking(NamedTuple):
    """Rows with the largest values, largest first; ties go to the earlier row."""

    rows: tuple[int, ...]
    values: tuple[float, ...]
    typical: float
    """What the values are to be compared with."""


@torch.no_grad()
def most_shifted(
    source: Tensor,
    target: Tensor,
    *,
    num_examples: int,
    neighbours: int = 5,
    max_source: int = 10_000,
    generator: Generator | None = None,
) -> Ranking:
    """Target rows farthest from the source: mean distance to the ``neighbours`` nearest source rows.

    Features ``source [n, k]`` and ``target [m, k]``, Euclidean distance, by tiles. ``typical`` is the median over
    source rows of the same distance to the other source rows: a row of the target at that distance is not shifted.

    Args:
        max_source: source rows compared with; a larger source is thinned at random, which needs a ``generator``.

    Raises:
        ValueError: for invalid samples or counts, or a source with no more than ``neighbours`` rows.

    >>> x, y = torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([[1.0], [9.0], [6.0]])
    >>> most_shifted(x, y, num_examples=2, neighbours=1).rows
    (1, 2)
    """
    check_samples(source, target, "source", "target")
    check_count(num_examples, "num_examples")
    check_count(neighbours, "neighbours")
    check_count(max_source, "max_source")
    if len(source) > max_source:
        if generator is None:
            raise ValueError(f"source has {len(source)} rows, more than max_source = {max_source}: pass a generator")
        drawn = torch.randperm(len(source), generator=generator, device=generator.device)[:max_source]
        source = source[drawn.to(source.device)]
    if neighbours >= len(source):
        raise ValueError(f"neighbours must be less than the {len(source)} source rows, got {neighbours}")
    distances = _neighbour_distances(target, source, neighbours)
    typical = float(_neighbour_distances(source, source, neighbours).double().quantile(0.5))
    return _largest(distances, num_examples, typical)


@torch.no_grad()
def most_disagreeing(logits: Tensor, new_logits: Tensor, *, num_examples: int) -> Ranking:
    """Rows with the largest total variation between the two models' predictive distributions.

    ``TV = (1 / 2) sum_c |softmax(z~)_c - softmax(z)_c|`` for logits ``[n, C]`` of both models on the same inputs, in
    ``[0, 1]``. ``typical`` is the mean over all rows.

    Raises:
        ValueError: for invalid or unpaired logits, or fewer than two classes.

    >>> z = torch.tensor([[0.0, 0.0], [9.0, -9.0]])
    >>> most_disagreeing(z, z.flip(1), num_examples=1).rows
    (1,)
    """
    check_count(num_examples, "num_examples")
    check_logits(logits, "logits")
    check_logits(new_logits, "new_logits")
    check_paired(logits, new_logits, "logits", "new_logits")
    p, q = (z.double().softmax(dim=1) for z in (logits, new_logits))
    distances = (p - q).abs().sum(dim=1) / 2
    return _largest(distances, num_examples, float(distances.mean()))


def _largest(values: Tensor, count: int, typical: float) -> Ranking:
    found = values.double().sort(descending=True, stable=True)
    rows, top = found.indices[:count].tolist(), found.values[:count].tolist()
    return Ranking(tuple(rows), tuple(top), typical)


def _neighbour_distances(x: Tensor, y: Tensor, k: int) -> Tensor:
    """Mean distance of every row of ``x`` to its ``k`` nearest rows of ``y``; for ``y is x``, to the other rows.

    In float64 and centred, by tiles: a near neighbour's distance is small against the sample's spread and offset.
    """
    means = []
    centre = y.mean(dim=0, dtype=torch.float64)
    for start in range(0, len(x), _TILE):
        rows = x[start : start + _TILE].double() - centre
        nearest = rows.new_full((len(rows), k), math.inf)
        for column in range(0, len(y), _TILE):
            tile = squared_distances(rows, y[column : column + _TILE].double() - centre)
            if y is x and column == start:
                tile.fill_diagonal_(math.inf)
            nearest = torch.cat([nearest, tile], dim=1).topk(k, dim=1, largest=False).values
        means.append(nearest.sqrt().mean(dim=1))
    return torch.cat(means).to(x.dtype)
