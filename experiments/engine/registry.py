"""Things that register themselves: a file in a folder is enough, no list names it."""

import ast
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Generic, NamedTuple, TypeVar

Make = TypeVar("Make", bound=Callable[..., object])


def submodules(package: str) -> list[ModuleType]:
    """All modules below a package, imported, in the order of their names."""
    found = importlib.import_module(package)
    names = [module.name for module in pkgutil.walk_packages(found.__path__, f"{package}.")]
    return [importlib.import_module(name) for name in names]


def summaries(folder: Path) -> dict[str, str]:
    """The modules of a folder with the first lines of their docstrings; read from the sources, nothing is imported."""
    paths = sorted(folder.glob("[!_]*.py"))
    return {path.stem: (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0] for path in paths}


class Entry(NamedTuple, Generic[Make]):
    """What makes something from the records of an experiment."""

    experiment: str
    make: Make
    across: bool = False
    """From those of all profiles, not of the one that is shown."""


class Registry(Generic[Make]):
    """A decorator, ``@registry("label", "experiment")``, and what it has seen in all files of a package."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._entries: dict[str, Entry[Make]] = {}

    def __call__(self, label: str, experiment: str, *, across: bool = False) -> Callable[[Make], Make]:
        def register(make: Make) -> Make:
            if label in self._entries:
                raise ValueError(f"{self.package} has two entries {label!r}: name one of them differently")
            self._entries[label] = Entry(experiment, make, across)
            return make

        return register

    def all(self) -> dict[str, Entry[Make]]:
        """Everything by its label, in the order of labels."""
        submodules(self.package)
        return dict(sorted(self._entries.items()))
