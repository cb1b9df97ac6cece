"""Things that register themselves: a file in a folder is enough, no list names it."""

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Generic, TypeVar

Make = TypeVar("Make", bound=Callable[..., object])


def submodules(package: str) -> list[ModuleType]:
    """All modules below a package, imported, in the order of their names."""
    return list(_walk(importlib.import_module(package)))


def _walk(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        yield module
        if found.ispkg:
            yield from _walk(module)


def summaries(folder: Path) -> dict[str, str]:
    """The modules of a folder with the first lines of their docstrings; read from the sources, nothing is imported."""
    paths = sorted(folder.glob("[!_]*.py"))
    return {path.stem: (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0] for path in paths}


class Registry(Generic[Make]):
    """A decorator, ``@registry("label", "experiment")``, and what it has seen in all files of a package."""

    def __init__(self, package: str) -> None:
        self.package = package
        self._entries: dict[str, tuple[str, Make]] = {}

    def __call__(self, label: str, experiment: str) -> Callable[[Make], Make]:
        def register(make: Make) -> Make:
            if label in self._entries:
                raise ValueError(f"{self.package} has two entries {label!r}: name one of them differently")
            self._entries[label] = (experiment, make)
            return make

        return register

    def all(self) -> dict[str, tuple[str, Make]]:
        """Everything by its label, in the order of labels: an experiment, and what makes it from its records."""
        submodules(self.package)
        return dict(sorted(self._entries.items()))
