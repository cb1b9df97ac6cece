"""What a file of records must hold: beside ``EXPERIMENT.jsonl`` stands ``EXPERIMENT.manifest.json``.

It lists the ids of every run that the grids ask for, by variant and profile, with the number of records and a digest of
their lines. What is made from records looks at it first: a file that has changed is refused, one that lacks runs is
refused or, where that was asked for, marked.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from trace.io.writing import write_atomically

from .errors import MissingFileError, MissingRecordsError, UserError
from .records import TRIALS, Record, of_profile, read_records, text_of_records, write_records
from .registry import Entry

Maker = TypeVar("Maker", bound=Callable[..., object])
"""What makes a table or a figure from records."""


class VariantGrid(NamedTuple):
    """All runs that a variant asks for."""

    profile: str
    ids: list[str]


class Ingredients(NamedTuple, Generic[Maker]):
    """Of a table or figure."""

    name: str
    records: list[Record]
    maker: Maker
    note: str
    """What its caption has to say about runs that are missing; empty where none is."""


def add_incomplete(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--incomplete", action="store_true", help="go on where runs of a grid are missing, and say so in what is made"
    )


def manifest_path(path: Path) -> Path:
    """Of a file of records."""
    return path.with_suffix(".manifest.json")


def write_manifest(path: Path, grids: Mapping[str, VariantGrid]) -> None:
    """Describe a file of records that was just written."""
    text = path.read_text(encoding="utf-8")
    said = {
        "experiment": path.stem,
        "count": len(text.splitlines()),
        "digest": _digest(text),
        "grids": {variant: {"profile": grid.profile, "ids": sorted(grid.ids)} for variant, grid in grids.items()},
    }
    write_atomically(manifest_path(path), json.dumps(said, indent=1, sort_keys=True) + "\n")


def write_record(record: Record, path: Path) -> None:
    """Store a record that belongs to no grid, in place of the earlier one of its profile."""
    kept = [r for r in read_records(path) if r["profile"] != record["profile"]] if path.exists() else []
    write_records([*kept, record], path)
    write_manifest(path, grids_of_itself([*kept, record]))


def grids_of_itself(records: list[Record]) -> dict[str, VariantGrid]:
    """Of records that belong to no grid of a config: what is there, by profile."""
    profiles = sorted({str(record.get("profile", "")) for record in records})
    return {
        profile: VariantGrid(profile, [r["run_id"] for r in records if str(r.get("profile", "")) == profile])
        for profile in profiles
    }


def shortfall(path: Path, profiles: Collection[str], *, incomplete: bool) -> str:
    """Nothing where all runs of these profiles are there; otherwise what is missing, as a sentence for a caption.

    Raises:
        UserError: where runs are missing and that was not allowed for, or the file is not what its manifest describes.
    """
    grids = read_grids(path)
    if grids is None:
        lack, remedy = f"{path.name} has no manifest to be compared with", "`collect` writes one"
    else:
        there = {record["run_id"] for record in read_records(path)}
        lacking = {
            variant: (len(there & set(grid.ids)), len(set(grid.ids)))
            for variant, grid in grids.items()
            if grid.profile in profiles and not set(grid.ids) <= there
        }
        if not lacking:
            return ""
        held = [f"{found} of the {asked} runs of config={variant}" for variant, (found, asked) in lacking.items()]
        lack = f"{path.name} holds {' and '.join(held)}"
        calls = " and ".join(f"`python -m experiments run {path.stem} config={variant}`" for variant in lacking)
        remedy = f"{calls} computes the others, then `collect`"
    if incomplete:
        return f" Incomplete: {lack}."
    raise UserError(f"{lack}: {remedy}; --incomplete goes on with what is there, and marks what is made")


def with_records(
    makers: Mapping[str, Entry[Maker]], folder: Path, profile: str, *, incomplete: bool = False
) -> Iterator[Ingredients[Maker]]:
    """Everything whose experiment has records of a profile, or of any if it goes across; the rest is named on stdout.

    Raises:
        UserError: where there are no records of the profile at all, or not all that a grid asks for.
    """
    missing: dict[str, UserError] = {}
    stored: dict[tuple[str, bool], tuple[list[Record], str]] = {}
    for experiment, across in dict.fromkeys((entry.experiment, entry.across) for entry in makers.values()):
        path = folder / f"{experiment}.jsonl"
        try:
            records = read_records(path)
            shown = of_profile(records, profile, name=path.name)
            if across:
                shown = [r for r in records if r["profile"] == profile or r["profile"] not in TRIALS]
        except (MissingFileError, MissingRecordsError) as error:
            missing[experiment] = error
        else:
            profiles = {str(record["profile"]) for record in shown}
            stored[experiment, across] = shown, shortfall(path, profiles, incomplete=incomplete)
    if missing and not stored:
        raise max(missing.values(), key=lambda error: isinstance(error, MissingRecordsError))
    for name, (experiment, maker, across) in makers.items():
        if found := stored.get((experiment, across)):
            yield Ingredients(name, found[0], maker, found[1])
        else:
            print(f"{name} is missing: {missing[experiment]}")


def read_grids(path: Path) -> dict[str, VariantGrid] | None:
    """The grids of a manifest whose file has not changed since; None without a manifest."""
    manifest = manifest_path(path)
    if not manifest.exists():
        return None
    text = text_of_records(path)
    try:
        said = json.loads(manifest.read_text(encoding="utf-8"))
        grids = {
            variant: VariantGrid(str(grid["profile"]), [str(name) for name in grid["ids"]])
            for variant, grid in said["grids"].items()
        }
        count, digest = said["count"], said["digest"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{manifest} is not a manifest ({error!r}): restore it from git, or `collect` again") from error
    if digest != _digest(text):
        raise UserError(
            f"{path} is not what {manifest.name} describes ({len(text.splitlines())} lines, {count} there): restore "
            "both from git, or `collect` again"
        )
    return grids


def _digest(text: str) -> str:
    """Of the lines, however they end."""
    return hashlib.sha256("\n".join(text.splitlines()).encode()).hexdigest()
