"""Arrays from ``.npz`` and ``.safetensors``, under documented keys; nothing is unpickled.

| key | shape | |
|---|---|---|
| ``x`` | [n, ...] | inputs of the models |
| ``y`` | [n] | labels: class numbers from 0, names (.npz), or real targets |
| ``features`` | [n, k] | h, for ``--features saved``; may stand in for ``x`` where no model is given |
| ``logits``, ``new_logits`` | [n, C] | saved outputs of the old and the new model, for a model that is not given |
| ``names`` | [n] | what to call the rows (.npz) |
"""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import UserError, explain, first_line, require
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
    unknown = [key for key in arrays if key not in KEYS]
    if unknown:
        raise UserError(f"{path} holds {unknown[0]!r}, which is none of {', '.join(KEYS)}: rename or drop it")
    first = next((key for key in ("x", "features") if key in arrays), None)
    if first is None:
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
        labels=_labels(arrays["y"], path) if "y" in arrays else None,
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


def _labels(array: Array, path: Path) -> Array:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UserError(f"{path}: y has shape {list(array.shape)}: one label per sample, [n]")
    return array.astype(np.int64) if array.dtype == np.bool_ else array
