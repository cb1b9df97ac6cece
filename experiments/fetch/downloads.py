"""Downloads over HTTP that go on where they stopped, and that are checked before anything can read them."""

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import IO

from trace.io.errors import explain

from ..engine.errors import UserError
from ..engine.leases import acquire
from ..engine.progress import batch_progress_bar

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
    part, bad = (target.with_name(f"{target.name}.{state}") for state in ("part", "bad"))
    lease = nullcontext() if target.exists() else _alone(part)
    with explain(f"{target} cannot be written", "give another folder with --root, or free it", OSError), lease:
        if not target.exists():
            _complete(url, part, size, pause, timeout)
        came = target if target.exists() else part
        wrong = check(came)
        os.replace(came, bad if wrong else target)
    if wrong:
        raise UserError(
            f"{target.name} from {url} {wrong}: it is set aside as {bad}; call again to fetch it anew, and if that "
            "brings the same file, do not trust the source"
        )
    return target


def _complete(url: str, part: Path, size: int | None, pause: float, timeout: float) -> None:
    """Ask for the rest until the whole file is there."""
    failures = 0
    while size is None or not part.exists() or part.stat().st_size < size:
        before = part.stat().st_size if part.exists() else 0
        try:
            with open(part, "ab") as file:
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
            chunks = iter(partial(response.read, _CHUNK), b"")
            file.writelines(batch_progress_bar(chunks, end, url.rsplit("/", 1)[-1], "B", done=start))
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


@contextmanager
def _alone(part: Path) -> Iterator[None]:
    """Hold the lease on a file that grows."""
    lease = acquire(part.with_name(f"{part.name}.lease"))
    if lease is None:
        raise UserError(f"{part} is being written by another process: wait for it")
    with lease:
        yield
