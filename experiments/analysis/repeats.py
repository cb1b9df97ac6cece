"""Refuse records that a table would mix: two settings under what it takes for one run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..engine.errors import UserError
from ..engine.records import Record

MACHINE = ("device", "workers")
"""Keys of a config that decide how fast a run is, not what it finds."""


def one_setting(experiment: str, runs: Iterable[tuple[dict[str, Any], Record]]) -> None:
    """Each run as what a table knows it by, and its config.

    Raises:
        UserError: where two have the same name, with the keys that differ.
    """
    seen: dict[tuple[Any, ...], Record] = {}
    for about, config in runs:
        key = tuple(about.values())
        if key in seen:
            _refuse(experiment, about, seen[key], config)
        seen[key] = config


def _refuse(experiment: str, about: dict[str, Any], first: Record, second: Record) -> None:
    named = ", ".join(f"{name} {value}" for name, value in about.items())
    keys = [name for name in dict.fromkeys([*first, *second]) if first.get(name) != second.get(name)]
    what = "; ".join(f"{name}: {first.get(name)} and {second.get(name)}" for name in keys) or "nothing"
    raise UserError(
        f"{experiment} has two records of {named}, which differ in {what}. A table shows one setting: give each a "
        f"variant of its own (configs/{experiment}/NAME.yaml, then --profile NAME), and delete the other's lines from "
        f"{experiment}.jsonl"
    )


def gate_settings(records: Iterable[Record]) -> None:
    """All candidates of a data set and seed are updates of one Q, and no two have one name."""
    shared: dict[str, tuple[dict[str, Any], Record]] = {}
    candidates = []
    for record in records:
        config = record["config"]
        about = {"data": config["data"], "seed": config["seed"]}
        rest = {name: value for name, value in config.items() if name not in ("candidate", *MACHINE)}
        shared[repr(sorted(rest.items()))] = about, rest
        candidates.append(({**about, "candidate": config["candidate"]["name"]}, {**rest, **config["candidate"]}))
    one_setting("gate", shared.values())
    one_setting("gate", candidates)
