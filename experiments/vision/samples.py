"""Which images a seed of a case study trains on, as row numbers; needs no network and no features."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

from trace import Sample, stratified_split

from ..engine.errors import UserError
from ..engine.seeds import seeded
from ..fetch.home import data_home
from .broken import without_broken
from .images import Dataset, ImageSet

VALIDATION = 0.15
"""Share of the training split that is held out where the data have no validation split (``app:common-impl``)."""


class OwnRows(NamedTuple):
    """Row numbers into a domain's training split."""

    train: Tensor
    """This seed's."""
    val: Tensor
    """Held out; empty where the data set has a validation split."""


def images_of(dataset: Dataset, domain: str, split: str, *, on_broken: str, workers: int = 0) -> ImageSet:
    """A split of a domain; with ``skip`` without the images that are absent or cannot be decoded.

    Raises:
        UserError: for another value than ``error`` and ``skip``, and what `Dataset.images` raises.
    """
    if on_broken == "error":
        return dataset.images(domain, split)
    if on_broken != "skip":
        raise UserError(f"on_broken is {on_broken!r}: it must be error or skip")
    named = dataset.images(domain, split, on_broken="skip")
    return without_broken(named, cache=data_home() / "unreadable", workers=workers)


def own_rows(y: Tensor, domain: str, *, seed: int, train_share: float, hold_out: bool) -> OwnRows:
    """The rows of the training split with labels ``y [n]`` that a seed takes; ``hold_out`` sets 15% aside first."""
    if not 0 < train_share <= 1:
        raise UserError(f"train_share is {train_share}: it must be above 0 and at most 1")
    if len(y) < 2:
        raise UserError(f"{domain} has {len(y)} training images: at least 2 are needed")
    generator = seeded("vision rows", domain, seed)
    kept, held = torch.arange(len(y)), torch.empty(0, dtype=torch.long)
    if hold_out:
        kept, held = (part.x[:, 0].long() for part in _split(y, VALIDATION, generator))
    return OwnRows(kept if train_share == 1 else kept[share(y[kept], train_share, generator)], held)


def share(y: Tensor, fraction: float, generator: Generator) -> Tensor:
    """Row numbers of a random share below 1 of every class of two members or more, in ascending order."""
    return _split(y, fraction, generator)[1].x[:, 0].long()


def _split(y: Tensor, fraction: float, generator: Generator) -> tuple[Sample, Sample]:
    """The rest and the share, as samples of row numbers."""
    rows = Sample(torch.arange(len(y), dtype=torch.float64)[:, None], y)
    return stratified_split(rows, fraction=fraction, generator=generator)
