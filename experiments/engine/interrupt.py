"""Signals that come at a bad moment: they wait until a step, or a submission, is over.

SLURM warns before it kills: SIGUSR2 before a timeout, SIGTERM before a preemption. A run that calls
``context.checkpoint`` after every step keeps the state between two steps, never the middle of one.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

WARNINGS = (signal.SIGUSR2, signal.SIGTERM)
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 30.0
"""The longest that a warning waits for the end of a step: SLURM's own time between SIGTERM and SIGKILL."""


class Warned:
    """The warnings of one run: they wait for the end of a step, once the run has said that it takes steps."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self.grace = grace
        self.pending: int | None = None
        self._before: dict[int, Any] = {}

    def listen(self) -> None:
        """From now on warnings wait; signals are the main thread's business, elsewhere nothing changes."""
        if not self._before and threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._receive) for number in (*WARNINGS, signal.SIGALRM)}

    def __enter__(self) -> "Warned":
        return self

    def __exit__(self, *_: object) -> None:
        """Put the earlier handlers back; a warning that no step has answered acts now."""
        unanswered = self.pending
        self._forget()
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if unanswered is not None:
            os.kill(os.getpid(), unanswered)

    def act(self) -> None:
        """What the signal did before this run: requeue under submitit, end the process elsewhere."""
        number = self.pending
        assert number is not None
        self._forget()
        handler = self._before[number]
        if callable(handler):
            handler(number, None)
        elif handler == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        """Remember the first warning, SLURM repeats it; when the grace is over, act without a save."""
        if number == signal.SIGALRM:
            if self.pending is not None:
                self.act()
        elif self.pending is None:
            self.pending = number
            signal.setitimer(signal.ITIMER_REAL, self.grace)

    def _forget(self) -> None:
        if self.pending is not None:
            self.pending = None
            signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is over, here and in the programs that the block starts."""
    caught: list[int] = []
    before = {number: signal.signal(number, lambda number, _: caught.append(number)) for number in INTERRUPTIONS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[0])


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM interrupts the block as Ctrl-C does, so that it can end what it has started and say so.

    The sentence with which the block exits is printed, and the process ends by the signal, as whoever sent it expects.
    A second signal does not interrupt the clearing up after the first one.
    """
    received: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in INTERRUPTIONS}
    try:
        yield
    except SystemExit as end:
        if signal.SIGTERM not in received[:1]:
            raise
        print(end.code, file=sys.stderr, flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with_the_parent(number: signal.Signals) -> None:
    """Send this process a signal when the one that started it is gone, which cannot end it any more; then kill it."""

    def follow() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os.kill(os.getpid(), number)
        time.sleep(GRACE_SECONDS + 1)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=follow, daemon=True).start()


def ending(code: int) -> str:
    """How a process ended, from its exit code.

    >>> ending(-9), ending(2)
    ('was killed by SIGKILL, perhaps for lack of memory', 'ended with exit code 2')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    hint = ", perhaps for lack of memory" if code == -signal.SIGKILL else ""
    names = {known.value: known.name for known in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}{hint}"  # SLURM has 125 for lack of memory
