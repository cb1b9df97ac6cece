"""What a gate is told by files: a policy, past updates with known outcomes, and thresholds calibrated on them.

A policy is a YAML file:

    score: anchor_disagreement      # what is compared with the threshold; see `gate --help`
    threshold: 0.05                 # accept at or below; or, instead of a number,
    max_harmful_accepted: 0.1       # calibrate it on past updates, so that a harmful one passes this seldom,
    past: past.csv                  #   with name, score and risk_change of each (CSV or JSON lines),
    harm_above: 0.02                #   where a rise of the anchor's risk beyond this is harm,
    guarantee: conditional          #   in this sense (conditional, joint, or pac with a delta; see `calibrate`)
    calibration: calibration.json   # or take it from a file of `calibrate --out`
    confidence: 0.95                # of all intervals that decide, together
    min_source: 100                 # fewer samples decide nothing
    min_target: 100
    anchors: [photos, maps]         # must be there
    labels: decide                  # labels may overrule scores that cannot tell harm from help (guard: they may not)
    looks: 1                        # how often fresh rows may be drawn to ask again

In place of score and threshold, any number of rules:

    rules:
      - {score: error_change, limit: 0.02, unlabelled: anchor_disagreement}
      - {score: recall_drop, limit: 0.1, anchor: photos}
      - {score: trace_w, limit: 5.0, role: advisory}

A required rule decides, an advisory one is shown; `unlabelled` stands in on anchors without labels. A policy without
threshold, past, calibration and rules has the default ones, on the mean and on the worst class. Paths are relative to
the policy.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..gate.policy import LABELS, Policy, Rule
from ..io.core_yaml import parse_yaml
from ..io.errors import UserError, explain, suggestion
from ..io.opened import read_bytes
from ..io.writing import parse_json, read_json, read_text, text_of
from ..scores import GATE_SCORES
from ..stats.conformal import GUARANTEES, PastUpdate, ThresholdCalibration, calibrate_threshold

CALIBRATION = "trace-calibration/1"
"""Format of what `calibrate --out` writes."""

MOST_POLICY = 64 * 2**10

_COLUMNS = PastUpdate._fields
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(
        ("threshold", "max_harmful_accepted", "harm_above", "confidence", "delta"),
        ((int, float), "a number such as 0.05"),
    ),
    **dict.fromkeys(("min_source", "min_target", "looks"), ((int,), "a whole number")),
    **dict.fromkeys(("score", "past", "guarantee", "calibration", "labels"), ((str,), "text")),
    "anchors": ((list,), "a list of names such as [photos, maps]"),
    "rules": ((list,), "a list such as [{score: error_change, limit: 0.02}]"),
    "files": ((dict,), "SHA-256 by name, such as {model: 3b1f...}"),
}
"""What every key of a policy may hold, and that in words."""
_OF_RULE: dict[str, tuple[tuple[type, ...], str]] = {
    "limit": ((int, float), "a number such as 0.05"),
    **dict.fromkeys(("score", "unlabelled", "anchor", "role"), ((str,), "text")),
}
"""The same for a rule."""
_ROLES = ("required", "advisory")
_OF_CALIBRATION = ("max_harmful_accepted", "harm_above", "guarantee", "delta")


class LoadedPolicy(NamedTuple):
    """A policy with its threshold, and the past updates that gave it, if any."""

    policy: Policy
    past: tuple[PastUpdate, ...]
    harm_above: float = 0.0
    """The rise of the risk that was still no harm in the past."""
    files: Mapping[str, str] = MappingProxyType({})
    """SHA-256 of files that must be the diagnosed ones."""
    sha256: str = ""
    """Of the policy itself."""
    read: tuple[Path, ...] = ()
    """Files that it names."""


def load_policy(path: str) -> LoadedPolicy:
    """Read a policy; a threshold that is not given is calibrated, or taken from a calibration.

    Raises:
        UserError: for unknown keys, values of the wrong kind or out of range, more or less than one source of a
            threshold, and too few past updates.
    """
    file = Path(path)
    read = read_bytes(file, most=MOST_POLICY)
    keys = parse_yaml(text_of(read), path, "write one `key: value` a line")
    if not isinstance(keys, dict):
        raise UserError(f"{path} holds no keys: give it at least a threshold, or rules")
    _check(keys, path)
    plain = ("score", "confidence", "min_source", "min_target", "labels", "looks")
    options = {key: keys[key] for key in plain if key in keys}
    anchors = tuple(keys.get("anchors", ()))
    try:
        threshold, promise, past, harm_above = _threshold(keys, file)
        rules = tuple(_rule(entry, number, path) for number, entry in enumerate(keys.get("rules", ()), start=1))
        policy = Policy(threshold, **options, anchors=anchors, promise=promise, rules=rules)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    named = tuple(file.parent / keys[key] for key in ("past", "calibration") if key in keys)
    return LoadedPolicy(policy, past, harm_above, keys.get("files", {}), read.sha256, named)


def _rule(entry: Any, number: int, path: str) -> Rule:
    """One entry of ``rules``."""
    where = f"{path}, rule {number}"
    if not isinstance(entry, dict) or not {"score", "limit"} <= set(entry):
        raise UserError(f"{where} needs a score and a limit, such as {{score: error_change, limit: 0.02}}")
    _check_keys(entry, _OF_RULE, where)
    _check_choice(entry, "role", _ROLES, where)
    try:
        return Rule(
            entry["score"],
            float(entry["limit"]),
            anchor=entry.get("anchor", ""),
            required=entry.get("role", "required") == "required",
            unlabelled=entry.get("unlabelled", ""),
        )
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def _threshold(keys: dict[str, Any], file: Path) -> tuple[float | None, str, tuple[PastUpdate, ...], float]:
    """The threshold if there is one, what it promises, the updates behind it, and what counts as harm in them."""
    given = [key for key in ("threshold", "past", "calibration", "rules") if key in keys]
    if len(given) > 1 or (not given and "score" in keys):
        raise UserError(
            f"{file} has {' and '.join(given) or 'no threshold'}: give one of threshold, past (with "
            "max_harmful_accepted), calibration and rules"
        )
    superfluous = [key for key in _OF_CALIBRATION if key in keys] if given != ["past"] else []
    if superfluous:
        raise UserError(f"{file} has {', '.join(superfluous)}, which only past uses: take it out, or give past")
    if given in ([], ["rules"]):
        return None, "", (), 0.0
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
    _check_keys(keys, _KINDS, path)
    files = keys.get("files", {})
    for key, texts in (("anchors", keys.get("anchors", ())), ("files", [*files, *files.values()])):
        if not all(isinstance(text, str) for text in texts):
            raise UserError(f"{path}: {key} must be {_KINDS[key][1]}, got {keys[key]!r}")
    for key, allowed in (("score", tuple(GATE_SCORES)), ("guarantee", GUARANTEES), ("labels", LABELS)):
        _check_choice(keys, key, allowed, path)


def _check_keys(keys: dict[str, Any], kinds: Mapping[str, tuple[tuple[type, ...], str]], path: str) -> None:
    """Known keys, each with a value of its kind."""
    for key, value in keys.items():
        if key not in kinds:
            remedy = suggestion(str(key), kinds, f"known are {', '.join(kinds)}", cutoff=0.5)
            raise UserError(f"{path} has the unknown key {key!r}: {remedy}")
        types, wanted = kinds[key]
        if not isinstance(value, types) or isinstance(value, bool):
            raise UserError(f"{path}: {key} must be {wanted}, got {value!r}")


def _check_choice(keys: dict[str, Any], key: str, allowed: Sequence[str], path: str) -> None:
    if key in keys and keys[key] not in allowed:
        remedy = suggestion(keys[key], allowed, f"use one of {', '.join(allowed)}", cutoff=0.5)
        raise UserError(f"{path}: {key} {keys[key]!r} is not known: {remedy}")


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
    damage = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
    with explain(f"{path} is not complete", "make it again with calibrate --out", *damage):
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
        row = parse_json(line, f"{where},", "write one object a line")
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
