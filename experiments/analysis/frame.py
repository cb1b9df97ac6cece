"""Stored cells as one table of pairs: estimates, the terms and bounds that follow from them, and scores.

The formulas are those of `trace.scores`, over whole columns.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trace.baselines import BASELINES
from trace.diagnostic import model_change
from trace.scores import SCORES, Candidate, calibrate_c_h
from trace.stats.bootstrap import BootstrapInterval, bootstrap

from ..engine.records import Record
from .repeats import gate_settings, one_setting

Frame = dict[str, NDArray[Any]]
"""Columns of equal length, one entry per pair."""

CONTROLS = {"relabelled": "blind harm", "constant": "constant", "rehearsal": "rehearsal", "distill": "distillation"}
"""Keys of a gate candidate that make it more than a plain fine-tune, and what it is then; the first one counts."""


def synthetic_frame(records: Iterable[Record]) -> Frame:
    """All pairs of the `synthetic` records; ``plain`` ones are those of a world as its file has it, nothing set."""
    parts = []
    for record in records:
        c = record["config"]
        about = {
            "world": c["world"],
            "variant": variant(c),
            "plain": c["labels"] == "travel" and not c["options"],
            "n": c["n"],
            "n_target": c["n_target"],
            "development": c["development"],
            "shared_draw": c["shared_draw"],
        }
        for model, kept in record["metrics"].items():
            parts.append(_part({**about, "model": model}, kept))
    return stacked(parts)


def isolation_frame(records: Iterable[Record]) -> Frame:
    """All pairs of the `isolation` records."""
    parts = [
        _part({name: r["config"][name] for name in ("world", "vary", "n")}, r["metrics"])
        for r in records
    ]  # fmt: skip
    return stacked(parts)


def active_frame(records: Iterable[Record]) -> Frame:
    """All rounds of the `active` records, with the proxies of each policy's own development rounds.

    Raises:
        UserError: where a policy and seed was run at two settings.
    """
    parts, runs = [], []
    for record in records:
        about = {name: record["config"][name] for name in ("data", "policy", "seed", "development")}
        runs.append((about, record["config"]))
        parts.append(_part(about, {"columns": record["metrics"]["columns"], "remainders": {}}))
    one_setting("active", runs)
    frame = stacked(parts)
    scored = []
    for data, policy in groups(frame, "data", "policy"):
        part = where(frame, data=data, policy=policy)
        rounds, development = (where(part, development=flag) for flag in (False, True))
        scored.append(rounds | proxies(rounds, calibration(development, rounds)))
    return stacked(scored)


def gate_frame(records: Sequence[Record]) -> Frame:
    """All candidates of the `gate` records with their ``kind``; MSP in both signs.

    The kind is plain, that of the control, or reference: a plain fine-tune that was run beside controls to compare
    them with, where other records of the data set hold the fine-tunes that are gated.

    Raises:
        UserError: where a data set and seed has two Qs, or two candidates of one name.
    """
    gate_settings(records)
    gated = {record["config"]["data"] for record in records if not _controlled(record)}
    parts = []
    for record in records:
        config, metrics = record["config"], record["metrics"]
        part = _part({"data": config["data"], "seed": config["seed"]}, {**metrics, "remainders": {}})
        part["name"] = np.array(metrics["names"])
        part["kind"] = np.array([kind(candidate) for candidate in config["candidates"]], dtype="U20")
        if config["data"] in gated and _controlled(record):
            part["kind"][part["kind"] == "plain"] = "reference"
        parts.append(part | {f"msp_{domain}": -part[f"negative_msp_{domain}"] for domain in ("source", "target")})
    return stacked(parts)


def kind(candidate: dict[str, Any]) -> str:
    """What a gate candidate is."""
    return next((name for key, name in CONTROLS.items() if candidate[key]), "plain")


def _controlled(record: Record) -> bool:
    return any(kind(candidate) != "plain" for candidate in record["config"]["candidates"])


def variant(config: dict[str, Any]) -> str:
    """Where labels come from, and the world's options.

    A world that leaves no choice of labels keeps P(y|x), whatever its config says.
    """
    labels = config["labels"] if _offers_labels(config["world"]) else "invariant"
    options = [f"{key} {value:g}" for key, value in sorted(config["options"].items())]
    return ", ".join([f"labels {labels}", *options])


@functools.cache
def _offers_labels(world: str) -> bool:
    """Whether a world has the field ``labels``; one whose file is gone is taken at its config's word."""
    from trace import worlds  # tables of other experiments need none

    return world not in worlds.names() or "labels" in worlds.fields_of(world)


