"""Who computes what: one lease for runs and for what runs share, on the disk of one machine or of many (NFS, Lustre).

A lease is a folder that holds one file, named by the random token of its holder, with host, process, job and a counter.

- It is taken by renaming a folder of one's own, with that file in it, to the lease's name: this succeeds where there is
  none or an empty one, and for one of several that try.
- Its holder counts up every few seconds. Whoever waits compares the counter with what it saw before and measures on
  its own clock alone; a counter that has stood still for so long is a holder that is gone. A process of this machine
  that has ended is gone at once.
- A holder that is gone is moved out of the folder by the name of its token, which is nobody else's, and the lease is
  then taken as any other.

No lease excludes a holder that was merely paused. What must exist once is stored by `store_once`: the first one stays.
"""

import errno
import json
import os
import secrets
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from trace.io.writing import sync_folder

HEARTBEAT = 5.0
"""Seconds between two counts of a holder."""
TIMEOUT = 60.0
"""Seconds, on the clock of whoever waits, after which a counter that stands still is abandoned."""
POLL = 0.2
"""Seconds between two looks at a lease."""

_COUNT = "{:012d}\n"


@dataclass(frozen=True)
class Holder:
    """What a lease says about who holds it."""

    token: str
    host: str = ""
    place: str = ""
    """Host, boot and namespace of processes: where its process number means anything."""
    pid: int = 0
    started: str = ""
    """When its process started, in ticks since the boot: numbers of processes are used again."""
    job: str = ""
    """Of a cluster; empty elsewhere."""
    count: int = field(default=0, compare=False)

    @classmethod
    def myself(cls) -> "Holder":
        job = os.environ.get("SLURM_JOB_ID", "")
        if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
            job = f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID', '')}"
        pid = os.getpid()
        return cls(secrets.token_hex(8), socket.gethostname(), _place(), pid, _started(pid) or "", job)

    def here(self) -> bool:
        """Whether its process is one of this machine."""
        return bool(self.place) and self.place == _place()

    def gone(self) -> bool:
        """Whether its process is one of this machine and has ended."""
        return self.here() and _started(self.pid) != self.started

    def __str__(self) -> str:
        job = f", job {self.job}" if self.job else ""
        return f"process {self.pid} on {self.host}{job}" if self.host else "a process that did not say its name"


