"""Stored cells as one table of pairs: estimates, the terms and bounds that follow from them, and scores.

The formulas are those of `trace.scores`, over whole columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from trace.baselines import BASELINES
from trace.diagnostic import model_change
from trace.scores import SCORES, Candidate, calibrate_c_h


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

    c_h of the bounds is 1 where a record does not say; the proxies have a calibrated one (`proxies`).
    """
    f = frame.assign(mmd=np.sqrt(np.maximum(frame["mmd_squared"], 0)))
    if "c_h" not in f:
        f["c_h"] = 1.0
    f["abs_risk_change"] = np.abs(f["risk_change"])
    f["model_change_squared"] = model_change({**f, "output_distance": f["output_distance_squared"]})
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
    if development.empty:
        return {"distance": np.nan, "mmd": np.nan}
    change, sensitivity = development["output_distance"].tolist(), development["sensitivity_target"].tolist()
    found = {}
    for distance in ("distance", "mmd"):
        measured = zip(_names(development), change, sensitivity, development[distance].tolist(), strict=True)
        defined = min(np.median(development["sensitivity_target"] * development[distance]), np.median(change)) > 0
        candidates = [Candidate(*m) for m in measured]
        found[distance] = calibrate_c_h(candidates, evaluation=_names(evaluation)).c_h if defined else np.nan
    return found


def _names(frame: DataFrame) -> list[str]:
    """What tells candidates apart: a severity or a number of labels, and the seed."""
    keys = [name for name in ("severity", "labeled", "seed") if name in frame]
    columns = zip(*(frame[name].tolist() for name in keys), strict=True)
    return [", ".join(f"{key} {value:g}" for key, value in zip(keys, row, strict=True)) for row in columns]


def proxies(frame: DataFrame, c_h: dict[str, float]) -> dict[str, Series]:
    """TRACE-Proxy with either distance (``app:proxy-and-cal``)."""
    scales = {"proxy_ot": c_h["distance"], "proxy_mmd": c_h["mmd"]}
    return {name: SCORES[name].harm({**frame, "c_h": scale}) for name, scale in scales.items()}
