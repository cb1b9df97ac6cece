"""Archives from the network: checksums, and unpacking that stays inside its folder."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from ...engine.errors import UserError

RATIO = 50
"""An archive may grow by this factor; drawings as text grow by about ten, pictures by none."""

_ALLOWANCE = 10_000_000
"""Bytes that any archive may unpack to."""

_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    size: int
    plain: bool
    """Whether it is a file, and no link or device."""
    open: Callable[[], IO[bytes]]


def sha256(path: Path) -> str:
    """Checksum of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack(archive: Path, folder: Path) -> None:
    """All files of a ``.zip`` or ``.tgz`` below ``folder``; nothing is written before every entry was checked.

    Raises:
        UserError: for a damaged archive, an entry that leaves the folder or is a link, and a size beyond all measure.
    """
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as package:
                _write(archive, folder, [_zipped(package, info) for info in package.infolist() if not info.is_dir()])
        else:
            with tarfile.open(archive) as bundle:
                _write(archive, folder, [_taped(bundle, info) for info in bundle.getmembers() if not info.isdir()])
    except _DAMAGE as error:
        raise UserError(f"{archive} is damaged ({error}): delete it and fetch it again") from error


def _zipped(package: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    kind = stat.S_IFMT(info.external_attr >> 16)
    return Member(info.filename, info.file_size, kind in (0, stat.S_IFREG), lambda: package.open(info))


def _taped(bundle: tarfile.TarFile, info: tarfile.TarInfo) -> Member:
    def opened() -> IO[bytes]:
        file = bundle.extractfile(info)
        if file is None:
            raise tarfile.ReadError(f"{info.name} cannot be read")
        return file

    return Member(info.name, info.size, info.isfile(), opened)


def _write(archive: Path, folder: Path, members: Iterable[Member]) -> None:
    checked = list(members)
    for member in checked:
        if reason := _unsafe(member):
            raise UserError(f"{archive}: entry {member.name!r} {reason}: do not trust this archive")
    total = sum(member.size for member in checked)
    if total > max(_ALLOWANCE, RATIO * archive.stat().st_size):
        raise UserError(
            f"{archive} would unpack to {total:,} bytes, over {RATIO} times its size: do not trust this archive"
        )
    free = shutil.disk_usage(folder).free
    if total > free:
        raise UserError(f"{archive} unpacks to {total:,} bytes and {folder} has {free:,} left: free some space")
    for member in checked:
        path = folder / member.name
        path.parent.mkdir(parents=True, exist_ok=True)
        with member.open() as source, open(path, "wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)


def _unsafe(member: Member) -> str | None:
    path = PurePosixPath(member.name)
    if not path.parts:
        return "names no file"
    if path.is_absolute() or "\\" in member.name or ":" in path.parts[0]:
        return "has an absolute path"
    if ".." in path.parts:
        return "leaves its folder"
    return None if member.plain else "is a link or a device"
