"""A sample from whatever holds it: the reader is chosen by what the file holds.

Arrays come from ``.npz`` and ``.safetensors`` under documented keys, and nothing is unpickled:

| key | shape | |
|---|---|---|
| ``x`` | [n, ...] | inputs of the models |
| ``y`` | [n] | labels: class numbers from 0, names (.npz), or real targets |
| ``features`` | [n, k] | h, for ``--features saved``; may stand in for ``x`` where no model is given |
| ``logits``, ``new_logits`` | [n, C] | saved outputs of the old and the new model, for a model that is not given; the \
first may stand in for ``features`` |
| ``names`` | [n] | what to call the rows (.npz) |
| ``group`` | [n] | what each row belongs to, for the worst group |
| ``id`` | [n] | which row is which, to tell held-out rows from others |

Tables come from CSV and Parquet: `trace.io.tables`. Other text is a split file of images where its name ends in .txt.
"""

import io
import math
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .archives import HEAD_BYTES, file_kind, is_binary, member_bytes, open_archive
from .errors import UserError, explain, require
from .images import Transform, image_rows
from .opened import FileBytes, open_regular, read_whole, shown_size
from .rows import FileRows, group_names, numbers
from .tables import Progress, Watched, csv_blocks, parquet_blocks, table_rows

KEYS = ("x", "y", "features", "logits", "new_logits", "names", "group", "id")
_BINARY = (".npz", ".npy", ".safetensors", ".parquet", ".pq")
_SAVED = ("features", "logits", "new_logits")

Array = np.ndarray[Any, Any]


def read_npz(file: FileBytes) -> dict[str, Array]:
    """The arrays of a ``.npz`` file; object arrays, which would be unpickled, are refused.

    Raises:
        UserError: for those, and for a member whose header says more, or less, than it holds.
    """
    if file_kind(file) == "npy":
        raise UserError(f"{file.path} holds one array: save it with numpy.savez(path, x=..., y=...)")
    with open_archive(file) as archive:
        return {
            name.removesuffix(".npy"): _array(member_bytes(archive, name, file.path), f"{file.path}: {name}")
            for name in archive.namelist()
        }


def _array(data: bytes, origin: str) -> Array:
    """One array of numpy's own format."""
    stream = io.BytesIO(data)
    with explain(f"{origin} is no readable array", "save it again"), warnings.catch_warnings():
        warnings.simplefilter("error")
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise UserError(f"{origin} holds Python objects, which would have to be unpickled: save numbers or text")
    if not all(0 <= length < 2**48 for length in shape) or len(shape) > 32:
        raise UserError(f"{origin} is no readable array (its shape cannot be): save it again")
    size, held = math.prod(shape) * dtype.itemsize, len(data) - stream.tell()
    if size != held:
        raise UserError(f"{origin} says that it holds {shown_size(size)} and has {shown_size(held)}: save it again")
    with explain(f"{origin} is no readable array", "save it again"):
        array = np.frombuffer(data, dtype=dtype, offset=stream.tell()) if held else np.empty(0, dtype)
        return array.reshape(shape, order="F" if fortran else "C").copy()


def read_safetensors(file: FileBytes) -> dict[str, Array]:
    """The arrays of a ``.safetensors`` file; what numpy has no type for becomes float32."""
    library = require("safetensors.torch", purpose=f"reading {file.path.name}")
    with explain(f"{file.path} is no readable .safetensors file", "save it again"):
        tensors: dict[str, Tensor] = library.load(file.data)
        kept = (torch.float32, torch.float64)
        return {
            key: (t.float() if t.is_floating_point() and t.dtype not in kept else t).numpy()
            for key, t in tensors.items()
        }


def array_rows(arrays: dict[str, Array], path: Path) -> FileRows:
    """Rows from named arrays.

    Raises:
        UserError: for unknown keys, missing inputs, or arrays of different lengths.
    """
    if unknown := [key for key in arrays if key not in KEYS]:
        raise UserError(f"{path} holds {unknown[0]!r}, which is none of {', '.join(KEYS)}: rename or drop it")
    if (first := next((key for key in ("x", "features", "logits") if key in arrays), None)) is None:
        held = ", ".join(arrays) or "nothing"
        raise UserError(f"{path} holds none of x, features and logits ({held}): add the inputs as x")
    n = len(arrays[first]) if arrays[first].ndim else 0
    for key, array in arrays.items():
        if array.ndim == 0 or len(array) != n:
            raise UserError(f"{path}: {key} has shape {list(array.shape)} for {n} rows of {first}: one row each")
    saved = {key: numbers(arrays[key], f"{path}: {key}") for key in _SAVED if key in arrays}
    for key, rows in saved.items():
        if rows.ndim != 2:
            raise UserError(f"{path}: {key} has shape {list(rows.shape)}: it needs one row per sample, [n, k]")
    return FileRows(
        origin=str(path),
        x=numbers(arrays["x"], f"{path}: x") if first == "x" else saved[first],
        labels=_array_labels(arrays["y"], path) if "y" in arrays else None,
        names=[str(name) for name in arrays["names"]] if "names" in arrays else [str(i) for i in range(n)],
        saved=saved,
        has_inputs=first == "x",
        groups=group_names(arrays["group"].tolist()) if "group" in arrays else None,
        ids=_one_each(arrays["id"], f"{path}: id") if "id" in arrays else None,
    )


def _one_each(array: Array, name: str) -> Array:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UserError(f"{name} has shape {list(array.shape)}: one value per sample, [n]")
    return array


def _array_labels(array: Array, path: Path) -> Array:
    array = _one_each(array, f"{path}: y")
    return array.astype(np.int64) if array.dtype == np.bool_ else array


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
    group: str | None = None,
    identity: str | None = None,
    progress: Progress = lambda share: None,
) -> FileRows:
    """The rows of a file or folder.

    Args:
        transform: of images.
        label: column of the label in tables; the usual names if absent.
        labelled: whether a table without the label column that was asked for is refused.
        columns: input columns of tables in their order; all if absent.
        limit: most images of a sample, drawn with ``generator``.
        group: column of the group in tables.
        identity: column of tables that says which row is which.
        progress: called with the share of a CSV that was read.

    Raises:
        UserError: for a missing file, an unknown format, or contents that cannot be used.
    """
    file = Path(path)
    if os.path.isdir(file) or file.suffix.lower() == ".txt":
        return image_rows(file, transform, limit=limit, generator=generator)
    about: dict[str, Any] = {
        "label": label,
        "labelled": labelled,
        "columns": columns,
        "group": group,
        "identity": identity,
    }
    with open_regular(file) as opened:
        head, size = opened.read(HEAD_BYTES), os.fstat(opened.fileno()).st_size
        opened.seek(0)
        if not is_binary(head):
            if (suffix := file.suffix.lower()) in _BINARY:
                raise UserError(f"{path} is no readable {suffix} file (it is text, or empty): save it again")
            watched = Watched(opened, size, progress)
            rows = table_rows(csv_blocks(watched, file), file, **about)
            return rows._replace(sha256=watched.sha256)
        whole = read_whole(opened, file)
    kind = file_kind(whole)
    if kind == "parquet":
        rows = table_rows(parquet_blocks(whole), file, **about)
    elif kind in ("npz", "npy"):
        rows = array_rows(read_npz(whole), file)
    elif kind == "safetensors":
        rows = array_rows(read_safetensors(whole), file)
    else:
        what = f"a {kind} file" if kind else "of no known kind"
        raise UserError(f"{path} is {what}, which holds no sample: use {FORMATS}")
    return rows._replace(sha256=whole.sha256)
