"""Records: finished runs as JSON lines, written atomically, with where they came from."""

import functools
import hashlib
import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trace.io.writing import strict_json, write_atomically

from .errors import MissingFileError, MissingRecordsError, UserError

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "results" / "records"
SUBMITTED = "submitted.json"
"""Of a copy of the code that a queued job runs: where it is from."""
PROFILE = "cpu"
"""Whose records the committed results and the README show."""
TRIALS = ("smoke",)
"""Profiles that are no part of the results."""
_RESTORE = "restore the file from git, or `collect` again"
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "POT", "geomloss")

Record = dict[str, Any]


@functools.cache
def provenance() -> Record:
    """Commit, whether the code differs from it (new files too), package versions, the machine; once a process.

    A queued job runs a copy of the code (`experiments.engine.submitted`), which says where it is from and its digest.
    """
    return {
        **{key: value for key, value in (_submitted() or _of_git()).items() if key != "root"},
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
    }


def _of_git() -> Record:
    changes = git("status", "--porcelain", "--untracked-files=normal", "--", "trace", "experiments")
    return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": None if changes is None else bool(changes)}


def _submitted() -> Record | None:
    path = ROOT / SUBMITTED
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def origin() -> Path:
    """The tree that the code is from: itself, or for a copy that was submitted the one that was copied."""
    return Path((_submitted() or {}).get("root", ROOT))


def run_id(experiment: str, config: Record) -> str:
    """Hash of everything that decides a run's result."""
    return hashlib.sha256(json.dumps([experiment, config], sort_keys=True).encode()).hexdigest()[:12]


def write_records(records: list[Record], path: Path) -> None:
    """All records of an experiment, one a line, sorted by their configs: no table depends on how ids come out."""
    ordered = sorted(records, key=lambda record: (json.dumps(record.get("config"), sort_keys=True), record["run_id"]))
    lines = [strict_json(record, indent=None, sort_keys=True) for record in ordered]
    write_atomically(path, "\n".join(lines) + "\n")


def read_records(path: Path) -> list[Record]:
    """All records of a JSON-lines file."""
    if not path.exists():
        raise MissingFileError(f"{path} does not exist: run the experiment that writes it first")
    return parse_records(text_of_records(path), str(path))


def text_of_records(path: Path) -> str:
    """A file of records as text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text ({error}): {_RESTORE}") from error


def parse_records(text: str, name: str) -> list[Record]:
    """The records of JSON lines, each run once; ``name`` stands in the error about a line that is none."""
    lines: dict[str, int] = {}
    records = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name}, line {number}, is not a record ({error}): {_RESTORE}") from error
        if not isinstance(record, dict) or not isinstance(record.get("run_id"), str):
            raise UserError(f"{name}, line {number}, is not a record (it has no run_id): {_RESTORE}")
        if (before := lines.setdefault(record["run_id"], number)) != number:
            raise UserError(f"{name}, line {number}, is run {record['run_id']} of line {before} again: {_RESTORE}")
        records.append(record)
    return records


def of_profile(records: list[Record], profile: str, *, name: str = "") -> list[Record]:
    """The records of one profile, so that a smoke test never enters a table; ``name`` is that of their file.

    Raises:
        MissingRecordsError: where there are none.
    """
    if not (found := [record for record in records if record.get("profile") == profile]):
        known = ", ".join(sorted({str(record.get("profile")) for record in records})) or "none"
        place = f" in {name}" if name else ""
        raise MissingRecordsError(
            f"no records of profile {profile!r}{place} (there are: {known}): name one with --profile"
        )
    return found


def significant(value: Any, digits: int) -> Any:
    """Floats with so many significant digits, also inside lists and mappings; whole ones stay short in JSON.

    >>> significant({"a": [1 / 3, 2.0, 7]}, 4)
    {'a': [0.3333, 2, 7]}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: significant(entry, digits) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [significant(entry, digits) for entry in value]
    if not isinstance(value, float):
        return value
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() else rounded


def git(*arguments: str) -> str | None:
    """What git prints; None where it is missing or refuses."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
