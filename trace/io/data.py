"""A sample from whatever holds it: the reader is chosen by the name."""

from pathlib import Path

import torch

from .arrays import array_rows, read_npz, read_safetensors
from .errors import MissingFileError, UserError
from .images import Transform, image_rows
from .rows import FileRows
from .tables import read_table, table_rows

FORMATS = (
    ".npz, .safetensors, .csv, .parquet, a folder of images (class/file), or a split file of `path label` lines (.txt)"
)


def read_rows(
    path: str,
    *,
    transform: Transform,
    label: str | None,
    labelled: bool,
    columns: tuple[str, ...] | None,
    limit: int | None,
    generator: torch.Generator,
) -> FileRows:
    """The rows of a file or folder.

    Args:
        transform: of images.
        label: column of the label in tables; the usual names if absent.
        labelled: whether a table without the label column that was asked for is refused.
        columns: input columns of tables in their order; all if absent.
        limit: most images of a sample, drawn with ``generator``.

    Raises:
        UserError: for a missing file, an unknown format, or contents that cannot be used.
    """
    file = Path(path)
    if not file.exists():
        raise MissingFileError(f"{path} does not exist: check the path")
    kind = "folder" if file.is_dir() else file.suffix.lower()
    if kind == ".npz":
        return array_rows(read_npz(file), file)
    if kind == ".safetensors":
        return array_rows(read_safetensors(file), file)
    if kind in (".csv", ".parquet", ".pq"):
        return table_rows(read_table(file), file, label=label, labelled=labelled, columns=columns)
    if kind in ("folder", ".txt"):
        return image_rows(file, transform, limit=limit, generator=generator)
    raise UserError(f"{path}: data of this kind are not known: use {FORMATS}")
