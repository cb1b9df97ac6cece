"""Files appear whole or not at all, and JSON is strict."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import UserError


def check_outputs(paths: Mapping[str, str | None]) -> None:
    """Refuse outputs that cannot be written before anything is computed for them.

    Args:
        paths: what every option names; None where it is not given.

    Raises:
        UserError: for a folder, a folder that is missing, or more than one output on the standard output.
    """
    on_stdout = [option for option, path in paths.items() if path == "-"]
    if len(on_stdout) > 1:
        raise UserError(f"{' and '.join(on_stdout)} cannot share the standard output: give one of them a file")
    for path in paths.values():
        if path and path != "-":
            _target(path)


def write(path: str, text: str) -> None:
    """Replace a file in one step; ``-`` is the standard output, and pipes and devices are written to as they are."""
    text = text if text.endswith("\n") else text + "\n"
    if path == "-":
        _print(text)
        return
    file = _target(path)
    try:
        if file.exists() and not file.is_file():
            with open(file, "w", encoding="utf-8") as special:
                special.write(text)
        else:
            _replace(file, text)
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: str, error: OSError) -> UserError:
    return UserError(f"{path} cannot be written ({error.strerror}): name another file")


def _target(path: str) -> Path:
    """The file behind a path; a link keeps pointing at it."""
    file = Path(os.path.realpath(path))
    try:
        folder, parent = file.is_dir(), file.parent.is_dir()
    except OSError as error:
        raise _refused(path, error) from error
    if folder:
        raise UserError(f"{path} is a folder: name a file to write")
    if not parent:
        raise UserError(f"the folder of {path} does not exist: make it first")
    return file


def _replace(file: Path, text: str) -> None:
    descriptor, aside = tempfile.mkstemp(dir=file.parent, prefix=".trace.")
    try:
        with open(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(aside, _mode(file))
        os.replace(aside, file)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


def _mode(file: Path) -> int:
    """That of the file that is replaced, or of any new file here."""
    if file.exists():
        return stat.S_IMODE(file.stat().st_mode)
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def _print(text: str) -> None:
    """To the standard output; a reader that has seen enough, such as ``head``, is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def strict_json(value: Any) -> str:
    """JSON as the standard has it: NaN and infinity become null.

    >>> strict_json({"a": float("nan"), "b": (1, 2.5)}).split()
    ['{', '"a":', 'null,', '"b":', '[', '1,', '2.5', ']', '}']
    """
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
