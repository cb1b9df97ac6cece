"""What kind of file some bytes are, by their first bytes and by the members of an archive; never by their name.

An archive is refused where two readers could see two contents in it, or where it grows beyond what its size allows.
"""

import io
import struct
import zipfile
from collections import Counter
from pathlib import PurePosixPath
from typing import Literal

from .errors import UserError, explain
from .opened import FileBytes, shown_size

Kind = Literal["skops", "TorchScript", "torch.export", "weights", "safetensors", "pickle", "npz", "npy", "parquet", ""]

MOST_MEMBERS = 100_000
FREE_BYTES = 256 * 2**20
"""What an archive may hold however small it is."""
MOST_RATIO = 100
"""How many times its own size it may hold beyond that."""

HEAD_BYTES = 64
"""Bytes that tell a binary file from text."""

_CONTROL = bytes(set(range(32)) - set(b"\t\n\f\r"))
_ZIP, _MEMBER = b"PK\x03\x04", b"PK\x01\x02"
_END, _END64, _LOCATOR64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_COMPRESSED = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00")
"""First bytes of what joblib compresses: zlib, gzip, bz2, xz, lzma."""


def file_kind(file: FileBytes) -> Kind:
    """The kind of a file; empty where it is none of those.

    Raises:
        UserError: for an archive that `open_archive` refuses.
    """
    data = file.data
    if data.startswith(_ZIP):
        with open_archive(file) as archive:
            return _archive_kind(archive.namelist())
    if data.startswith(b"\x93NUMPY"):
        return "npy"
    if data.startswith(b"PAR1"):
        return "parquet"
    if data[8:9] == b"{" and int.from_bytes(data[:8], "little") <= max(len(data), 100 * 2**20):
        return "safetensors"
    if data.startswith(_COMPRESSED) or (data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")):
        return "pickle"
    return ""


def is_binary(head: bytes) -> bool:
    """Whether the first bytes of a file are those of no text."""
    return b"\x00" in head or head.startswith(b"PAR1") or any(byte in head for byte in _CONTROL)


def open_archive(file: FileBytes) -> zipfile.ZipFile:
    """A zip archive that every reader sees alike, and whose members fit into memory.

    There is one directory, at the place where the end record says it is and just before that record; no name is there
    twice or leaves the archive; and all members together hold no more than `FREE_BYTES`, or `MOST_RATIO` times the
    size of the archive.

    Raises:
        UserError: where it is damaged, or anything of this does not hold.
    """
    path, data = file
    if (members := data.count(_MEMBER)) > MOST_MEMBERS:
        raise UserError(f"{path} is an archive of {members} members, at most {MOST_MEMBERS} are read: save it again")
    if not _one_directory(data):
        raise UserError(f"{path} is an archive that readers may see in two ways, or is cut short: save it again")
    with explain(f"{path} is no readable archive", "save it again"):
        archive = zipfile.ZipFile(io.BytesIO(data))
    names = archive.namelist()
    if twice := next((name for name, count in Counter(names).items() if count > 1), ""):
        raise UserError(f"{path} holds {twice} more than once, so it is not clear which one counts: save it again")
    if (stray := next((name for name in names if _leaves(name)), None)) is not None:
        raise UserError(f"{path} holds {stray}, a name that leaves the archive: save it again")
    held = sum(entry.file_size for entry in archive.infolist())
    if held > most_held(len(data)):
        raise UserError(
            f"{path} has {shown_size(len(data))} and says that it holds {shown_size(held)}: if that is true, save it "
            "without compression"
        )
    return archive


def most_held(size: int) -> int:
    """How many bytes an archive of ``size`` bytes may hold."""
    return max(FREE_BYTES, MOST_RATIO * size)


def member_bytes(archive: zipfile.ZipFile, name: str, origin: object) -> bytes:
    """One member whole.

    Raises:
        UserError: where it is damaged.
    """
    with explain(f"{origin} is damaged in {name}", "save it again"):
        return archive.read(name)


def _archive_kind(names: list[str]) -> Kind:
    last = {PurePosixPath(name).name for name in names}
    if "schema.json" in names:
        return "skops"
    if last & {"archive_format", "serialized_exported_program.json"}:
        return "torch.export"
    if "constants.pkl" in last or any("/code/" in name for name in names):
        return "TorchScript"
    if "data.pkl" in last:
        return "weights"
    return "npz" if names and all(name.endswith(".npy") for name in names) else ""


def _one_directory(data: bytes) -> bool:
    """Whether the end record is last, and the directory it names ends where the record begins."""
    end = len(data) - _END.size
    if end < 0 or data[end : end + 4] != b"PK\x05\x06":
        return False
    _, _, _, _, _, size, offset, comment = _END.unpack_from(data, end)
    locator = end - _LOCATOR64.size
    if locator >= 0 and data[locator : locator + 4] == b"PK\x06\x07":
        _, _, at, _ = _LOCATOR64.unpack_from(data, locator)
        if at + _END64.size != locator or data[at : at + 4] != b"PK\x06\x06":
            return False
        *_, size, offset = _END64.unpack_from(data, at)
        end = at
    return comment == 0 and offset + size == end


def _leaves(name: str) -> bool:
    return name.startswith("/") or "\\" in name or ".." in PurePosixPath(name).parts or "\x00" in name
