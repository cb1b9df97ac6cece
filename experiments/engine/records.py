"""Records: finished runs as JSON lines, written atomically, with where they came from."""

import functools
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from trace.io.writing import strict_json, write_atomically

from .errors import MissingFileError, MissingRecordsError, UserError

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ROOT / "results" / "records"
PROFILE = "cpu"
"""Whose records the committed results and the README show."""
PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "POT", "geomloss")

Record = dict[str, Any]
Maker = TypeVar("Maker")
"""What makes a table, a figure or a finding from records."""


@functools.cache
def provenance() -> Record:
    """Commit, whether the code differs from it (new files too), package versions, the machine; once a process."""
    changes = git("status", "--porcelain", "--untracked-files=normal", "--", "trace", "experiments")
    return {
        "git_commit": git("rev-parse", "HEAD"),
        "git_dirty": None if changes is None else bool(changes),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count()},
    }


def run_id(experiment: str, config: Record) -> str:
    """Hash of everything that decides a run's result."""
    return hashlib.sha256(json.dumps([experiment, config], sort_keys=True).encode()).hexdigest()[:12]


def write_record(record: Record, path: Path) -> None:
    """Store a record in a JSON-lines file, in place of the earlier one of its profile."""
    kept = [r for r in read_records(path) if r["profile"] != record["profile"]] if path.exists() else []
    write_records([*kept, record], path)


def write_records(records: list[Record], path: Path) -> None:
    """All records of an experiment, one a line, sorted by their configs: no table depends on how ids come out."""
    ordered = sorted(records, key=lambda record: (json.dumps(record.get("config"), sort_keys=True), record["run_id"]))
    lines = [strict_json(record, indent=None, sort_keys=True) for record in ordered]
    write_atomically(path, "\n".join(lines) + "\n")


def read_records(path: Path) -> list[Record]:
    """All records of a JSON-lines file."""
    if not path.exists():
        raise MissingFileError(f"{path} does not exist: run the experiment that writes it first")
    return parse_records(path.read_text(encoding="utf-8"), str(path))


def parse_records(text: str, name: str) -> list[Record]:
    """The records of JSON lines; ``name`` stands in the error about a line that is none."""
    records = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError as error:
            raise UserError(f"{name}, line {number}, is not a record ({error}): restore the file from git") from error
    return records


def of_profile(records: list[Record], profile: str, *, name: str = "") -> list[Record]:
    """The records of one profile, so that a smoke test never enters a table; ``name`` is that of their file.

    Raises:
        MissingRecordsError: where there are none.
    """
    if not (found := [record for record in records if record["profile"] == profile]):
        known = ", ".join(sorted({str(record["profile"]) for record in records})) or "none"
        place = f" in {name}" if name else ""
        raise MissingRecordsError(
            f"no records of profile {profile!r}{place} (there are: {known}): name one with --profile"
        )
    return found


def with_records(
    makers: Mapping[str, tuple[str, Maker]], folder: Path, profile: str
) -> Iterator[tuple[str, list[Record], Maker]]:
    """Name, records and maker of everything whose experiment has records of a profile; the rest is named on stdout.

    Raises:
        UserError: where there are no records of the profile at all.
    """
    missing: dict[str, UserError] = {}
    stored: dict[str, list[Record]] = {}
    for experiment in dict.fromkeys(experiment for experiment, _ in makers.values()):
        path = folder / f"{experiment}.jsonl"
        try:
            stored[experiment] = of_profile(read_records(path), profile, name=path.name)
        except (MissingFileError, MissingRecordsError) as error:
            missing[experiment] = error
    if missing and not stored:
        raise max(missing.values(), key=lambda error: isinstance(error, MissingRecordsError))
    for name, (experiment, maker) in makers.items():
        if experiment in stored:
            yield name, stored[experiment], maker
        else:
            print(f"{name} is missing: {missing[experiment]}")


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
