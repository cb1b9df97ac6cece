"""The manual: a guide, then a page for every module of `trace` and `experiments`, from its docstrings.

    make docs      # into build/docs, in seconds; open build/docs/index.html

From the root of the repository `import trace` is ours, so the modules are imported here, and pdoc finds them imported.
"""

import argparse
import importlib
import pkgutil
import re
import shutil
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

import pdoc

import experiments
import trace

from ..engine.records import ROOT
from ..site import manual as looks

OUTPUT = ROOT / "build" / "docs"
PACKAGES = (trace, experiments)
CALLS = re.compile(r"(?m)^(?:python -m .*\n?)+")
"""Lines of a docstring that are to be typed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder for the pages (default: build/docs)")


def main(arguments: argparse.Namespace) -> None:
    pages = build(arguments.output)
    print(f"{len(pages)} pages: open {arguments.output / 'index.html'}")


def modules() -> list[ModuleType]:
    """The packages and everything in them that can be imported without running."""
    names = [
        module.name
        for package in PACKAGES
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith(".__main__")
    ]
    return [*PACKAGES, *map(importlib.import_module, names)]


def build(output: Path = OUTPUT) -> list[str]:
    """Write all pages in place of those of an earlier build; the names of the modules that have one."""
    found = modules()
    for name in trace.__all__:
        getattr(trace, name)  # pdoc lists what is there, and the package imports what is asked for
    for module in found:
        _list_submodules(module)
        module.__doc__ = _with_code(module.__doc__ or "")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, tuple) and value.__module__ == module.__name__:
                _describe_fields(value)
            elif isinstance(value, type) and is_dataclass(value) and value.__base__ is not object:
                _name_types(value)
    shutil.rmtree(output, ignore_errors=True)
    folder = Path(looks.__file__).parent
    pdoc.render.configure(docformat="google", footer_text="TRACE", show_source=False, template_directory=folder)
    pdoc.render.env.globals["guide"] = (folder / "guide.md").read_text("utf-8")
    pdoc.pdoc(*(package.__name__ for package in PACKAGES), output_directory=output)
    for page in (*output.rglob("*.html"), output / "search.js"):
        text = page.read_text("utf-8").replace(f"{ROOT}/", "").replace(str(ROOT), ".")
        page.write_text(text, encoding="utf-8")
    return [module.__name__ for module in found]


def _with_code(docstring: str) -> str:
    """Fenced, what is to be typed: Python takes the indentation of a docstring's last lines away."""
    return docstring if "```" in docstring else CALLS.sub(lambda calls: f"```\n{calls[0].rstrip()}\n```\n", docstring)


def _list_submodules(package: ModuleType) -> None:
    """pdoc links the submodules that ``__all__`` names; ours names what to import."""
    if hasattr(package, "__path__") and hasattr(package, "__all__"):
        inside = [module.name for module in pkgutil.iter_modules(package.__path__) if module.name != "__main__"]
        names = vars(package)["__all__"]
        vars(package)["__all__"] = [*names, *(name for name in inside if name not in names)]


def _name_types(record: type) -> None:
    """A dataclass's constructor looks the types of inherited fields up in its own module, where they are not named."""
    own = record.__init__.__annotations__  # type: ignore[misc]
    own |= {name: kind for name, kind in get_type_hints(record).items() if name in own}


def _describe_fields(record: type) -> None:
    """A NamedTuple's constructor knows no module to look its types up in; its generated docstrings say nothing."""
    for generated in (record.__new__, *(getattr(record, field) for field in getattr(record, "_fields", ()))):
        generated.__doc__ = ""
    record.__new__.__annotations__ = get_type_hints(record)
