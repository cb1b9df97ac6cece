"""Tables from CSV and Parquet: one row per sample, one column with the label, numbers in all others."""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import numbers
from .errors import UserError, first_line, require
from .rows import FileRows

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
    missing = next((name for name in inputs if name not in frame.columns), None)
    if missing is not None:
        raise UserError(f"{path} has no column {missing!r} (it has {known}): give all samples the models' columns")
    if not inputs:
        raise UserError(f"{path} has no column but the label: add the inputs")
    return FileRows(
        origin=str(path),
        x=numbers(np.stack([_column(frame, name, path) for name in inputs], axis=1), str(path)),
        labels=None if found is None else _labels(frame[found], found, path),
        names=[str(i) for i in range(len(frame))],
        columns=tuple(inputs),
        ignored=tuple(name for name in frame.columns if name not in inputs and name != found),
    )


def _column(frame: Any, name: str, path: Path) -> np.ndarray[Any, Any]:
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


def _labels(column: Any, name: str, path: Path) -> np.ndarray[Any, Any]:
    if column.isna().any():
        raise UserError(f"{path}: the label {name!r} is missing in row {_first_missing(column)}: drop such rows")
    kind = column.dtype.kind
    return np.array(column, dtype=np.int64 if kind in "biu" else np.float64 if kind == "f" else str)


def _first_missing(column: Any) -> int:
    return int(np.flatnonzero(column.isna().to_numpy())[0])
