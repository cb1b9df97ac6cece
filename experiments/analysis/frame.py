"""Stored cells as one table of pairs: estimates, the terms and bounds that follow from them, and scores.

The formulas are those of `trace.scores`, over whole columns. Records that a table would mix, two settings under what it
takes for one run, are refused.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from trace.baselines import BASELINES
from trace.diagnostic import model_change
from trace.scores import SCORES, Candidate, calibrate_c_h

from ..engine.errors import UserError
from ..engine.records import Record


def stack_pairs(parts: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> DataFrame:
    """One row per pair: what is known about its run, its stored columns, and what follows from them.

    A column that some parts lack is NaN there.
    """
    frames = [
        DataFrame({**{name: np.asarray(values, dtype=float) for name, values in columns.items()}, **about})
        for about, columns in parts
    ]
    return derived(pd.concat(frames, ignore_index=True))


def derived(frame: DataFrame) -> DataFrame:
    """Terms, bounds and scores from estimates: every formula of the library whose parts are there.

    c_h of the bounds is 1 where a record does not say; the proxies have a calibrated one (`proxies`). Records from
    before the output distance was measured on held-out target rows have that of the training rows in its place.
    """
    f = frame.assign(
        mmd=np.sqrt(np.maximum(frame["mmd_squared"], 0)),
        c_h=frame.get("c_h", 1.0),
        abs_risk_change=np.abs(frame["risk_change"]),
        held_out_distance=frame.get("held_out_distance", frame["output_distance"]),
        model_change_squared=model_change({**frame, "output_distance": frame["output_distance_squared"]}),
    )
    for name, score in {**SCORES, **BASELINES}.items():
        if score.kind != "proxy" and name not in f and set(score.parts) <= set(f):
            f[name] = score.harm(f)
    return f


def with_proxies(frame: DataFrame, keys: list[str]) -> DataFrame:
    """The pairs that are no development candidates, with the proxies of c_h from the candidates of the same keys."""
    evaluation, development = frame[~frame["development"]], frame[frame["development"]]
    parts = [
        part.assign(**proxies(part, calibration(development[(development[keys] == list(key)).all(axis=1)], part)))
        for key, part in evaluation.groupby(keys, sort=False)
    ]
    return pd.concat(parts) if parts else evaluation.assign(proxy_ot=np.nan, proxy_mmd=np.nan)


def calibration(development: DataFrame, evaluation: DataFrame) -> dict[str, float]:
    """c_h for both distances from the development candidates (``app:proxy-and-cal``).

    NaN, and with it the proxies, without development candidates or where their median change or shift is 0.
    """
    return {distance: _c_h(development, evaluation, distance) for distance in ("distance", "mmd")}


def _c_h(development: DataFrame, evaluation: DataFrame, distance: str) -> float:
    change, sensitivity, moved = (development[name] for name in ("output_distance", "sensitivity_target", distance))
    if development.empty or not min(np.median(sensitivity * moved), np.median(change)) > 0:
        return np.nan
    measured = zip(_names(development), change.tolist(), sensitivity.tolist(), moved.tolist(), strict=True)
    return calibrate_c_h([Candidate(*m) for m in measured], evaluation=_names(evaluation)).c_h


def _names(frame: DataFrame) -> list[str]:
    """What tells candidates apart: a severity or a number of labels, and the seed."""
    keys = [name for name in ("severity", "labeled", "seed") if name in frame]
    columns = zip(*(frame[name].tolist() for name in keys), strict=True)
    return [", ".join(f"{key} {value:g}" for key, value in zip(keys, row, strict=True)) for row in columns]


def proxies(frame: DataFrame, c_h: dict[str, float]) -> dict[str, Series]:
    """TRACE-Proxy with either distance (``app:proxy-and-cal``)."""
    scales = {"proxy_ot": c_h["distance"], "proxy_mmd": c_h["mmd"]}
    return {name: SCORES[name].harm({**frame, "c_h": scale}) for name, scale in scales.items()}


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
