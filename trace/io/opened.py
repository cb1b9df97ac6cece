"""Files that others made, as bytes: each is opened once, must be a regular one, and what is checked is what is read."""

import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO, NamedTuple

from .errors import MissingFileError, UserError

MOST_BYTES = 16 * 2**30
"""Larger files are not read whole."""
MOST_TEXT = 64 * 2**20
"""The same for text."""


class FileBytes(NamedTuple):
    """What a file held when it was read; nothing opens it again."""

    path: Path
    data: bytes

    @property
    def sha256(self) -> str:
        """In hexadecimal digits."""
        return hashlib.sha256(self.data).hexdigest()


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened for reading; pipes and devices, which may never end, are refused and not waited for.

    Raises:
        MissingFileError: where there is none.
        UserError: where it is a folder, a pipe or a device, or may not be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} does not exist: check the path") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path} cannot be opened ({why}): check the path and its permissions") from error
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise UserError(f"{path} is a folder: name a file")
    raise UserError(f"{path} is a pipe or a device: save what it gives in a file, and name that")


def read_bytes(path: Path, *, most: int = MOST_BYTES) -> FileBytes:
    """A regular file whole, of at most ``most`` bytes.

    Raises:
        UserError: as `open_regular` and `read_whole`.
    """
    with open_regular(path) as file:
        return read_whole(file, path, most=most)


def read_whole(file: BinaryIO, path: Path, *, most: int = MOST_BYTES) -> FileBytes:
    """What `open_regular` opened, from its beginning.

    Raises:
        UserError: for a file that is larger than ``most`` bytes, or changes meanwhile.
    """
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise UserError(f"{path} has {shown_size(size)}, and at most {shown_size(most)} are read: give a smaller one")
    file.seek(0)
    data = file.read(size + 1)
    if len(data) != size:
        raise UserError(f"{path} changed while it was read: wait until it is whole, and try again")
    return FileBytes(path, data)


def shown_size(count: int) -> str:
    """Bytes for people.

    >>> shown_size(316), shown_size(12 * 10**12)
    ('316 bytes', '10.9 TB')
    """
    units = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")
    power = min(len(units) - 1, max(0, (int(count).bit_length() - 1) // 10))
    return f"{count // 2 ** (10 * power - 10) / 1024:.3g} {units[power]}" if power else f"{count:.0f} bytes"
