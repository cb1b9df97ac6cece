"""One file a value of `--launcher`, with its options, what it would do, and the doing.

Each module has ``add_arguments(parser)`` for the options that are its own, and two functions that take these by name:
``plan(todo, *, runs, ...)`` refuses what cannot work and touches nothing, ``launch(todo, *, runs, wandb, ...)`` yields
the outcome of every run.
"""

from types import ModuleType
from typing import NamedTuple

from ..registry import submodules


class LaunchPlan(NamedTuple):
    """What a launcher would do with some runs."""

    tasks: int
    at_once: int
    """Most runs that are computed at the same time."""
    script: str = ""
    """What would be handed to a cluster."""


def launchers() -> dict[str, ModuleType]:
    """All of them, by the names of their files."""
    return {module.__name__.split(".")[-1]: module for module in submodules(__name__)}
