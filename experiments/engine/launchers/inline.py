"""Runs one after the other, in this process."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from ..config import Run
from ..run import Outcome, execute
from ..wandb import Mode
from . import LaunchPlan


def add_arguments(parser: argparse._ActionsContainer) -> None:
    """It has no options of its own."""


def plan(todo: list[Run], *, runs: Path) -> LaunchPlan:
    return LaunchPlan(len(todo), 1)


def launch(todo: list[Run], *, runs: Path, wandb: Mode = "off") -> Iterator[Outcome]:
    for run in todo:
        yield execute(run, runs=runs, wandb=wandb)
