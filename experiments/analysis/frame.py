"""Stored cells as one table of pairs: estimates, the terms and bounds that follow from them, and scores.

The arithmetic is that of `trace.diagnostic.assemble` and `trace.scores`, over whole columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame, Series

from trace.scores import Candidate, calibrate_c_h

FORMS = ("ot", "mmd", "hybrid")


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
    """Terms and bounds from estimates (``cor:practical-trace``, ``cor:mmd-empirical``)."""
    f = frame.copy()
    f["abs_risk_change"] = np.abs(f["risk_change"])
    f["mmd"] = np.sqrt(np.maximum(f["mmd_squared"], 0))
    f["distance"] = np.maximum(f["transport"], 0)
    f["model_change"] = f["lipschitz_loss"] * f["output_distance"]
    f["model_change_squared"] = f["lipschitz_loss"] * f["output_distance_squared"]
    source_shift = f["sensitivity_source"] * f["distance"]
    f["emp_shift_ot"] = source_shift + f["sensitivity_target"] * f["distance"]
    f["emp_shift_mmd"] = f["rkhs_norm"] * f["mmd"]
    f["emp_shift_hybrid"] = source_shift + f["emp_shift_mmd"]
    f["gaps"] = f["gap_source"] + f["gap_target"]
    for form in FORMS:
        f[f"bound_{form}"] = f["gaps"] + f["model_change"] + f[f"emp_shift_{form}"]
        population = f["population_ot" if form == "ot" else "population_mmd"]
        f[f"bound_full_{form}"] = f[f"bound_{form}"] + f["label_noise"] + f["validation_error"] + population
    f["trace_w"] = f["output_distance"] + f["sensitivity_target"] * f["distance"]
    f["trace_mmd"] = f["output_distance"] + f["emp_shift_mmd"]
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
    shift = {name: c_h[name] * frame["sensitivity_target"] * frame[name] for name in ("distance", "mmd")}
    return {
        "proxy_ot": frame["output_distance"] + shift["distance"],
        "proxy_mmd": frame["output_distance"] + shift["mmd"],
    }
