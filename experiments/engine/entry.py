"""`python -m experiments.NAME` for an experiment's module: `python -m experiments run NAME`, and help about its config.

An experiment ends with ``if __name__ == "__main__": main("NAME")``.
"""

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

from pdoc.doc_ast import walk_tree

from ..__main__ import main as command_line
from .config import CONFIGS, experiment_module, variants

_USAGE = "usage: python -m {path} [config=VARIANT] [key=value ...] [--launcher NAME] [--dry-run]"


def main(experiment: str, arguments: list[str] | None = None) -> None:
    """Run what is missing of the experiment's grid, or describe it for ``--help``."""
    given = sys.argv[1:] if arguments is None else arguments
    if {"-h", "--help"} & set(given):
        print(help_page(experiment))
        return
    command_line(["run", experiment, *given])


def help_page(experiment: str, configs: Path = CONFIGS) -> str:
    """The module's docstring, every config key with its type, default and meaning, and the variants."""
    module = experiment_module(experiment)
    meanings = field_meanings(module.Config)
    keys = []
    for field in dataclasses.fields(module.Config):
        keys.append(f"  {field.name}: {_type_name(field)}{_default(field)}")
        keys += [f"      {line}" for line in meanings.get(field.name, "").splitlines()]
    known = ", ".join(variants(experiment, configs=configs)) or "none: the defaults alone"
    path = experiment if "." in experiment else f"experiments.{experiment}"
    return "\n".join(
        [
            _USAGE.format(path=path),
            "",
            inspect.getdoc(module) or "",
            "",
            "keys:",
            *keys,
            "",
            f"config: {known}",
            "options: python -m experiments run --help",
        ]
    )


def field_meanings(schema: type) -> dict[str, str]:
    """The string literal under each field of a class and of those it inherits from, which Python does not keep."""
    classes = [base for base in reversed(schema.__mro__) if dataclasses.is_dataclass(base)]
    return {name: text for base in classes for name, text in walk_tree(base).var_docstrings.items()}


def _type_name(field: dataclasses.Field[Any]) -> str:
    return field.type.__name__ if isinstance(field.type, type) else str(field.type)


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory()!r}"
    return " (must be given)" if field.default is dataclasses.MISSING else f" = {field.default!r}"
