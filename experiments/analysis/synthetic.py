"""Pairs of the synthetic worlds: the evaluated grid, and the rows that the paper prints."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pandas import DataFrame

from trace.stats.metrics import spearman

from ..engine.records import Record
from .frame import stack_pairs, with_proxies
from .paper import ExcerptRow

SETTING = ["world", "model", "variant"]
"""What has a c_h of its own, which belongs to a pair of source and target (``app:proxy-and-cal``)."""

FIXED = "fixed"
"""What a record says of the labels of a world that leaves no choice, and keeps P(y|x)."""


def synthetic_frame(records: Iterable[Record]) -> DataFrame:
    """All pairs of the `synthetic` records; ``plain`` ones are those of a world as its file has it, nothing set."""
    return stack_pairs(
        ({**about(record["config"]), "model": model, **kept["remainders"]}, kept["columns"])
        for record in records
        for model, kept in record["metrics"].items()
    )


def about(config: dict[str, Any]) -> dict[str, Any]:
    """What a config says about all pairs of its run."""
    same = {name: config[name] for name in ("world", "n", "n_target", "development", "shared_draw", "c_h")}
    plain = config["labels"] in ("travel", FIXED) and not config["options"]
    return {**same, "variant": variant(config), "plain": plain}


def variant(config: dict[str, Any]) -> str:
    """Where labels come from, and the world's options."""
    labels = "invariant" if config["labels"] == FIXED else config["labels"]
    options = [f"{key} {value:g}" for key, value in sorted(config["options"].items())]
    return ", ".join([f"labels {labels}", *options])


def evaluated_pairs(records: Iterable[Record]) -> DataFrame:
    """The grid proper, with the proxies of frozen c_h: no development candidates, no rows of the published table."""
    frame = synthetic_frame(records)
    development = frame[frame["development"]]
    first = development.groupby(SETTING)["weight_decay"].transform("first")
    grid = frame[~frame["development"] & ~frame["shared_draw"]]
    return with_proxies(pd.concat([grid, development[development["weight_decay"] == first]]), SETTING)


def travelling_pairs(records: Iterable[Record]) -> DataFrame:
    """The evaluated pairs whose labels moved with the points, as the published sizes need."""
    return evaluated_pairs(records).query("variant == 'labels travel'")


def plain_pairs(records: Iterable[Record]) -> DataFrame:
    """The evaluated pairs of every world as its file has it."""
    return evaluated_pairs(records).query("plain")


def defined(frame: DataFrame, *scores: str) -> bool:
    """Whether there are pairs, and all of them have these scores."""
    return not frame.empty and not frame[list(scores)].isna().any(axis=None)


def by_setting(frame: DataFrame, score: str, keys: list[str]) -> Iterator[tuple[str, DataFrame]]:
    """The pairs of every setting that has a score, in the order of the records."""
    for key, part in frame.groupby(keys, sort=False):
        if defined(part, score):
            yield ", ".join(key), part


def proxy_correlation(frame: DataFrame) -> float:
    """Spearman's rho of TRACE-Proxy (OT) with |Delta R|; NaN where c_h is missing."""
    return spearman(frame["proxy_ot"], frame["abs_risk_change"]).value if defined(frame, "proxy_ot") else np.nan


def ratio_deciles(frame: DataFrame, bound: str) -> DataFrame:
    """Deciles 1, 5 and 9 of bound / |Delta R| at each severity, as columns 0.1, 0.5 and 0.9."""
    ratio = frame[bound] / np.maximum(frame["abs_risk_change"], 1e-12)
    return ratio.groupby(frame["severity"]).quantile([0.1, 0.5, 0.9]).unstack()


def published_pairs(records: Iterable[Record]) -> DataFrame:
    """Pairs drawn as for the published table."""
    return synthetic_frame(records).query("shared_draw")


def excerpt_part(frame: DataFrame, row: ExcerptRow, model: str) -> DataFrame:
    """Our pairs of a published row: all seeds, the smallest weight decay."""
    wanted = {"world": row.world, "severity": row.severity, "n": row.n, "model": model}
    part = frame[(frame[list(wanted)] == list(wanted.values())).all(axis=1)]
    return part[part["weight_decay"] == part["weight_decay"].min()]


def excerpt_terms(part: DataFrame, *, squared: bool) -> DataFrame:
    """The columns of the excerpt in one of the two readings."""
    change = part["model_change_squared" if squared else "model_change"]
    shift = {form: part[f"emp_shift_{form}"] / (part["n"] if squared else 1) for form in ("ot", "mmd")}
    return DataFrame(
        {
            "risk_change": part["abs_risk_change"],
            "model_change": change,
            **{f"emp_shift_{form}": term for form, term in shift.items()},
            **{f"bound_{form}": part["gaps"] + change + term for form, term in shift.items()},
        }
    )
