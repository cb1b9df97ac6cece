"""What is a replication of an image or table study: a data set, a pair of domains, a backbone, where gradients are."""

from collections.abc import Sequence

import numpy as np
from pandas import Series

from trace.stats.jackknife import StudentInterval, jackknife_interval

from ..engine.records import Record
from .summary import ANY


def replication_title(config: Record) -> str:
    """``emoji, real to sketch, tf_efficientnet_lite0``, or what of it a config has."""
    domains = [str(config[key]) for key in ("source", "target") if config.get(key)]
    gradients = "gradients in the image" if config.get("gradient_in") == "input" else ""
    parts = (str(config["data"]), " to ".join(domains), str(config.get("arch") or ""), gradients)
    return ", ".join(filter(None, parts))


def replication_names(records: Sequence[Record]) -> list[str]:
    """The title of every record's replication; the data set alone where that has one only."""
    titles = [replication_title(record["config"]) for record in records]
    of_data: dict[str, set[str]] = {}
    for record, title in zip(records, titles, strict=True):
        of_data.setdefault(record["config"]["data"], set()).add(title)
    data = [str(record["config"]["data"]) for record in records]
    return [name if len(of_data[name]) == 1 else title for name, title in zip(data, titles, strict=True)]


def replications(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by the title of their replication, in its order."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(replication_title(record["config"]), []).append(record)
    return dict(sorted(groups.items()))


def pooled_title(data: Series) -> str:
    """Of a row that `over_data_sets` makes."""
    count = data.nunique()
    return "one data set" if count == 1 else f"mean of {count} data sets"


def over_data_sets(values: Series, data: Series, limits: tuple[float, float] = ANY) -> StudentInterval:
    """The mean over data sets of their replications' mean, with Student's t over data sets.

    Replications on one data set share its images or people, so they count as one. Undefined values are left out;
    ``limits`` are those of a value.
    """
    means = values.groupby(data).mean().dropna()
    if means.empty:
        nan = float("nan")
        return StudentInterval(nan, nan, nan, 0.95, nan, "undefined everywhere")
    return jackknife_interval(np.mean, np.arange(len(means)), columns=(means.to_numpy(),), limits=limits)
