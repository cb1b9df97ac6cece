"""Image sets: which files, which labels, and the data sets that they come from.

A data set is a folder of DomainNet's layout: ``DOMAIN_SPLIT.txt`` with one ``path label`` a line. Labels come from
these files alone: they count classes without regard to case, a listing of the folders would not.
"""

import dataclasses
import hashlib
import importlib
import os
import pkgutil
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Literal, NamedTuple

from trace.io.splits import SplitEntry, read_split

from ..engine.config import CONFIGS, read_mapping, typed
from ..engine.errors import MissingFileError, UserError
from ..engine.records import origin
from ..fetch.home import data_home
from . import datasets

OnBroken = Literal["error", "skip"]
SPLITS = ("train", "val", "test")
_FIRST_DOMAINS = ("real", "painting", "sketch")
_SHOWN = 3


class ImageSet(NamedTuple):
    """One split of one domain; its number of images is ``len(image_set.paths)``."""

    name: str
    """Of the data set."""
    domain: str
    split: str
    root: Path
    paths: tuple[str, ...]
    """Relative to ``root``."""
    labels: tuple[int, ...]
    classes: tuple[str, ...]
    """Names by label; a split need not hold all of them."""
    skipped: tuple[str, ...] = ()
    """Paths that the split names and that were left out, for the record."""


def subset(image_set: ImageSet, indices: Iterable[int]) -> ImageSet:
    """The images at ``indices``, in that order."""
    chosen = [int(index) for index in indices]
    return image_set._replace(
        paths=tuple(image_set.paths[i] for i in chosen), labels=tuple(image_set.labels[i] for i in chosen)
    )


def class_counts(image_set: ImageSet) -> dict[str, int]:
    """Images of every class; 0 for the ones that the split lacks."""
    counts = Counter(image_set.labels)
    return {name: counts[label] for label, name in enumerate(image_set.classes)}


def digest(image_set: ImageSet) -> str:
    """SHA-256 over relative paths, labels and file sizes: the key of what is computed from the images."""
    sha = hashlib.sha256()
    for path, label in zip(image_set.paths, image_set.labels, strict=True):
        sha.update(f"{path}\0{label}\0{(image_set.root / path).stat().st_size}\n".encode())
    return sha.hexdigest()


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


def present(image_set: ImageSet, *, on_broken: OnBroken = "error") -> ImageSet:
    """The images whose files exist; ``skipped`` names the others."""
    missing = [path for path in image_set.paths if not (image_set.root / path).is_file()]
    if not missing:
        return image_set
    if on_broken == "error":
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        raise MissingFileError(
            f"{split_file(image_set.root, image_set.domain, image_set.split)} names {len(missing)} of "
            f"{len(image_set.paths)} images that {image_set.root} does not hold ({shown}): fetch them, or leave them "
            "out with on_broken=skip"
        )
    absent = set(missing)
    kept = subset(image_set, (i for i, path in enumerate(image_set.paths) if path not in absent))
    return kept._replace(skipped=(*image_set.skipped, *missing))


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A folder in DomainNet's layout: split files, and images at ``domain/class/file``."""

    name: str
    root: Path
    domains: tuple[str, ...]
    splits: tuple[str, ...] = ("train", "test")

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Names by label, from the paths of all split files; a label that none of them uses is ``class_LABEL``."""
        names: dict[int, str] = {}
        for domain in self.domains:
            for split in self.splits:
                path = split_file(self.root, domain, split)
                names = class_names(read_split(path), names, path)
        return tuple(names.get(label, f"class_{label}") for label in range(max(names, default=-1) + 1))

    def entries(self, domain: str, split: str) -> list[SplitEntry]:
        """What the split file of a domain names.

        Raises:
            UserError: for a domain or a split that is not there.
        """
        for kind, value, known in (("domain", domain, self.domains), ("split", split, self.splits)):
            if value not in known:
                artists = f"; `python -m experiments data emoji --domains {known[0]} {value}` builds one that has it"
                remedy = artists if (self.name, kind) == ("emoji", "domain") else ""
                raise UserError(f"{self.name} has no {kind} {value!r}: it has {', '.join(known)}{remedy}")
        return read_split(split_file(self.root, domain, split))

    def images(self, domain: str, split: str, *, on_broken: OnBroken = "error") -> ImageSet:
        """One split of one domain; files that it names and that are absent are an error, or skipped and named."""
        entries = self.entries(domain, split)
        paths, labels = tuple(entry.path for entry in entries), tuple(entry.label for entry in entries)
        named = ImageSet(self.name, domain, split, self.root, paths, labels, self.classes)
        return present(named, on_broken=on_broken)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """``configs/data/NAME.yaml``: a folder of one's own in DomainNet's layout."""

    name: str
    root: str
    domains: list[str]


def data_sets() -> list[str]:
    """The files of `experiments.vision.datasets`, each a data set."""
    return [found.name for found in pkgutil.iter_modules(datasets.__path__)]


def data_set(name: str) -> ModuleType:
    """The file of a data set: the ``FOLDER`` where it stands, ``FETCH``, the words that get it, and ``look``."""
    return importlib.import_module(f"{datasets.__name__}.{name}")


def load_dataset(name: str, *, root: Path | None = None) -> Dataset:
    """One of `data_sets`, or a YAML file for a folder of one's own: its path, or its name in configs/data.

    Raises:
        MissingFileError: where the data are not there, with the command that gets them.
    """
    if name in data_sets():
        folder = root or data_home() / data_set(name).FOLDER
        domains = domains_in(folder)
        if not domains:
            command = f"python -m experiments data {data_set(name).FETCH}"
            raise MissingFileError(f"{folder} holds no {name} (no DOMAIN_train.txt): get it with `{command}`")
        return Dataset(name, folder, domains, splits_in(folder, domains))
    config = _data_config(name)
    folder = root or origin() / Path(os.path.expandvars(config.root)).expanduser()
    return Dataset(config.name, folder, tuple(config.domains), splits_in(folder, config.domains))


def as_own(name: str, folder: Path, domains: tuple[str, ...]) -> str:
    """How an experiment names a copy of a data set that stands elsewhere, or has other domains than its own."""
    page = f"name: {folder.name}\nroot: {folder.resolve()}\ndomains: [{', '.join(domains)}]"
    return (
        f"`data={name}` is another one: write these lines to configs/data/{folder.name}.yaml and pass\n"
        f"data={folder.name} source={domains[0]} target={domains[-1]}\n\n{page}\n"
    )


def _data_config(name: str) -> DataConfig:
    path = Path(name) if name.endswith((".yaml", ".yml")) else CONFIGS / "data" / f"{name}.yaml"
    if not path.exists():
        known = ", ".join([*data_sets(), *sorted(p.stem for p in (CONFIGS / "data").glob("*.yaml"))])
        raise MissingFileError(f"{path} does not exist: data is one of {known}, or the path of a YAML file")
    config = typed(DataConfig, read_mapping(path), str(path))
    if not config.domains:
        raise UserError(f"{path}: domains is empty: list at least one")
    return config
