"""Shift worlds: one file each, named like the world; a new file is a new world.

A world file defines a frozen dataclass ``World``. All its fields have defaults, one of them is ``severity``, and
``source(n, *, generator)`` and ``target(n, *, generator)`` draw labelled samples; at severity 0 nothing shifts.

Where points are moved, their labels can ``travel`` with them, which changes P(y|x), or be drawn anew from the source's
P(y|x), ``invariant``, which is covariate shift in the strict sense. A world offers the choice with a field ``labels``;
without it, the world says that its P(y|x) does not change. Labels are 0 and 1, or ``0..num_classes - 1`` where a world
has a ``num_classes``, as a field or a class variable.
"""

import dataclasses
import difflib
import importlib
import pkgutil
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, Protocol

import torch
from torch import Generator, Tensor

from ..sample import Sample

Labels = Literal["travel", "invariant"]


class ShiftWorld(Protocol):
    """What every world offers."""

    @property
    def severity(self) -> float: ...
    def source(self, n: int, *, generator: Generator) -> Sample: ...
    def target(self, n: int, *, generator: Generator) -> Sample: ...


def num_classes(world: ShiftWorld) -> int:
    """How many classes a world draws labels from: its ``num_classes``, or 2."""
    return int(getattr(world, "num_classes", 2))


def names() -> list[str]:
    """All worlds, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def world(name: str, **fields: Any) -> ShiftWorld:
    """The world of a file with some of its fields set.

    Raises:
        ValueError: for a world or a field that does not exist, with the nearest that does.

    >>> world("blobs_shift", severity=0.5).severity
    0.5
    """
    known = fields_of(name)
    for field in fields:
        if field not in known:
            raise ValueError(f"world {name} has no field {field!r}: {_nearest(field, known)}")
    made: ShiftWorld = _file(name).World(**fields)
    return made


def fields_of(name: str) -> list[str]:
    """What can be set of a world.

    Raises:
        ValueError: for a world that does not exist, with the nearest that does.

    >>> fields_of("mixture_shift")
    ['severity', 'dim', 'groups']
    """
    if name not in names():
        raise ValueError(f"there is no world {name!r}: {_nearest(name, names())}")
    return [field.name for field in dataclasses.fields(_file(name).World)]


def _file(name: str) -> ModuleType:
    return importlib.import_module(f".{name}", __name__)


def coin(p: Tensor, *, generator: Generator) -> Tensor:
    """Labels 0 and 1 with ``P(y_i = 1) = p_i``."""
    return (torch.rand(p.shape, generator=generator) < p).long()


def relabelled(moved: Sample, labels: Labels, posterior: Callable[[Tensor], Tensor], *, generator: Generator) -> Sample:
    """A moved sample with the labels it brought, or with labels drawn from ``posterior(x) = P(y = 1 | x)``."""
    if labels not in ("travel", "invariant"):
        raise ValueError(f"labels must be travel or invariant, got {labels!r}")
    return moved if labels == "travel" else Sample(moved.x, coin(posterior(moved.x), generator=generator))


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
