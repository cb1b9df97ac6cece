"""A sample from whatever holds it: the reader is chosen by the name.

Arrays come from ``.npz`` and ``.safetensors`` under documented keys, and nothing is unpickled:

| key | shape | |
|---|---|---|
| ``x`` | [n, ...] | inputs of the models |
| ``y`` | [n] | labels: class numbers from 0, names (.npz), or real targets |
| ``features`` | [n, k] | h, for ``--features saved``; may stand in for ``x`` where no model is given |
| ``logits``, ``new_logits`` | [n, C] | saved outputs of the old and the new model, for a model that is not given |
| ``names`` | [n] | what to call the rows (.npz) |

Tables come from CSV and Parquet: one row per sample, one column with the label, numbers in all others.
"""

import difflib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import MissingFileError, UserError, explain, first_line, require
from .images import Transform, image_rows
from .rows import FileRows

KEYS = ("x", "y", "features", "logits", "new_logits", "names")
_SAVED = ("features", "logits", "new_logits")

Array = np.ndarray[Any, Any]


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of a ``.npz`` file; object arrays, which would be unpickled, are refused."""
    broken = (ValueError, EOFError, OSError, zipfile.BadZipFile)
    with explain(f"{path} is no readable .npz file", "save it again", *broken):
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise UserError(f"{path} holds one array: save it with numpy.savez(path, x=..., y=...)")
        with loaded as file:
            return {key: file[key] for key in file.files}


def read_safetensors(path: Path) -> dict[str, Array]:
    """The arrays of a ``.safetensors`` file."""
    library = require("safetensors.torch", purpose=f"reading {path.name}")
    try:
        tensors: dict[str, Tensor] = library.load_file(path)
    except OSError:
        raise
    except Exception as error:  # the Rust extension has an exception type of its own
        raise UserError(f"{path} is no readable .safetensors file ({first_line(error)}): save it again") from error
    halves = (torch.float16, torch.bfloat16)
    return {key: (t.float() if t.dtype in halves else t).numpy() for key, t in tensors.items()}


def array_rows(arrays: dict[str, Array], path: Path) -> FileRows:
    """Rows from named arrays.

    Raises:
        UserError: for unknown keys, missing inputs, or arrays of different lengths.
    """
    if unknown := [key for key in arrays if key not in KEYS]:
        raise UserError(f"{path} holds {unknown[0]!r}, which is none of {', '.join(KEYS)}: rename or drop it")
    if (first := next((key for key in ("x", "features") if key in arrays), None)) is None:
        raise UserError(f"{path} holds neither x nor features ({', '.join(arrays) or 'nothing'}): add the inputs as x")
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
        x=saved["features"] if first == "features" else numbers(arrays["x"], f"{path}: x"),
        labels=_array_labels(arrays["y"], path) if "y" in arrays else None,
        names=[str(name) for name in arrays["names"]] if "names" in arrays else [str(i) for i in range(n)],
        saved=saved,
        has_inputs=first == "x",
    )


def numbers(array: Array, name: str) -> Tensor:
    """A finite float tensor: float64 stays, everything else becomes float32."""
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_) or np.iscomplexobj(array):
        raise UserError(f"{name} holds {array.dtype} values: real numbers are needed")
    dtype = np.float64 if array.dtype == np.float64 else np.float32
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=dtype))
    if tensor.ndim == 1:
        tensor = tensor[:, None]
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        row = int((~finite).reshape(len(tensor), -1).any(dim=1).nonzero()[0])
        raise UserError(f"{name} holds NaN or infinity (first in row {row}): drop or repair such rows")
    if tensor.numel() == 0:
        raise UserError(f"{name} is empty (shape {list(array.shape)}): pass at least one sample")
    return tensor


def _array_labels(array: Array, path: Path) -> Array:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UserError(f"{path}: y has shape {list(array.shape)}: one label per sample, [n]")
    return array.astype(np.int64) if array.dtype == np.bool_ else array


LABELS = ("label", "y", "target")
"""Names of the label column that are tried where none is given, unless they are inputs of a model."""


def read_table(path: Path) -> Any:
    """A pandas data frame."""
    pandas = require("pandas", purpose=f"reading {path.name}")
    try:
        if path.suffix.lower() == ".csv":
            return pandas.read_csv(path)
        require("pyarrow", purpose=f"reading {path.name}")
        return pandas.read_parquet(path, engine="pyarrow")
    except (UserError, OSError):
        raise
    except Exception as error:  # pandas and pyarrow raise types of their own
        raise UserError(f"{path} is no readable table ({first_line(error)}): save it again") from error


def table_rows(frame: Any, path: Path, *, label: str | None, labelled: bool, columns: Sequence[str] | None) -> FileRows:
    """Rows from a data frame.

    Args:
        label: the label column; None tries `LABELS`.
        labelled: whether the sample is of no use without the label column ``label``.
        columns: the input columns in their order; None takes all but the label.

    Raises:
        UserError: for a missing column, or one that holds no numbers.
    """
    frame = frame.rename(columns=str)
    if not len(frame):
        raise UserError(f"{path} is empty: give at least one row")
    known = ", ".join(list(frame.columns)[:12]) + (", ..." if len(frame.columns) > 12 else "")
    if label is not None and label not in frame.columns and labelled:
        near = difflib.get_close_matches(label, frame.columns, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "name the label with --label"
        raise UserError(f"{path} has no column {label!r} (it has {known}): {hint}")
    tried = [label] if label else [name for name in LABELS if name not in (columns or ())]
    found = next((name for name in tried if name in frame.columns), None)
    inputs = [name for name in frame.columns if name != found] if columns is None else list(columns)
    if (missing := next((name for name in inputs if name not in frame.columns), None)) is not None:
        raise UserError(f"{path} has no column {missing!r} (it has {known}): give all samples the models' columns")
    if not inputs:
        raise UserError(f"{path} has no column but the label: add the inputs")
    return FileRows(
        origin=str(path),
        x=numbers(np.stack([_column(frame, name, path) for name in inputs], axis=1), str(path)),
        labels=None if found is None else _column_labels(frame[found], found, path),
        names=[str(i) for i in range(len(frame))],
        columns=tuple(inputs),
        ignored=tuple(name for name in frame.columns if name not in inputs and name != found),
    )


def _column(frame: Any, name: str, path: Path) -> Array:
    """One input column in float64."""
    column = frame[name]
    if getattr(column, "ndim", 1) != 1:
        raise UserError(f"{path} has more than one column {name!r}: rename them")
    if column.isna().any():
        raise UserError(f"{path}: column {name!r} is empty in row {_first_missing(column)}: fill or drop such rows")
    if column.dtype.kind not in "biuf":
        raise UserError(
            f"{path}: column {name!r} holds {str(column.iloc[0])!r}, which is no number: encode the column or drop it"
        )
    return np.asarray(column, dtype=np.float64)


def _column_labels(column: Any, name: str, path: Path) -> Array:
    if column.isna().any():
        raise UserError(f"{path}: the label {name!r} is missing in row {_first_missing(column)}: drop such rows")
    kind = column.dtype.kind
    return np.array(column, dtype=np.int64 if kind in "biu" else np.float64 if kind == "f" else str)


def _first_missing(column: Any) -> int:
    return int(np.flatnonzero(column.isna().to_numpy())[0])


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
