"""Which data sets are tables, and the rows of one domain."""

import importlib
import pkgutil
from types import ModuleType
from typing import NamedTuple

from torch import Tensor

from ..engine.errors import UserError
from . import datasets


class TableDomain(NamedTuple):
    """All rows of one domain, in the order of the file."""

    x: Tensor
    """``[n, d]``, numbers and 0 or 1."""
    y: Tensor
    """Labels ``[n]``."""
    groups: Tensor
    """Numbers ``[n]``, equal for rows that no split may part."""


def tables() -> list[str]:
    """The files of `experiments.tabular.datasets`, each a data set."""
    return [found.name for found in pkgutil.iter_modules(datasets.__path__)]


def table(name: str) -> ModuleType:
    """The file of a data set."""
    return importlib.import_module(f"{datasets.__name__}.{name}")


def check_domain(name: str, domain: str) -> None:
    """Refuse a domain that a table does not have."""
    if domain not in table(name).DOMAINS:
        raise UserError(f"{name} has no domain {domain!r}: it has {', '.join(table(name).DOMAINS)}")


def look(name: str) -> str:
    """Fetch a table where it is absent, and say what is there: one line a domain.

    Raises:
        UserError: where a domain has other rows or columns than it should.
    """
    known = table(name)
    lines = [f"{'domain':16}{'rows':>9}{'expected':>10}{'groups':>9}{'columns':>9}{'classes':>9}"]
    for domain, expected in known.DOMAINS.items():
        x, y, groups = known.domain(domain)
        sizes = (len(x), expected, len(groups.unique()), x.shape[1], len(y.unique()))
        lines.append(f"{domain:16}" + "".join(f"{size:>{9 + (i == 1)},}" for i, size in enumerate(sizes)))
        if len(x) != expected or x.shape[1] != len(known.COLUMNS):
            raise UserError(f"{name} {domain} has {len(x):,} rows of {x.shape[1]} columns: restore the data set's file")
    return "\n".join(lines)
