"""The `labels` records as one table: a line for each candidate, way to label and limit."""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd
from pandas import DataFrame
from scipy.stats import binomtest

from ..engine.records import Record

METHODS = {
    "file": "ours, this file",
    "population": "ours, population",
    "best_bet": "best single bet in hindsight",
    "betting": "uniform, betting",
    "bernstein": "uniform, empirical Bernstein",
    "hoeffding": "uniform, Hoeffding",
    "ppi": "uniform, PPI++",
    "active_testing": "active testing, LURE",
}
SIGNIFICANCE = 0.01


def labels_frame(records: Iterable[Record]) -> DataFrame:
    """Median and 90th percentile of the labels (infinite where that path was undecided), wrong and undecided paths."""
    parts = []
    for record in records:
        m, config = record["metrics"], record["config"]
        about = {
            "data": config["data"],
            "loss": config["judged_by"],
            "candidate": config["candidate"]["name"],
            **{name: m[name] for name in ("disagreement", "paths", "nominal")},
        }
        for method, columns in m["methods"].items():
            part = DataFrame({**columns, "limit": m["margins"], "method": method, **about})
            parts.append(part.astype({"median": float, "most": float}).fillna({"median": math.inf, "most": math.inf}))
    frame = pd.concat(parts, ignore_index=True).sort_values(["data", "loss"], ascending=False, kind="stable")
    return frame.assign(margin=frame["limit"].abs(), side=np.where(frame["limit"] < 0, "accept", "reject"))


def typical(frame: DataFrame, column: str) -> float:
    """The median over candidates and both sides of a limit."""
    return float(np.quantile(frame[column], 0.5, method="higher")) if len(frame) else math.nan


def kept(frame: DataFrame) -> bool:
    """Whether at no margin more paths are wrong than promised, by a one-sided binomial test over all candidates."""
    sums = frame.groupby("margin")[["wrong", "paths"]].sum()
    nominal = float(frame["nominal"].iloc[0])
    return all(
        binomtest(int(wrong), int(paths), nominal, alternative="greater").pvalue >= SIGNIFICANCE
        for wrong, paths in sums.itertuples(index=False)
    )


def cost_ratios(frame: DataFrame, method: str, other: str) -> DataFrame:
    """``other / method`` in median labels, for every candidate and limit at which both decide: column ``ratio``."""
    keys = ["data", "loss", "candidate", "limit"]
    pair = [frame[frame["method"] == name].set_index(keys)["median"] for name in (method, other)]
    both = pd.concat(pair, axis=1, keys=["own", "other"]).replace(math.inf, math.nan).dropna()
    both = both[both["own"] > 0]
    return both.assign(ratio=both["other"] / both["own"]).reset_index()