class Lease:
    """A lease that this process holds, until `release`; in a ``with`` block it counts by itself."""

    def __init__(self, path: Path, holder: Holder) -> None:
        self.path, self.holder = path, holder
        self.lost = False
        """Whether somebody else has it now."""
        self._count = 0
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Lease":
        self.keep()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def keep(self, heartbeat: float = HEARTBEAT) -> None:
        """Count in a thread from now on."""

        def count() -> None:
            while not self.lost and not self._released.wait(heartbeat):
                with suppress(OSError):  # of a file system that is away for a while: the next count may come through
                    self.beat()

        self._thread = threading.Thread(target=count, name=f"lease {self.path}", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        """Count up in the lease's file; where it was deleted, take it again, if nobody has it now."""
        self._count += 1
        try:
            file = os.open(self.path / self.holder.token, os.O_WRONLY)
        except FileNotFoundError:
            self.lost = not self.path.parent.is_dir() or not _take(self.path, self.holder)
            return
        try:
            os.pwrite(file, _COUNT.format(self._count).encode(), len(_header(self.holder)))
        finally:
            os.close(file)

    def release(self) -> None:
        """Give it back; what is another's stays."""
        self._released.set()
        if self._thread is not None:
            self._thread.join()
        with suppress(FileNotFoundError):
            os.unlink(self.path / self.holder.token)
        with suppress(OSError):  # somebody has taken it meanwhile
            os.rmdir(self.path)


class Watch:
    """How long a holder has stood still, on the clock of whoever looks.

    The time between two looks counts for two polls at most: a process that was itself paused, perhaps together with
    the holder, has seen nothing in between.
    """

    def __init__(
        self, path: Path, *, timeout: float = TIMEOUT, poll: float = POLL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self.timeout, self.poll, self.clock = path, timeout, poll, clock
        self.holder: Holder | None = None
        self.counted = False
        """Whether the holder has been seen to count."""
        self._still = 0.0
        self._last = clock()

    def look(self) -> Holder | None:
        """Who holds the lease now."""
        now = self.clock()
        found, before = look(self.path), self.holder
        same = found is not None and found == before
        unchanged = same and found is not None and before is not None and found.count == before.count
        self.counted = same and (self.counted or not unchanged)
        self._still = self._still + min(now - self._last, 2 * self.poll) if unchanged else 0.0
        self._last = now if unchanged else self.clock()
        self.holder = found
        return found

    def abandoned(self) -> bool:
        """Whether the holder that was seen last is gone."""
        return self.holder is not None and (self.holder.gone() or self._still >= self.timeout)


def look(path: Path) -> Holder | None:
    """Who holds a lease; None where nobody does. Looking leaves no trace and does not wait."""
    try:
        names = os.listdir(path)
    except FileNotFoundError:
        return None
    for name in names:
        with suppress(FileNotFoundError):
            return _read(path / name)
    return None


def acquire(
    path: Path,
    *,
    wait: bool = False,
    waiting: Callable[[Holder], None] = lambda holder: None,
    watch: Watch | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease | None:
    """Take a lease; it counts by itself in a ``with`` block.

    Args:
        path: its folder; those above are made.
        wait: until it is free. Otherwise None is returned as soon as its holder is known to be alive: at once on this
            machine, after the next count elsewhere.
        waiting: is told once who is waited for.
        watch, sleep: the clock of this process.

    Raises:
        OSError: where nothing can be written.
    """
    watch = watch or Watch(path)
    told = False
    while True:
        holder = watch.look()
        if holder is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            if _take(path, mine := Holder.myself()):
                return Lease(path, mine)
        elif watch.abandoned():
            _move_out(path, holder)
        elif not wait and (holder.here() or watch.counted):
            return None
        else:
            if wait and not told:
                waiting(holder)
                told = True
            sleep(watch.poll)


@contextmanager
def leased(path: Path, *, waiting: str) -> Iterator[None]:
    """Hold a lease; where another process holds it, say what it is waited for, and wait."""
    said = f"{waiting} ({{}}), waiting for it"
    lease = acquire(path, wait=True, waiting=lambda holder: print(said.format(holder), file=sys.stderr))
    assert lease is not None
    with lease:
        yield


def store_once(path: Path, content: bytes) -> bool:
    """Store a file whole, unless there is one already, which then stays; whether it was ours.

    The name appears by a link, which fails where one exists, on every machine that shares the folder.
    """
    aside = path.with_name(f".trace.{secrets.token_hex(8)}")
    try:
        with open(aside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(aside, path)
        except FileExistsError:
            if not os.path.samefile(aside, path):  # the same: an answer got lost, and NFS asked twice
                return False
        sync_folder(path.parent)
        return True
    finally:
        aside.unlink(missing_ok=True)


def _take(path: Path, holder: Holder) -> bool:
    """Rename a folder of one's own to the lease; whether that made it ours."""
    aside = path.with_name(f".{path.name}.{holder.token}")
    aside.mkdir()
    try:
        (aside / holder.token).write_bytes(_header(holder) + _COUNT.format(0).encode())
        os.rename(aside, path)
    except OSError as error:
        if (path / holder.token).exists():  # an answer got lost, and NFS asked twice
            return True
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            return False
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return True


def _move_out(path: Path, holder: Holder) -> None:
    """Not deleted in its place: NFS would keep a file that is open under another name of the same folder."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with suppress(FileNotFoundError):
        os.rename(path / holder.token, aside)
        os.unlink(aside)


def _header(holder: Holder) -> bytes:
    said = asdict(holder)
    del said["count"]
    return json.dumps(said, sort_keys=True).encode() + b"\n"


def _read(path: Path) -> Holder:
    """The file of a holder; one that a crash of its machine left empty is a holder without a name."""
    header, _, count = path.read_bytes().partition(b"\n")
    try:
        return Holder(**{**json.loads(header), "token": path.name, "count": int(count)})
    except (ValueError, TypeError):
        return Holder(path.name)


@cache
def _place() -> str:
    """Host, boot and namespace; empty where the system does not tell (not Linux), and nobody is known to be gone."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process of this machine started; None once it has ended, even if nobody has asked for its exit code."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if after_name[0] in "ZX" else after_name[19]
