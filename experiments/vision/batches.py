"""What a model is trained on or run over: cached rows in memory or on disk, or pictures that are read as needed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Generator, Tensor
from torch.utils.data import DataLoader, Dataset

from trace.io.images import Transform, open_image

from .backbone import Backbone
from .images import ImageSet

REMEDY = "fetch it again or drop it, or leave broken images out with on_broken=skip"

READ_AHEAD = 4
"""Batches that each reading process keeps ready, so that a GPU does not wait for a slow image."""

Data = TypeVar("Data", "Rows", "Pictures")


@dataclass(frozen=True, eq=False)
class Rows:
    """Cached inputs ``x [n, ...]`` of any float type, with labels ``y [n]``; batches are float32."""

    kept: Tensor
    """``x`` itself; with ``rows``, an array on disk that ``x`` is some rows of."""
    y: Tensor
    rows: Tensor | None = None
    """Where it is given, a selection holds row numbers, and nothing is read before a batch needs it."""

    @classmethod
    def on_disk(cls, kept: Tensor, y: Tensor) -> Rows:
        """All rows of a memory-mapped array, to be read batch by batch."""
        return cls(kept, y, torch.arange(len(y)))

    @property
    def x(self) -> Tensor:
        return self.kept if self.rows is None else self.kept[self.rows]

    def __len__(self) -> int:
        return len(self.y)

    def select(self, rows: Tensor) -> Rows:
        if self.rows is None:
            return Rows(self.kept[rows], self.y[rows])
        return Rows(self.kept, self.y[rows], self.rows[rows])

    def joined(self, other: Rows) -> Rows:
        return Rows(torch.cat([self.x, other.x]), torch.cat([self.y, other.y]))

    def stream(self, batches: Sequence[Tensor], generator: Generator | None = None) -> Iterator[Tensor]:
        """The inputs of each batch of row numbers. Cached inputs are not augmented: ``generator`` stays as it is."""
        return (self.kept[rows if self.rows is None else self.rows[rows]].float() for rows in batches)


@dataclass(frozen=True, eq=False)
class Pictures(Dataset[Tensor]):
    """Image files with labels ``y [n]``; batches are ``[b, 3, size, size]``."""

    paths: tuple[Path, ...]
    y: Tensor
    transform: Transform
    train_transform: Transform
    workers: int = 0
    """Processes that read ahead; 0 reads in this one."""

    @classmethod
    def of(cls, image_set: ImageSet, backbone: Backbone, *, workers: int = 0) -> Pictures:
        paths = tuple(image_set.root / path for path in image_set.paths)
        return cls(paths, torch.tensor(image_set.labels), backbone.transform, backbone.train_transform, workers)

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, rows: Tensor) -> Pictures:
        return replace(self, paths=tuple(self.paths[i] for i in rows.tolist()), y=self.y[rows])

    def joined(self, other: Pictures) -> Pictures:
        return replace(self, paths=self.paths + other.paths, y=torch.cat([self.y, other.y]))

    def stream(self, batches: Sequence[Tensor], generator: Generator | None = None) -> Iterator[Tensor]:
        """The pictures of each batch of row numbers; with a generator augmented, each by a seed drawn from it.

        All seeds are drawn at once, so the number of workers changes neither the pictures nor the generator.
        """
        items: list[list[tuple[int, int | None]]] = [[(row, None) for row in rows.tolist()] for rows in batches]
        if generator is not None:
            seeds = iter(torch.randint(2**62, (sum(map(len, items)),), generator=generator).tolist())
            items = [[(row, next(seeds)) for row, _ in batch] for batch in items]
        yield from DataLoader(
            self,
            batch_sampler=items,
            num_workers=self.workers,
            prefetch_factor=READ_AHEAD if self.workers else None,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator(),
        )

    def __getitem__(self, item: tuple[int, int | None]) -> Tensor:
        """The picture of a row, augmented by a seed where one is given."""
        row, seed = item
        image = open_image(self.paths[row], remedy=REMEDY)
        if seed is None:
            return self.transform(image)
        with _seeded(seed):
            return self.train_transform(image)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Both global states that timm's augmentations draw from start at a seed, and are given back as they were."""
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


def in_order(num_rows: int, batch_size: int, *, start: int = 0) -> list[Tensor]:
    """Row numbers from ``start`` on, in batches."""
    return list(torch.arange(start, num_rows).split(batch_size)) if start < num_rows else []
