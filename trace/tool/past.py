"""Past updates with known outcomes, and thresholds calibrated on them, as files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..io.errors import UserError, first_line
from ..io.text import read_json, read_text
from ..stats.conformal import PastUpdate, ThresholdCalibration

FORMAT = "trace-calibration/1"
_COLUMNS = PastUpdate._fields


class StoredCalibration(NamedTuple):
    """A calibration file: the threshold, the score it is for (empty if not said) and the updates behind it."""

    calibration: ThresholdCalibration
    score: str
    past: tuple[PastUpdate, ...]


def read_past(path: Path) -> list[PastUpdate]:
    """Past updates from CSV with a header, or from JSON lines (``.jsonl``): name, score, risk_change; more is ignored.

    Raises:
        UserError: for a file that cannot be read, a missing column, or a value that is no number; with the line.
    """
    text = read_text(path)
    rows = _json_lines(text, path) if path.suffix == ".jsonl" else _csv_rows(text, path)
    found = [PastUpdate(str(row["name"]), *(_number(row, key, where) for key in _COLUMNS[1:])) for where, row in rows]
    if not found:
        raise UserError(f"{path} holds no past update: give it one row each, with {', '.join(_COLUMNS)}")
    return found


def calibration_record(stored: StoredCalibration) -> dict[str, Any]:
    """What a calibration file holds."""
    return {
        "format": FORMAT,
        "score": stored.score,
        **stored.calibration._asdict(),
        "power": stored.calibration.power,
        "promise": stored.calibration.in_words(),
        "past": [update._asdict() for update in stored.past],
    }


def read_calibration(path: Path) -> StoredCalibration:
    """What `calibration_record` made."""
    record = read_json(path, FORMAT, "calibrate --out")
    try:
        calibration = ThresholdCalibration(**{key: record[key] for key in ThresholdCalibration._fields})
        calibration.in_words()
        past = tuple(PastUpdate(u["name"], float(u["score"]), float(u["risk_change"])) for u in record["past"])
        return StoredCalibration(calibration._replace(threshold=float(calibration.threshold)), record["score"], past)
    except (KeyError, TypeError, ValueError) as error:
        again = "make it again with calibrate --out"
        raise UserError(f"{path} is not complete ({first_line(error)}): {again}") from error


def _csv_rows(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text))
    absent = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if absent:
        raise UserError(f"{path} has no column {', '.join(absent)}: its header needs {', '.join(_COLUMNS)}")
    for row in reader:
        yield f"{path}, line {reader.line_num}", row


def _json_lines(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}, is not JSON ({error}): write one object a line") from error
        absent = [name for name in _COLUMNS if not isinstance(row, dict) or name not in row]
        if absent:
            raise UserError(f"{where}, has no {', '.join(absent)}: every update needs {', '.join(_COLUMNS)}")
        yield where, row


def _number(row: dict[str, Any], key: str, where: str) -> float:
    value = row[key]
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: {key} is {value!r}, not a number: mend it or leave the update out") from error
