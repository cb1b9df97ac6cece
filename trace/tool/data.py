"""A sample from whatever holds it: the reader is chosen by the name."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .arrays import array_rows, read_npz, read_safetensors
from .errors import ToolError
from .rows import Rows

FORMATS = (
    ".npz, .safetensors, .csv, .parquet, a folder of images (class/file), or a split file of `path label` lines (.txt)"
)


class Reading(NamedTuple):
    """How files are read."""

    label: str | None = None
    """Column of the label in tables; ``label`` or ``y`` if absent."""


def read_rows(path: str, reading: Reading) -> Rows:
    """The rows of a file or folder.

    Raises:
        ToolError: for a missing file, an unknown format, or contents that cannot be used.
    """
    file = Path(path)
    if not file.exists():
        raise ToolError(f"{path} does not exist: check the path")
    kind = "folder" if file.is_dir() else file.suffix.lower()
    if kind == ".npz":
        return array_rows(read_npz(file), file)
    if kind == ".safetensors":
        return array_rows(read_safetensors(file), file)
    raise ToolError(f"{path}: data of this kind are not known: use {FORMATS}")
