"""Sheets of rows to label: a CSV of one row each, with an empty column for the label and what helps to find it."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..escaping import cell_text
from .errors import UserError
from .writing import read_text

HEADER = ("id", "label", "prediction", "new_prediction")
"""Then follow the inputs."""
UNKNOWN = "?"
"""In place of a label where nobody can say."""


def sheet_text(rows: Iterable[Sequence[str]], columns: Sequence[str] = ()) -> str:
    """A sheet of rows: id, prediction of the old model, of the new one, and inputs, which are called ``columns``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*HEADER, *map(cell_text, columns)])
    for identity, *others in rows:
        writer.writerow([cell_text(identity), "", *map(cell_text, others)])
    return text.getvalue()


def read_sheet(path: Path) -> dict[str, str]:
    """Labels by id, as they are written; rows without one are left out. A spreadsheet may have put semicolons.

    Raises:
        UserError: where it is no sheet, or a row stands there twice with two labels.
    """
    text = read_text(path)
    first = text.partition("\n")[0]
    try:
        lines = list(csv.reader(io.StringIO(text), delimiter=";" if first.count(";") > first.count(",") else ","))
    except csv.Error as error:
        raise UserError(f"{path} is no readable table ({error}): save it as CSV") from error
    header = [name.strip() for name in lines[0]] if lines else []
    if not {"id", "label"} <= set(header):
        raise UserError(f"{path} has no columns id and label, as a sheet has: name another with --sheet")
    identity, label = header.index("id"), header.index("label")
    found: dict[str, str] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in line):
            continue
        if len(line) <= max(identity, label):
            raise UserError(f"{path}, line {number} ends before its label: save it again as CSV")
        name, said = line[identity].strip(), line[label].strip()
        if said and found.setdefault(name, said) != said:
            raise UserError(f"{path} labels {name} both {found[name]} and {said}: keep one of them")
    return found
