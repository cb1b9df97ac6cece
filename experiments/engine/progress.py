"""A bar with the time left on a terminal; elsewhere one line a minute."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, TypeVar

from tqdm import tqdm

LINE_SECONDS = 60.0

Item = TypeVar("Item")
Chunk = TypeVar("Chunk", bound=Sized)


def progress_bar(outcomes: Iterable[Item], total: int, label: str, *, unit: str = "run") -> Iterator[Item]:
    """Pass outcomes through and show how many of each kind there are so far."""
    counts: Counter[Item] = Counter()

    def note(outcome: Item, bar: Any) -> int:
        counts[outcome] += 1
        bar.set_postfix_str(_summary(counts))
        return 1

    def line(done: int, minutes: float) -> str:
        return f"{done} of {total} ({_summary(counts)}), {minutes:.0f} min left"

    return _show(outcomes, total, label, note, line, unit=unit)


def batch_progress_bar(
    batches: Iterable[Chunk], total: int | None, label: str, unit: str, *, done: int = 0
) -> Iterator[Chunk]:
    """Pass batches, or the bytes ``B`` of a download, through and show how many of ``total`` have come.

    ``done`` were there before; a total of None is not known beforehand.
    """
    scale, name = (1e6, "MB") if unit == "B" else (1, f"{unit}s")

    def line(now: int, minutes: float) -> str:
        share = f" of {total / scale:,.0f}" if total is not None else ""
        left = f", {minutes:.0f} min left" if total is not None else ""
        return f"{now / scale:,.0f}{share} {name}{left}"

    return _show(batches, total, label, lambda batch, _: len(batch), line, unit=unit, done=done, unit_scale=unit == "B")


def _show(
    items: Iterable[Item],
    total: int | None,
    label: str,
    size: Callable[[Item, Any], int],
    line: Callable[[int, float], str],
    *,
    done: int = 0,
    **bar_options: Any,
) -> Iterator[Item]:
    """Pass items through: a bar that grows by their sizes, or a line from how many are done and the minutes left."""
    terminal = sys.stderr.isatty()
    before, started = done, time.monotonic()
    last_line = started
    options = {"total": total, "initial": done, "desc": label, "disable": not terminal, "file": sys.stderr}
    with tqdm(**options, **bar_options) as bar:
        for item in items:
            grown = size(item, bar)
            done += grown
            bar.update(grown)
            now = time.monotonic()
            if not terminal and now - last_line >= LINE_SECONDS:
                left = (now - started) / max(done - before, 1) * ((total or done) - done)
                print(f"{label}: {line(done, left / 60)}", file=sys.stderr)
                last_line = now
            yield item


def _summary(counts: Counter[Item]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items(), key=str))
