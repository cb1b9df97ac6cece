"""A .npy file that grows by rows, beside a note of how many are written and their checksum."""

import io
import json
import math
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from trace.io.writing import write_atomically


class RowFile:
    """An array ``shape`` of which the first ``done`` rows are written.

    Rows are appended by plain writes: a full disk is then an error, where it would kill a process that writes through
    a memory map.
    """

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.path, self.shape, self.dtype = path, shape, dtype
        self.note_path = path.with_suffix(".json")
        self._header = _header(shape, dtype)
        self._row_bytes = math.prod(shape[1:]) * dtype.itemsize
        self.done = 0
        self.checksum = 0

    def resume(self) -> str | None:
        """Take over the rows of an earlier attempt; the reason where they cannot be trusted, None where all is well."""
        if not self.note_path.exists():
            return None
        try:
            note = json.loads(self.note_path.read_text(encoding="utf-8"))
            done, checksum = int(note["rows"]), int(note["crc32"])
        except (ValueError, KeyError, TypeError):
            return f"{self.note_path.name} cannot be read"
        if not 0 <= done <= self.shape[0]:
            return f"{self.note_path.name} counts {done} rows of {self.shape[0]}"
        fault = self._fault(done, checksum)
        if fault is None:
            self.done, self.checksum = done, checksum
        return fault

    def clear(self) -> None:
        """Forget everything that was written."""
        self.note_path.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        self.done = self.checksum = 0

    def append(self, rows: np.ndarray[Any, Any]) -> None:
        """Write rows behind those that are done, then note them; what an interrupted write left is overwritten."""
        if rows.dtype != self.dtype or rows.shape[1:] != self.shape[1:]:
            raise ValueError(f"rows {rows.shape[1:]} of {rows.dtype} do not fit {self.shape[1:]} of {self.dtype}")
        content = np.ascontiguousarray(rows).tobytes()
        with open(self.path, "r+b" if self.done else "wb") as file:
            if not self.done:
                file.write(self._header)
            file.seek(len(self._header) + self.done * self._row_bytes)
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        self.done += len(rows)
        self.checksum = zlib.crc32(content, self.checksum)
        write_atomically(self.note_path, json.dumps({"rows": self.done, "crc32": self.checksum}) + "\n", sync=False)

    def mapped(self) -> np.ndarray[Any, Any]:
        """The whole array from disk, copied where it is written to."""
        if self.done != self.shape[0]:
            raise ValueError(f"{self.path} has {self.done} of {self.shape[0]} rows: append the others first")
        return np.load(self.path, mmap_mode="c")

    def _fault(self, done: int, checksum: int) -> str | None:
        """Why the first ``done`` rows are not those that were written."""
        if not self.path.exists():
            return f"{self.path.name} is missing"
        start = len(self._header)
        expected = start + done * self._row_bytes
        size = self.path.stat().st_size
        if size < expected or (done == self.shape[0] and size > expected):
            return f"{self.path.name} has {size} bytes where {expected} were written"
        written = np.memmap(self.path, np.uint8, "r", shape=(expected,))
        if written[:start].tobytes() != self._header:
            return f"{self.path.name} has another shape or type"
        intact = zlib.crc32(written[start:].data) == checksum
        return None if intact else f"{self.path.name} was changed after it was written"


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    header = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, fields)
    return header.getvalue()
