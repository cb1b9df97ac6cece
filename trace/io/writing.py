"""Text and JSON files: read whole, and written so that they appear whole or not at all; JSON is strict."""

import json
import math
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import MissingFileError, UserError


@contextmanager
def replacement(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """A file to write aside, which takes the place of ``path`` in one step when the block ends, and never in part.

    A link keeps pointing at its file, which is replaced; pipes and devices are written to as they are. The file keeps
    its mode, or has that of any new file. Folders that are missing are made. Without ``sync`` a crash of the machine
    may lose the file, which is fine for what can be made again.
    """
    file = Path(os.path.realpath(path))
    if file.exists() and not file.is_file():
        yield file
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    aside = file.with_name(f".trace.{secrets.token_hex(8)}")
    aside.touch(mode=0o600 if file.exists() else 0o666, exist_ok=False)
    try:
        yield aside
        if file.exists():
            shutil.copymode(file, aside)
        if sync:
            with open(aside, "rb") as written:
                os.fsync(written.fileno())
        os.replace(aside, file)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str, *, sync: bool = True) -> None:
    """Put a text in the place of ``path``, as `replacement` does: readers see the old one or the new one."""
    with replacement(path, sync=sync) as aside:
        aside.write_text(text, encoding="utf-8")


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
            _check_output(path)


def write_output(path: str, text: str) -> None:
    """Write what an option names; ``-`` is the standard output.

    Raises:
        UserError: where the file cannot be written.
    """
    text = text if text.endswith("\n") else text + "\n"
    if path == "-":
        _print(text)
        return
    _check_output(path)
    try:
        write_atomically(Path(path), text, sync=False)
    except OSError as error:
        raise _refusal(path, error) from error


def _check_output(path: str) -> None:
    file = Path(os.path.realpath(path))
    try:
        folder, parent = file.is_dir(), file.parent.is_dir()
    except OSError as error:
        raise _refusal(path, error) from error
    if folder:
        raise UserError(f"{path} is a folder: name a file to write")
    if not parent:
        raise UserError(f"the folder of {path} does not exist: make it first")


def _refusal(path: str, error: OSError) -> UserError:
    return UserError(f"{path} cannot be written ({error.strerror}): name another file")


def _print(text: str) -> None:
    """To the standard output; a reader that has seen enough, such as ``head``, is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def strict_json(value: Any, *, indent: int | None = 2, sort_keys: bool = False) -> str:
    """JSON as the standard has it, of `plain` values.

    >>> strict_json({"b": float("nan"), "a": (1, 2.5)}, indent=None, sort_keys=True)
    '{"a": [1, 2.5], "b": null}'
    """
    return json.dumps(plain(value), indent=indent, sort_keys=sort_keys, allow_nan=False)


def plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are null. Scalars of numpy and torch become plain numbers."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value


def read_json(path: Path, kind: str, maker: str) -> dict[str, Any]:
    """A JSON object of the given format."""
    try:
        record = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise UserError(f"{path} is not JSON ({error}): make it with {maker}") from error
    if not isinstance(record, dict) or record.get("format") != kind:
        raise UserError(f"{path} is not of the format {kind}: make it with {maker}")
    return record


def read_text(path: Path) -> str:
    """A text file whole."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} does not exist: check the path") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder: name a file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text in UTF-8: check the path, or convert it") from error
