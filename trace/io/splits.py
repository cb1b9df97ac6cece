"""Split files of DomainNet's layout: one ``path label`` a line, paths relative to the folder of the file."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from .errors import MissingFileError, UserError
from .opened import MOST_TEXT, read_bytes
from .writing import text_of


class SplitEntry(NamedTuple):
    """One line of a split file."""

    path: str
    """Relative to the folder of the split file."""
    label: int


def read_split(path: Path) -> list[SplitEntry]:
    """The entries of a split file; paths may hold spaces, blank lines and Windows' line ends do not matter.

    Raises:
        MissingFileError: where there is none.
        UserError: with file and line number, where a line is no ``path label``, or contradicts an earlier one.
    """
    try:
        text = text_of(read_bytes(path, most=MOST_TEXT))
    except MissingFileError as error:
        raise MissingFileError(
            f"{path} does not exist: the folder needs DOMAIN_train.txt and DOMAIN_test.txt with `path label` lines"
        ) from error
    labels: dict[str, int] = {}
    entries = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            entry = _entry(line.strip(), f"{path}, line {number}")
            if labels.setdefault(entry.path, entry.label) != entry.label:
                raise UserError(
                    f"{path}, line {number}: {entry.path} has label {labels[entry.path]} above and {entry.label} here: "
                    "remove one of the lines"
                )
            entries.append(entry)
    return entries


def split_text(entries: Iterable[SplitEntry]) -> str:
    """What `read_split` reads."""
    return "".join(f"{entry.path} {entry.label}\n" for entry in entries)


def _entry(line: str, where: str) -> SplitEntry:
    path, _, label = line.replace("\t", " ").rpartition(" ")
    path = path.strip()
    if not (label.isascii() and label.isdigit() and len(label) <= 18):
        raise UserError(f"{where}: {label!r} is no label: a line is `path label`, and labels count from 0")
    if not path:
        raise UserError(f"{where}: there is no path before label {label}: a line is `path label`")
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise UserError(f"{where}: {path} leaves the data folder: give it relative to the folder of the split file")
    return SplitEntry(path, int(label))
