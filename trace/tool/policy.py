"""What a gate is told by files: a policy, past updates with known outcomes, and thresholds calibrated on them.

A policy is a YAML file:

    score: anchor_disagreement      # what is compared with the threshold; see `gate --help`
    threshold: 0.05                 # accept at or below; or, instead of a number,
    max_harmful_accepted: 0.1       # calibrate it on past updates, so that a harmful one passes this seldom,
    past: past.csv                  #   with name, score and risk_change of each (CSV or JSON lines),
    harm_above: 0.02                #   where a rise of the anchor's risk beyond this is harm,
    guarantee: conditional          #   in this sense (conditional, joint, or pac with a delta; see `calibrate`)
    calibration: calibration.json   # or take it from a file of `calibrate --out`
    confidence: 0.95                # of all intervals together
    min_source: 100                 # fewer samples decide nothing
    min_target: 100
    anchors: [photos, maps]         # must be there

Only a threshold, or past with max_harmful_accepted, or a calibration is needed. Paths are relative to the policy.
"""

import csv
import difflib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..gate.policy import Policy
from ..io.errors import UserError, explain, require
from ..io.writing import read_json, read_text
from ..scores import GATE_SCORES
from ..stats.conformal import GUARANTEES, PastUpdate, ThresholdCalibration, calibrate_threshold

CALIBRATION = "trace-calibration/1"
"""Format of what `calibrate --out` writes."""

_COLUMNS = PastUpdate._fields
_NUMBERS = ("threshold", "max_harmful_accepted", "harm_above", "confidence", "delta")
_COUNTS = ("min_source", "min_target")
_WORDS = ("score", "past", "guarantee", "calibration")
_KEYS = (*_NUMBERS, *_COUNTS, *_WORDS, "anchors")
_OF_CALIBRATION = ("max_harmful_accepted", "harm_above", "guarantee", "delta")


class LoadedPolicy(NamedTuple):
    """A policy with its threshold, and the past updates that gave it, if any."""

    policy: Policy
    past: tuple[PastUpdate, ...]
    harm_above: float = 0.0
    """The rise of the risk that was still no harm in the past."""


def load_policy(path: str) -> LoadedPolicy:
    """Read a policy; a threshold that is not given is calibrated, or taken from a calibration.

    Raises:
        UserError: for unknown keys, values of the wrong kind or out of range, more or less than one source of a
            threshold, and too few past updates.
    """
    file = Path(path)
    yaml = require("yaml", purpose="a policy")
    text = read_text(file)
    try:
        keys = yaml.safe_load(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise UserError(f"{path} is not YAML ({problem}): write one `key: value` a line") from error
    if not isinstance(keys, dict):
        raise UserError(f"{path} holds no keys: give it at least a threshold")
    listed = [str(key.value) for key, _ in node.value]
    if twice := next((key for key in listed if listed.count(key) > 1), ""):
        raise UserError(f"{path} has the key {twice!r} twice: keep one of them")
    _check(keys, path)
    options = {key: keys[key] for key in ("score", "confidence", *_COUNTS) if key in keys}
    anchors = tuple(keys.get("anchors", ()))
    try:
        threshold, promise, past, harm_above = _threshold(keys, file)
        policy = Policy(threshold, **options, anchors=anchors, promise=promise)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    return LoadedPolicy(policy, past, harm_above)


def _threshold(keys: dict[str, Any], file: Path) -> tuple[float, str, tuple[PastUpdate, ...], float]:
    """The threshold, what it promises, the updates behind it, and what counts as harm in them."""
    given = [key for key in ("threshold", "past", "calibration") if key in keys]
    if len(given) != 1:
        raise UserError(
            f"{file} has {' and '.join(given) or 'no threshold'}: give one of threshold, past (with "
            "max_harmful_accepted) and calibration"
        )
    superfluous = [key for key in _OF_CALIBRATION if key in keys] if given != ["past"] else []
    if superfluous:
        raise UserError(f"{file} has {', '.join(superfluous)}, which only past uses: take it out, or give past")
    if given == ["threshold"]:
        return float(keys["threshold"]), "", (), 0.0
    if given == ["past"]:
        if "max_harmful_accepted" not in keys:
            raise UserError(f"{file} has past but no max_harmful_accepted: say how often a harmful update may pass")
        past = tuple(read_past(file.parent / keys["past"]))
        found = calibrate_threshold(past, **{key: keys[key] for key in _OF_CALIBRATION if key in keys})
        return found.threshold, found.in_words(), past, found.harm_above
    stored = read_calibration(file.parent / keys["calibration"])
    score = keys.get("score", Policy.score)
    if stored.score and stored.score != score:
        raise UserError(f"{file} is about {score}, but its calibration about {stored.score}: use one score for both")
    return stored.calibration.threshold, stored.calibration.in_words(), stored.past, stored.calibration.harm_above


def _check(keys: dict[str, Any], path: str) -> None:
    for key, value in keys.items():
        if key not in _KEYS:
            near = difflib.get_close_matches(str(key), _KEYS, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(_KEYS)}"
            raise UserError(f"{path} has the unknown key {key!r}: {remedy}")
        if key in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(f"{path}: {key} must be a number such as 0.05, got {value!r}")
        if key in _COUNTS and (isinstance(value, bool) or not isinstance(value, int)):
            raise UserError(f"{path}: {key} must be a whole number, got {value!r}")
        if key in _WORDS and not isinstance(value, str):
            raise UserError(f"{path}: {key} must be text, got {value!r}")
    for key, allowed in (("score", tuple(GATE_SCORES)), ("guarantee", GUARANTEES)):
        if key in keys and keys[key] not in allowed:
            near = difflib.get_close_matches(keys[key], allowed, n=1, cutoff=0.5)
            remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(allowed)}"
            raise UserError(f"{path}: {key} {keys[key]!r} is not known: {remedy}")
    anchors = keys.get("anchors", [])
    if not (isinstance(anchors, list) and all(isinstance(name, str) for name in anchors)):
        raise UserError(f"{path}: anchors must be a list of names such as [photos, maps], got {anchors!r}")


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
        "format": CALIBRATION,
        "score": stored.score,
        **stored.calibration._asdict(),
        "power": stored.calibration.power,
        "promise": stored.calibration.in_words(),
        "past": [update._asdict() for update in stored.past],
    }


def read_calibration(path: Path) -> StoredCalibration:
    """What `calibration_record` made."""
    record = read_json(path, CALIBRATION, "calibrate --out")
    with explain(f"{path} is not complete", "make it again with calibrate --out", KeyError, TypeError, ValueError):
        calibration = ThresholdCalibration(**{key: record[key] for key in ThresholdCalibration._fields})
        calibration.in_words()
        past = tuple(PastUpdate(u["name"], float(u["score"]), float(u["risk_change"])) for u in record["past"])
        return StoredCalibration(calibration._replace(threshold=float(calibration.threshold)), record["score"], past)


def _csv_rows(text: str, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text))
    if absent := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
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
        if absent := [name for name in _COLUMNS if not isinstance(row, dict) or name not in row]:
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
