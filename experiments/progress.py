"""A bar with the time left on a terminal; elsewhere one line a minute."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

LINE_SECONDS = 60.0

Item = TypeVar("Item")


def watched(outcomes: Iterable[Item], total: int, label: str, *, unit: str = "run") -> Iterator[Item]:
    """Pass outcomes through and show how many of each kind there are so far."""
    counts: Counter[Item] = Counter()
    terminal = sys.stderr.isatty()
    started = last_line = time.monotonic()
    with tqdm(total=total, desc=label, unit=unit, disable=not terminal, file=sys.stderr) as bar:
        for outcome in outcomes:
            counts[outcome] += 1
            bar.set_postfix_str(_summary(counts))
            bar.update()
            now = time.monotonic()
            if not terminal and now - last_line >= LINE_SECONDS:
                done = sum(counts.values())
                left = (now - started) / done * (total - done)
                print(f"{label}: {done} of {total} ({_summary(counts)}), {left / 60:.0f} min left", file=sys.stderr)
                last_line = now
            yield outcome


def watched_bytes(chunks: Iterable[bytes], total: int | None, label: str, *, start: int = 0) -> Iterator[bytes]:
    """Pass a download through and show how much of it there is; ``start`` bytes were there before."""
    terminal = sys.stderr.isatty()
    done, last_line = start, time.monotonic()
    bar = tqdm(total=total, initial=start, desc=label, unit="B", unit_scale=True, disable=not terminal, file=sys.stderr)
    with bar:
        for chunk in chunks:
            done += len(chunk)
            bar.update(len(chunk))
            now = time.monotonic()
            if not terminal and now - last_line >= LINE_SECONDS:
                share = f" of {total / 1e6:,.0f}" if total else ""
                print(f"{label}: {done / 1e6:,.0f}{share} MB", file=sys.stderr)
                last_line = now
            yield chunk


def counted(sizes: Iterable[int], total: int, label: str, unit: str, *, done: int = 0) -> Iterator[int]:
    """Pass the sizes of finished batches through and show how many of ``total`` there are; ``done`` were before."""
    terminal = sys.stderr.isatty()
    started = last_line = time.monotonic()
    before = done
    with tqdm(total=total, initial=done, desc=label, unit=unit, disable=not terminal, file=sys.stderr) as bar:
        for size in sizes:
            done += size
            bar.update(size)
            now = time.monotonic()
            if not terminal and now - last_line >= LINE_SECONDS:
                left = (now - started) / (done - before) * (total - done)
                print(f"{label}: {done} of {total} {unit}s, {left / 60:.0f} min left", file=sys.stderr)
                last_line = now
            yield size


def _summary(counts: Counter[Item]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items(), key=str))
