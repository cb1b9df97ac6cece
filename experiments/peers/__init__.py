"""Packages that ours is compared with, in an environment of their own: nothing of them enters the main lock.

`peers.lock` is made once into ``build/peers``. Scripts of this folder run there, in a process of their own: arrays go
in as .npz, answers come back as JSON. They import the package inside a function, so that they can be read here too.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from trace.io.errors import explain

from ..engine.errors import UserError
from ..engine.leases import leased
from ..engine.records import ROOT

HERE = Path(__file__).parent
LOCK = HERE / "peers.lock"
KEPT = ROOT / "build" / "peers"
PINNED = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
TIMEOUT_SECONDS = 1800.0


def ask(script: str, arrays: Mapping[str, ArrayLike], *, python: Path) -> dict[str, Any]:
    """What a script of this folder answers, run by the interpreter of `environment`.

    It sees neither this repository nor any PYTHON* variable.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.npz"
        np.savez(told, **{name: np.asarray(values) for name, values in arrays.items()})  # type: ignore[arg-type]
        done = _run([str(python), "-I", str(HERE / f"{script}.py"), str(told)])
    if done.returncode:
        raise UserError(f"the peer {script} failed: {_last_line(done)}")
    return json.loads(done.stdout)


def environment(lock: Path = LOCK, kept: Path = KEPT) -> Path:
    """The interpreter of an environment with exactly the packages of a lock, made where there is none yet.

    Its folder is named by the digest of the lock and by the version of Python, and appears in one step.

    Raises:
        UserError: where neither uv nor pip can install the lock.
    """
    folder = kept / name_of(lock)
    with explain(f"{folder} cannot be written", "free space or permissions", OSError):
        kept.mkdir(parents=True, exist_ok=True)
        with leased(kept / f"{folder.name}.lease", waiting="another process installs the peers"):
            if not folder.exists():
                with tempfile.TemporaryDirectory(dir=kept, prefix=f".{folder.name}.") as aside:
                    os.replace(_installed(lock, Path(aside)), folder)
    return _python(folder)


def name_of(lock: Path) -> str:
    """Of the environment of a lock."""
    major, minor = sys.version_info[:2]
    return f"{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}-{major}.{minor}"


def _installed(lock: Path, aside: Path) -> Path:
    """A new environment below a folder, by uv, or by pip where uv is missing or fails."""
    print(f"installing {lock.name} into an environment of its own", file=sys.stderr)
    said = ""
    for name, commands in _ways(lock, aside).items():
        failed = next((done for done in map(_run, commands) if done.returncode), None)
        if failed is None:
            return aside / name
        said = _last_line(failed)
    raise UserError(f"{lock.name} cannot be installed ({said}): check your network, or pip's index setting")


def _ways(lock: Path, aside: Path) -> dict[str, list[list[str]]]:
    """Commands that make an environment, by the name of its folder."""
    near = Path(sys.executable).with_name("uv")
    uv = str(near) if near.exists() else shutil.which("uv")
    by_uv, by_pip = aside / "uv", aside / "pip"
    ways = {
        by_pip.name: [
            [sys.executable, "-m", "venv", str(by_pip)],
            [str(_python(by_pip)), "-m", "pip", "install", "--disable-pip-version-check", *PINNED, "-r", str(lock)],
        ]
    }
    if uv is None:
        return ways
    first = [
        [uv, "venv", "--quiet", "--no-project", "--python", sys.executable, str(by_uv)],
        [uv, "pip", "install", *PINNED, "--python", str(_python(by_uv)), "-r", str(lock)],
    ]
    return {by_uv.name: first, **ways}


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{Path(command[0]).name} did not end in {TIMEOUT_SECONDS:.0f} s") from error


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1].strip()


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"
