"""A folder of DomainNet's layout: ``DOMAIN_SPLIT.txt`` with one ``path label`` a line.

Labels come from these files alone: they count classes without regard to case, a listing of the folders would not.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from trace.io.splits import SplitEntry

from ..engine.errors import UserError

SPLITS = ("train", "val", "test")
_FIRST_DOMAINS = ("real", "painting", "sketch")


def split_file(root: Path, domain: str, split: str) -> Path:
    return root / f"{domain}_{split}.txt"


def class_names(entries: Iterable[SplitEntry], names: dict[int, str], origin: Path) -> dict[int, str]:
    """``names`` with what a split file adds: the folder of an image is the name of its label.

    Raises:
        UserError: where a label already has another name; the case of letters does not matter.
    """
    known = dict(names)
    for entry in entries:
        name = PurePosixPath(entry.path).parent.name
        if known.setdefault(entry.label, name).casefold() != name.casefold():
            raise UserError(
                f"{origin}: label {entry.label} is {name} here and {known[entry.label]} before: number the classes "
                "alike in all split files"
            )
    return known


def domains_in(root: Path) -> tuple[str, ...]:
    """The domains that have a train split, the ones of the paper first."""
    found = {path.name.removesuffix("_train.txt") for path in root.glob("*_train.txt")}
    first = [name for name in _FIRST_DOMAINS if name in found]
    return (*first, *sorted(found - set(first)))


def splits_in(root: Path, domains: Iterable[str]) -> tuple[str, ...]:
    """The splits that every domain has; train and test are always among them, so that their absence is noticed."""
    chosen = tuple(domains)
    return tuple(
        split
        for split in SPLITS
        if split != "val" or (chosen and all(split_file(root, domain, split).exists() for domain in chosen))
    )
