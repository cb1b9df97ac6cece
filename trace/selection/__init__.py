"""Which rows of a pool to label next: a batch that lies close to the source (``app:domainnet-active``).

The paper writes ``B_t = argmin over |B| = b of Distance(h(S_src), h(B))``, recomputed in each round. That is a search
over subsets; `mmdmin` is its greedy solution, `w1min` greedy with refinement, and `random` the baseline of both.
Rows are returned as indices into the pool, and ``chosen`` holds those of earlier rounds, which are not taken again.

A policy is a file of this folder with a function of the file's name, ``NAME(source, pool, count, *, chosen,
generator)``; where rounds share something, the file also has ``prepare(source, pool)``, whose result the function
takes as ``prepared``.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from .mmdmin import mmdmin
from .pool import Selection
from .random import random
from .w1min import w1min

__all__ = ["Selection", "SelectionPolicy", "mmdmin", "names", "policy", "random", "w1min"]


class SelectionPolicy(NamedTuple):
    """How rows are chosen."""

    choose: Callable[..., Selection]
    prepare: Callable[[Tensor, Tensor], Any] | None
    """What all rounds on one source and pool share."""


def policy(name: str) -> SelectionPolicy:
    """The policy of a file.

    Raises:
        ValueError: for one that does not exist.

    >>> policy("w1min").prepare is None
    True
    """
    if name not in names():
        raise ValueError(f"there is no selection policy {name!r}: take one of {', '.join(names())}")
    module = importlib.import_module(f"{__name__}.{name}")
    return SelectionPolicy(getattr(module, name), getattr(module, "prepare", None))


def names() -> list[str]:
    """All policies, in alphabetical order."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in found if hasattr(importlib.import_module(f"{__name__}.{name}"), name))