def _part(about: dict[str, Any], kept: dict[str, Any]) -> Frame:
    columns = {name: np.asarray(values, dtype=float) for name, values in kept["columns"].items()}
    length = len(columns["risk_change"])
    return derived({
        **columns,
        **{name: np.full(length, value) for name, value in {**about, **kept["remainders"]}.items()},
    })  # fmt: skip


def derived(frame: Frame) -> Frame:
    """Terms, bounds and scores from estimates: every formula of the library whose parts are there.

    c_h of the bounds is 1 where a record does not say; the proxies have a calibrated one (`proxies`).
    """
    f = {"c_h": np.ones(len(frame["risk_change"])), **frame, "mmd": np.sqrt(np.maximum(frame["mmd_squared"], 0))}
    f["abs_risk_change"] = np.abs(f["risk_change"])
    f["model_change_squared"] = model_change({**f, "output_distance": f["output_distance_squared"]})
    for name, score in {**SCORES, **BASELINES}.items():
        if score.kind != "proxy" and name not in f and set(score.parts) <= set(f):
            f[name] = score.harm(f)
    return f


def stacked(parts: Sequence[Frame]) -> Frame:
    """One frame from many; a column that some lack is NaN there."""
    if not parts:
        return {}
    names = list(dict.fromkeys(name for part in parts for name in part))
    length = {id(part): len(part["risk_change"]) for part in parts}
    return {
        name: np.concatenate([part.get(name, np.full(length[id(part)], np.nan)) for part in parts]) for name in names
    }


def where(frame: Frame, **values: Any) -> Frame:
    """The rows whose columns have these values."""
    if not frame:
        return {}
    mask = np.ones(len(frame["risk_change"]), dtype=bool)
    for name, value in values.items():
        mask &= frame[name] == value
    return {name: column[mask] for name, column in frame.items()}


def size(frame: Frame) -> int:
    return len(frame["risk_change"]) if frame else 0


def groups(frame: Frame, *names: str) -> list[tuple[Any, ...]]:
    """The different values of some columns, in the order of the rows."""
    if not frame:
        return []
    return list(dict.fromkeys(zip(*(frame[name].tolist() for name in names), strict=True)))


def mean_interval(values: NDArray[np.float64]) -> BootstrapInterval:
    """The mean over seeds with a 95% bootstrap interval."""
    return bootstrap(np.mean, values, generator=np.random.default_rng(0))


def evaluated(frame: Frame) -> Frame:
    """The grid proper, with the proxies of frozen c_h: no development candidates, no rows of the published table.

    c_h belongs to a pair of source and target (``app:proxy-and-cal``), so every variant of a world has its own.
    """
    grid = where(frame, development=False, shared_draw=False)
    parts = []
    for world, model, kind in groups(grid, "world", "model", "variant"):
        part = where(grid, world=world, model=model, variant=kind)
        development = where(frame, development=True, world=world, model=model, variant=kind)
        if size(development):
            development = where(development, weight_decay=development["weight_decay"][0])
        parts.append(part | proxies(part, calibration(development, part)))
    return stacked(parts)


def calibration(development: Frame, evaluation: Frame) -> dict[str, float]:
    """c_h for both distances from the development candidates (``app:proxy-and-cal``).

    NaN, and with it the proxies, without development candidates or where their median change or shift is 0.
    """
    if not size(development):
        return {"distance": np.nan, "mmd": np.nan}
    change, sensitivity = development["output_distance"].tolist(), development["sensitivity_target"].tolist()
    found = {}
    for distance in ("distance", "mmd"):
        measured = zip(_names(development), change, sensitivity, development[distance].tolist(), strict=True)
        defined = min(np.median(development["sensitivity_target"] * development[distance]), np.median(change)) > 0
        candidates = [Candidate(*m) for m in measured]
        found[distance] = calibrate_c_h(candidates, evaluation=_names(evaluation)).c_h if defined else np.nan
    return found


def _names(frame: Frame) -> list[str]:
    """What tells candidates apart: a severity or a number of labels, and the seed."""
    keys = [name for name in ("severity", "labeled", "seed") if name in frame]
    columns = zip(*(frame[name].tolist() for name in keys), strict=True)
    return [", ".join(f"{key} {value:g}" for key, value in zip(keys, row, strict=True)) for row in columns]


def proxies(frame: Frame, c_h: dict[str, float]) -> Frame:
    """TRACE-Proxy with either distance (``app:proxy-and-cal``)."""
    scales = {"proxy_ot": c_h["distance"], "proxy_mmd": c_h["mmd"]}
    return {name: SCORES[name].harm({**frame, "c_h": scale}) for name, scale in scales.items()}
