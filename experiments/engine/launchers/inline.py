"""Runs one after the other, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..config import Run
from ..run import Outcome, execute
from ..wandb import Mode


def inline(todo: list[Run], *, runs: Path, wandb: Mode = "off") -> Iterator[Outcome]:
    """One after the other, in this process."""
    for run in todo:
        yield execute(run, runs=runs, wandb=wandb)
