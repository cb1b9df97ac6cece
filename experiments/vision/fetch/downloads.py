"""Downloads over HTTP that go on where they stopped, and that are checked before anything can read them."""

from __future__ import annotations

import fcntl
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from trace.io.errors import explain

from ...engine.errors import UserError
from ...engine.progress import batch_progress_bar

TIMEOUT_SECONDS = 60.0
ATTEMPTS = 5
"""Requests in a row that may bring nothing."""

_CHUNK = 1 << 20
_NETWORK = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)

Check = Callable[[Path], str | None]
"""What is wrong with a file, as the end of a sentence; None where it is whole."""


class _BrokenOffError(Exception):
    """The connection ended before the file did."""


def fetch(
    url: str,
    target: Path,
    *,
    check: Check,
    size: int | None = None,
    pause: float = 2.0,
    timeout: float = TIMEOUT_SECONDS,
) -> Path:
    """Download to ``target``, which appears only when ``check`` finds nothing wrong; a file that is there is checked.

    What came so far waits in ``TARGET.part`` and is continued, by this call and by the next one. A file that fails its
    check is set aside as ``TARGET.bad`` and never read again.
    """
    part = target.with_name(f"{target.name}.part")
    with explain(f"{target} cannot be written", "give another folder with --root, or free it", OSError):
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            _complete(url, part, size, pause, timeout)
            _refuse(part, target, url, check)
            os.replace(part, target)
        else:
            _refuse(target, target, url, check)
    return target


def _refuse(path: Path, target: Path, url: str, check: Check) -> None:
    if wrong := check(path):
        bad = target.with_name(f"{target.name}.bad")
        os.replace(path, bad)
        raise UserError(
            f"{target.name} from {url} {wrong}: it is set aside as {bad}; call again to fetch it anew, and if that "
            "brings the same file, do not trust the source"
        )


def _complete(url: str, part: Path, size: int | None, pause: float, timeout: float) -> None:
    """Ask for the rest until the whole file is there."""
    failures = 0
    while size is None or not part.exists() or part.stat().st_size < size:
        before = part.stat().st_size if part.exists() else 0
        try:
            with open(part, "ab") as file:
                _lock(file, part)
                _append(url, file, size, timeout)
            return
        except _BrokenOffError as error:
            after = part.stat().st_size
            failures = 0 if after > before else failures + 1
            if failures == ATTEMPTS:
                raise UserError(
                    f"{url} cannot be read ({error}): call again later, it goes on after the {after:,} bytes in {part}"
                ) from error
            time.sleep(pause * failures)


def _append(url: str, file: IO[bytes], size: int | None, timeout: float) -> None:
    """One request for what is missing; a server that cannot continue sends all of it, and the file starts anew."""
    start = _length(file)
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            if start and not _continues(response, start):
                file.truncate(0)
                start = 0
            announced = response.headers.get("Content-Length")
            end = size if size is not None else start + int(announced) if announced else None
            for chunk in batch_progress_bar(_chunks(response), end, url.rsplit("/", 1)[-1], "B", done=start):
                file.write(chunk)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            file.truncate(0)
        elif error.code < 500:
            raise UserError(f"{url} answers {error.code} {error.reason}: check the address and your network") from error
        raise _BrokenOffError(error) from error
    except _NETWORK as error:
        raise _BrokenOffError(error) from error
    if end is not None and _length(file) < end:
        raise _BrokenOffError(f"it ended after {_length(file):,} of {end:,} bytes")


def _continues(response: http.client.HTTPResponse, start: int) -> bool:
    return response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _length(file: IO[bytes]) -> int:
    file.flush()
    return os.fstat(file.fileno()).st_size


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read(_CHUNK)
        except _NETWORK as error:
            raise _BrokenOffError(error) from error
        if not chunk:
            return
        yield chunk


def _lock(file: IO[bytes], part: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(f"{part} is being written by another process: wait for it") from error
