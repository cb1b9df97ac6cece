"""The manual: a page for every module of `trace`, from its docstrings.

    make docs      # into build/docs, in seconds; open build/docs/index.html

From the root of the repository `import trace` is ours, so the modules are imported here, and pdoc finds them imported.
"""

import argparse
import importlib
import pkgutil
import shutil
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pdoc

import trace

from ..engine.records import ROOT

OUTPUT = ROOT / "build" / "docs"
PRIVATE = ("trace.__main__",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the pages (default: build/docs)")


def main(arguments: argparse.Namespace) -> None:
    pages = build(arguments.output)
    print(f"{len(pages)} pages: open {arguments.output / 'index.html'}")


def modules() -> list[ModuleType]:
    """The package and everything in it."""
    names = [module.name for module in pkgutil.walk_packages(trace.__path__, "trace.") if module.name not in PRIVATE]
    return [trace, *map(importlib.import_module, names)]


def build(output: Path = OUTPUT) -> list[str]:
    """Write all pages in place of those of an earlier build; the names of the modules that have one."""
    found = modules()
    for name in trace.__all__:
        getattr(trace, name)  # pdoc lists what is there, and the package imports what is asked for
    for module in found:
        _list_submodules(module)
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, tuple) and value.__module__ == module.__name__:
                _describe_fields(value)
    shutil.rmtree(output, ignore_errors=True)
    pdoc.render.configure(docformat="google", footer_text="TRACE", show_source=False)
    pdoc.pdoc("trace", output_directory=output)
    return [module.__name__ for module in found]


def _list_submodules(package: ModuleType) -> None:
    """pdoc links the submodules that ``__all__`` names; ours names what to import."""
    if hasattr(package, "__path__") and hasattr(package, "__all__"):
        inside = [module.name for module in pkgutil.iter_modules(package.__path__) if module.name != "__main__"]
        names = vars(package)["__all__"]
        vars(package)["__all__"] = [*names, *(name for name in inside if name not in names)]


def _describe_fields(record: type) -> None:
    """A NamedTuple's constructor knows no module to look its types up in; its generated docstrings say nothing."""
    for generated in (record.__new__, *(getattr(record, field) for field in getattr(record, "_fields", ()))):
        generated.__doc__ = ""
    record.__new__.__annotations__ = get_type_hints(record)
