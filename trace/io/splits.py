"""Split files of DomainNet's layout: one ``path label`` a line, paths relative to the folder of the file."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from .errors import ToolError


class Entry(NamedTuple):
    """One line of a split file."""

    path: str
    """Relative to the folder of the split file."""
    label: int


def read_split(path: Path) -> list[Entry]:
    """The entries of a split file; paths may hold spaces, blank lines and Windows' line ends do not matter.

    Raises:
        ToolError: with file and line number, where a line is no ``path label``, or contradicts an earlier one.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not UTF-8 text ({error.reason}): a split file has `path label` lines") from error
    labels: dict[str, int] = {}
    entries = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            entry = _entry(line.strip(), f"{path}, line {number}")
            if labels.setdefault(entry.path, entry.label) != entry.label:
                raise ToolError(
                    f"{path}, line {number}: {entry.path} has label {labels[entry.path]} above and {entry.label} here: "
                    "remove one of the lines"
                )
            entries.append(entry)
    return entries


def _entry(line: str, where: str) -> Entry:
    path, _, label = line.replace("\t", " ").rpartition(" ")
    path = path.strip()
    if not (label.isascii() and label.isdigit()):
        raise ToolError(f"{where}: {label!r} is no label: a line is `path label`, and labels count from 0")
    if not path:
        raise ToolError(f"{where}: there is no path before label {label}: a line is `path label`")
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ToolError(f"{where}: {path} leaves the data folder: give it relative to the folder of the split file")
    return Entry(path, int(label))
