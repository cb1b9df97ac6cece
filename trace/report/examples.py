"""Rows worth looking at: inputs farthest from the source, and inputs on which two models disagree most."""

from typing import NamedTuple

import torch
from sklearn.neighbors import NearestNeighbors
from torch import Generator, Tensor

from ..checks import check_count, check_logits, check_paired, check_samples


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

    Features ``source [n, k]`` and ``target [m, k]``, Euclidean distance. ``typical`` is the median over
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
    centre = source.mean(dim=0, dtype=torch.float64)  # near neighbours are close against a sample's offset
    x, y = ((z.double() - centre).cpu().numpy() for z in (source, target))
    nearest = NearestNeighbors(n_neighbors=neighbours).fit(x)
    distances, within = (torch.as_tensor(nearest.kneighbors(rows)[0]).mean(dim=1) for rows in (y, None))
    return _largest(distances, num_examples, float(within.quantile(0.5)))


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
