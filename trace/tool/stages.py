"""Seconds by stage, and the name of the running stage on a terminal."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_CLEAR = "\r\033[K"


class Stages:
    """A stopwatch: ``with stages("shift"): ...`` adds to the seconds of that stage.

    A stage inside another one counts for itself alone.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = sys.stderr.isatty()
        self._running: list[str] = []
        self._since = 0.0
        self._percent = ""

    def progress(self, share: float) -> None:
        """Show how much of the running stage is done."""
        percent = f" {min(share, 1.0):.0%}"
        if percent != self._percent:
            self._percent = percent
            self._show()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self._switch()
        self._running.append(name)
        self._show()
        try:
            yield
        finally:
            self._switch()
            self._running.pop()
            self._show()

    def _switch(self) -> None:
        """Book the time since the last switch on the stage that ran."""
        self._percent = ""
        now = time.perf_counter()
        if self._running:
            name = self._running[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now

    def _show(self) -> None:
        if self._progress:
            text = f"{self._running[-1]} ...{self._percent}" if self._running else ""
            print(f"{_CLEAR}{text}", end="", file=sys.stderr, flush=True)


def seconds_line(seconds: Mapping[str, float]) -> str:
    """``seconds: data 0.10, shift 2.00; total 2.10``."""
    parts = ", ".join(f"{name} {spent:.2f}" for name, spent in seconds.items())
    return f"seconds: {parts}; total {sum(seconds.values()):.2f}"
