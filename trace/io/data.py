"""A sample from whatever holds it: the reader is chosen by the name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch

from .arrays import array_rows, read_npz, read_safetensors
from .errors import UserError
from .images import Transform, image_rows
from .rows import Rows
from .tables import read_table, table_rows

FORMATS = (
    ".npz, .safetensors, .csv, .parquet, a folder of images (class/file), or a split file of `path label` lines (.txt)"
)


class Reading(NamedTuple):
    """How files are read."""

    transform: Transform
    """Of images."""
    label: str | None
    """Column of the label in tables; the usual names if absent."""
    columns: tuple[str, ...] | None
    """Input columns of tables in their order; all if absent."""
    limit: int | None
    """Most images of a sample."""
    generator: torch.Generator
    """Draws the images."""


def read_rows(path: str, reading: Reading, *, labelled: bool) -> Rows:
    """The rows of a file or folder; ``labelled`` samples are refused without the label column that was asked for.

    Raises:
        UserError: for a missing file, an unknown format, or contents that cannot be used.
    """
    file = Path(path)
    if not file.exists():
        raise UserError(f"{path} does not exist: check the path")
    kind = "folder" if file.is_dir() else file.suffix.lower()
    if kind == ".npz":
        return array_rows(read_npz(file), file)
    if kind == ".safetensors":
        return array_rows(read_safetensors(file), file)
    if kind in (".csv", ".parquet", ".pq"):
        frame = read_table(file)
        return table_rows(frame, file, label=reading.label, labelled=labelled, columns=reading.columns)
    if kind in ("folder", ".txt"):
        return image_rows(file, reading.transform, limit=reading.limit, generator=reading.generator)
    raise UserError(f"{path}: data of this kind are not known: use {FORMATS}")
