"""Text and JSON files: read whole, and written so that they appear whole or not at all; JSON is strict."""

import hashlib
import json
import math
import os
import secrets
import shutil
import stat
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..escaping import printable
from .errors import UserError
from .opened import MOST_TEXT, FileBytes, read_bytes


@contextmanager
def replacement(path: Path, *, sync: bool = False) -> Iterator[Path]:
    """A file to write aside, which takes the place of ``path`` in one step when the block ends, and never in part.

    A link keeps pointing at its file, which is replaced; pipes and devices are written to as they are. The file keeps
    its mode, or has that of any new file. Folders that are missing are made. With ``sync`` file and name are on the
    disk when the block ends; without it a crash of the machine may lose them, which is fine for what can be made again.
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
    if sync:
        sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk: a file that is synced may still lose its name."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: Path, text: str, *, sync: bool = True) -> None:
    """Put a text in the place of ``path``, as `replacement` does: readers see the old one or the new one."""
    with replacement(path, sync=sync) as aside:
        aside.write_text(text, encoding="utf-8")


def check_outputs(paths: Mapping[str, str | None], inputs: Iterable[Path] = ()) -> None:
    """Refuse outputs that cannot be written, or must not be, before anything is computed for them.

    Args:
        paths: what every option names; None where it is not given.
        inputs: files and folders that are read, and so not written.

    Raises:
        UserError: for a folder, a folder that is missing, an input, also by a link, and two outputs in one place.
    """
    _check_inputs(paths, list(inputs))
    on_stdout = [option for option, path in paths.items() if path == "-"]
    if len(on_stdout) > 1:
        raise UserError(f"{' and '.join(on_stdout)} cannot share the standard output: give one of them a file")
    for path in paths.values():
        if path and path != "-":
            file = Path(os.path.realpath(path))
            try:
                folder, parent = file.is_dir(), file.parent.is_dir()
            except OSError as error:
                raise _refusal(path, error) from error
            if folder:
                raise UserError(f"{path} is a folder: name a file to write")
            if not parent:
                raise UserError(f"the folder of {path} does not exist: make it first")


def _check_inputs(paths: Mapping[str, str | None], inputs: list[Path]) -> None:
    taken: dict[str, str] = {}
    for option, path in paths.items():
        if not path or path == "-":
            continue
        file = os.path.realpath(path)
        if file in taken and not stat.S_ISCHR(_mode(file)):
            raise UserError(f"{taken[file]} and {option} both name {path}: give each a file of its own")
        taken[file] = option
        if stat.S_ISREG(_mode(file)) and (read := next((each for each in inputs if _holds(each, file)), None)):
            raise UserError(f"{option} {path} would overwrite an input, {read}: name another file")


def _mode(file: str) -> int:
    try:
        return os.stat(file).st_mode
    except (OSError, ValueError):
        return 0


def _holds(read: Path, file: str) -> bool:
    """Whether an existing file is one that is read, or lies in a folder that is."""
    try:
        if read.is_dir():
            return Path(file).is_relative_to(os.path.realpath(read))
        return os.path.samefile(read, file)
    except (OSError, ValueError):
        return False


def write_output(path: str, text: str) -> None:
    """Write what an option names, after `check_outputs`; ``-`` is the standard output.

    Raises:
        UserError: where the file cannot be written.
    """
    text = text if text.endswith("\n") else text + "\n"
    if path == "-":
        _print(text)
        return
    try:
        write_atomically(Path(path), text, sync=False)
    except OSError as error:
        raise _refusal(path, error) from error


def _refusal(path: str, error: OSError) -> UserError:
    return UserError(f"{path} cannot be written ({error.strerror}): name another file")


def _print(text: str) -> None:
    """To the standard output; a reader that has seen enough, such as ``head``, is no error."""
    try:
        sys.stdout.write(printable(text))
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


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with the digest of all else in it: it shows damage and edits, not who wrote it.

    >>> sealed({"a": 1})["digest"][:14]
    'sha256:015abd7'
    """
    content = {key: entry for key, entry in record.items() if key != "digest"}
    text = json.dumps(plain(content), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return {**content, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"}


def read_json(path: Path, kind: str, maker: str, *, seal: bool = False) -> dict[str, Any]:
    """A JSON object of the given format; with ``seal`` its digest is compared with what it holds.

    Raises:
        UserError: where it is none, or was edited since it was made.
    """
    record = parse_json(read_text(path), str(path), f"make it with {maker}")
    if not isinstance(record, dict) or record.get("format") != kind:
        raise UserError(f"{path} is not of the format {kind}: make it with {maker}")
    if seal and "digest" not in record:
        raise UserError(f"{path} carries no digest, as files of this version do: make it again with {maker}")
    if seal and record["digest"] != sealed(record)["digest"]:
        raise UserError(f"{path} was edited or damaged, its digest is that of another content: make it with {maker}")
    return record


def parse_json(text: str, origin: str, remedy: str) -> Any:
    """Strict JSON: no key twice in an object, numbers that a float can hold, nesting that can be followed.

    Raises:
        UserError: for anything else, with ``remedy``.
    """
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_finite, parse_constant=_finite
        )
    except RecursionError as error:
        raise UserError(f"{origin} is nested too deep to be JSON of ours: {remedy}") from error
    except ValueError as error:
        raise UserError(f"{origin} is not JSON ({error}): {remedy}") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"it has the key {twice!r} twice")
    return found


def _integer(text: str) -> int:
    if len(text) > 19:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is no number")
    return number


def read_text(path: Path, *, most: int = MOST_TEXT) -> str:
    """A text file whole."""
    return text_of(read_bytes(path, most=most))


def text_of(file: FileBytes) -> str:
    """The text of a file that was read.

    Raises:
        UserError: where it is not UTF-8.
    """
    try:
        return file.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file.path} is not text in UTF-8: check the path, or convert it") from error
