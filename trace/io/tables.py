"""Tables: CSV and Parquet, one row per sample, one column with the label, numbers in all others.

A table is read a block of rows at a time, so that it never takes more memory than its numbers and one block.
"""

import difflib
import hashlib
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from torch import Tensor

from .archives import most_held
from .errors import UserError, first_line, require
from .opened import FileBytes, shown_size
from .rows import FileRows, group_names, numbers

Array = np.ndarray[Any, Any]
Progress = Callable[[float], None]
"""Called with the share of a file that was read."""

BLOCK = 2**16
"""Rows."""
LABELS = ("label", "y", "target")
"""Names of the label column that are tried where none is given, unless they are inputs of a model."""


class Watched(io.RawIOBase):
    """A file that hashes what is read of it, and says how far it got."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress) -> None:
        super().__init__()
        self._file, self._size, self._progress = file, size, progress
        self._hash, self._seen = hashlib.sha256(), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._hash.update(data)
        self._seen += len(data)
        self._progress(self._seen / max(1, self._size))
        return len(data)

    @property
    def sha256(self) -> str:
        """Of what was read."""
        return self._hash.hexdigest()


def csv_blocks(file: io.RawIOBase, path: Path) -> Iterator[Any]:
    """Data frames of at most `BLOCK` rows."""
    pandas = require("pandas", purpose=f"reading {path.name}")
    buffered = io.BufferedReader(file, 2**20)
    yield from _readable(pandas.read_csv, path, buffered, chunksize=BLOCK)


def parquet_blocks(file: FileBytes) -> Iterator[Any]:
    """The same of a Parquet file."""
    parquet = require("pyarrow.parquet", purpose=f"reading {file.path.name}")

    def frames(data: bytes) -> Iterator[Any]:
        opened = parquet.ParquetFile(io.BytesIO(data))
        held = 8 * opened.metadata.num_rows * opened.metadata.num_columns
        if held > most_held(len(data)):
            raise UserError(
                f"{file.path} has {shown_size(len(data))} and says that it holds {opened.metadata.num_rows} rows, "
                f"{shown_size(held)}: if that is true, save it as .npz"
            )
        for batch in opened.iter_batches(batch_size=BLOCK):
            yield batch.to_pandas()

    yield from _readable(frames, file.path, file.data)


def _readable(read: Callable[..., Iterable[Any]], path: Path, *arguments: Any, **options: Any) -> Iterator[Any]:
    """What ``read`` gives, with its failures in one sentence."""
    try:
        yield from read(*arguments, **options)
    except (UserError, OSError):
        raise
    except Exception as error:  # pandas and pyarrow raise types of their own
        raise UserError(f"{path} is no readable table ({first_line(error)}): save it again") from error


def table_rows(
    blocks: Iterable[Any],
    path: Path,
    *,
    label: str | None,
    labelled: bool,
    columns: Sequence[str] | None,
    group: str | None = None,
    identity: str | None = None,
) -> FileRows:
    """Rows from the data frames of a table.

    Args:
        label: the label column; None tries `LABELS`.
        labelled: whether the sample is of no use without the label column ``label``.
        columns: the input columns in their order; None takes all but label, group and identity.
        group: the column that says what each row belongs to, where the table has it.
        identity: the column that says which row is which; it is no input.

    Raises:
        UserError: for a missing column, or one that holds no numbers.
    """
    reader: _TableReader | None = None
    for frame in blocks:
        frame = frame.rename(columns=str)
        if reader is None:
            reader = _TableReader(list(frame.columns), path, label, labelled, columns, group, identity)
        if len(frame):
            reader.add(frame)
    if reader is None or not reader.count:
        raise UserError(f"{path} is empty: give at least one row")
    return reader.rows()


class _TableReader:
    """Inputs, labels, groups and identities of a table, a block at a time."""

    def __init__(
        self,
        header: list[str],
        path: Path,
        label: str | None,
        labelled: bool,
        columns: Sequence[str] | None,
        group: str | None,
        identity: str | None,
    ) -> None:
        self.path, self.header, self.identity, self.count = path, header, identity, 0
        self.group = group if group in header else None
        known = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
        for name, remedy, needed in (
            (label, "name the label with --label", labelled),
            (identity, "name the id with --id", True),
        ):
            if name is not None and name not in header and needed:
                near = difflib.get_close_matches(name, header, n=1)
                hint = f"did you mean {near[0]!r}?" if near else remedy
                raise UserError(f"{path} has no column {name!r} (it has {known}): {hint}")
        tried = [label] if label else [name for name in LABELS if name not in (columns or ())]
        self.label = next((name for name in tried if name in header and name != identity), None)
        others = [name for name in header if name not in (self.label, group, identity)]
        self.inputs = others if columns is None else list(columns)
        if (missing := next((name for name in self.inputs if name not in header), None)) is not None:
            raise UserError(f"{path} has no column {missing!r} (it has {known}): give all samples the models' columns")
        if not self.inputs:
            raise UserError(f"{path} has no column but the label: add the inputs")
        if twice := next((name for name in self.inputs if header.count(name) > 1), ""):
            raise UserError(f"{path} has more than one column {twice!r}: rename them")
        self.x: list[Array] = []
        self.labels: list[Any] = []
        self.ids: list[Array] = []
        self.groups: list[str] = []

    def add(self, frame: Any) -> None:
        self.x.append(np.stack([self._inputs(frame[name], name) for name in self.inputs], axis=1))
        if self.label is not None:
            self._refuse_missing(frame[self.label], f"the label {self.label!r} is missing", "drop such rows")
            self.labels.append(frame[self.label])
        if self.identity is not None:
            self._refuse_missing(frame[self.identity], f"column {self.identity!r} is empty", "give every row its id")
            self.ids.append(np.array(frame[self.identity]))
        if self.group is not None:
            column = frame[self.group].astype(object)
            self.groups += group_names(column.where(column.notna(), None))
        self.count += len(frame)

    def rows(self) -> FileRows:
        x: Tensor = numbers(np.concatenate(self.x), str(self.path))
        return FileRows(
            origin=str(self.path),
            x=x,
            labels=self._labels(),
            names=[str(i) for i in range(self.count)],
            columns=tuple(self.inputs),
            ignored=tuple(n for n in self.header if n not in (*self.inputs, self.label, self.group, self.identity)),
            groups=tuple(self.groups) if self.group is not None else None,
            ids=np.concatenate(self.ids) if self.ids else None,
        )

    def _inputs(self, column: Any, name: str) -> Array:
        """One input column in float64."""
        self._refuse_missing(column, f"column {name!r} is empty", "fill or drop such rows")
        if column.dtype.kind not in "biuf":
            raise UserError(
                f"{self.path}: column {name!r} holds {str(column.iloc[0])!r}, which is no number: encode the column or "
                "drop it"
            )
        return np.asarray(column, dtype=np.float64)

    def _labels(self) -> Array | None:
        if not self.labels:
            return None
        column = require("pandas", purpose=f"reading {self.path.name}").concat(self.labels)
        kind = column.dtype.kind
        return np.array(column, dtype=np.int64 if kind in "biu" else np.float64 if kind == "f" else str)

    def _refuse_missing(self, column: Any, what: str, remedy: str) -> None:
        missing = column.isna()
        if missing.any():
            row = self.count + int(np.flatnonzero(missing.to_numpy())[0])
            raise UserError(f"{self.path}: {what} in row {row}: {remedy}")
