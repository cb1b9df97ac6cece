"""Archives from the network: unpacking that stays inside its folder and within its size."""

import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath

from trace.io.errors import explain

from ..engine.errors import UserError

RATIO = 50
"""An archive may grow by this factor; drawings as text grow by about ten, pictures by none."""

_ALLOWANCE = 10_000_000
"""Bytes that any archive may unpack to."""

_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


def unpack(archive: Path, folder: Path) -> None:
    """All files of a ``.zip`` or ``.tgz`` below ``folder``; nothing is written before every entry was checked.

    Raises:
        UserError: for a damaged archive, an entry that leaves the folder or is a link, and a size beyond all measure.
    """
    with explain(f"{archive} is damaged", "delete it and fetch it again", *_DAMAGE):
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as package:
                zipped = [info for info in package.infolist() if not info.is_dir()]
                _check(archive, folder, [(info.filename, info.file_size, _is_file(info)) for info in zipped])
                package.extractall(folder, zipped)
        else:
            with tarfile.open(archive) as bundle:
                taped = [info for info in bundle.getmembers() if not info.isdir()]
                _check(archive, folder, [(info.name, info.size, info.isfile()) for info in taped])
                bundle.extractall(folder, taped, filter="data")


def _is_file(info: zipfile.ZipInfo) -> bool:
    return stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)


def _check(archive: Path, folder: Path, entries: Sequence[tuple[str, int, bool]]) -> None:
    """By name, size, and whether it is a file; the libraries would rename an entry that leaves, we refuse all."""
    for name, _, is_file in entries:
        path = PureWindowsPath(name)  # knows both slashes, and drives
        inside = path.parts and not path.anchor and ".." not in path.parts
        if not (inside and is_file):
            reason = "is a link or a device" if inside else "does not stay inside its folder"
            raise UserError(f"{archive}: entry {name!r} {reason}: do not trust this archive")
    total = sum(size for _, size, _ in entries)
    if total > max(_ALLOWANCE, RATIO * archive.stat().st_size):
        raise UserError(
            f"{archive} would unpack to {total:,} bytes, over {RATIO} times its size: do not trust this archive"
        )
    free = shutil.disk_usage(folder).free
    if total > free:
        raise UserError(f"{archive} unpacks to {total:,} bytes and {folder} has {free:,} left: free some space")
