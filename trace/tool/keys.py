"""Labels by key, row after row, in a terminal."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from ..escaping import one_line
from ..io.errors import UserError
from ..io.sheets import UNKNOWN

STOP = "q"
TYPE = "t"
DIGITS = 9
"""Most classes that have a digit each."""


def check_terminal() -> None:
    """Refuse to ask where nobody could press a key."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--interactive takes keys and needs a terminal: leave it out, and fill in the sheet")


def choices(classes: Sequence[str], predictions: tuple[str, str]) -> dict[str, str]:
    """What each key stands for: digits for a few classes, ``o`` and ``n`` for the two predictions."""
    keys = {"o": predictions[0], "n": predictions[1]}
    if len(classes) <= DIGITS:
        keys |= {str(i): name for i, name in enumerate(classes, start=1)}
    return keys


def ask(shown: Sequence[str], keys: Mapping[str, str], parse: Callable[[str], object]) -> str | None:
    """The label that a key stands for, or that is typed after ``t``; None to stop.

    Args:
        shown: lines that describe the row.
        parse: raises UserError for a label that cannot be; it is then asked for again.
    """
    said = ", ".join(f"{key} {label}" for key, label in keys.items())
    lines = [*shown, f"  {said}, {TYPE} type it, {UNKNOWN} nobody can say, {STOP} stop"]
    print("\n".join(map(one_line, lines)), flush=True)
    while True:
        key = _key()
        if key in (STOP, "", "\x04"):
            return None
        if key == UNKNOWN:
            return UNKNOWN
        label = keys.get(key)
        if key == TYPE:
            label = input("label: ").strip()
        if not label:
            continue
        try:
            parse(label)
        except UserError as error:
            print(one_line(str(error)), flush=True)
            continue
        return label


def _key() -> str:
    """One key, without waiting for the line to end; the terminal is left as it was."""
    try:
        import termios
        import tty
    except ImportError as error:
        raise UserError("keys are read on Unix terminals alone: leave out --interactive, and use the sheet") from error
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSANOW)
        return os.read(terminal, 1).decode("ascii", "replace")
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
