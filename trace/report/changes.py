"""What an update changes, as rows under a header: classes and groups, old to new predictions, drift by column."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import torch
from scipy.stats import ks_2samp
from torch import Tensor

from ..estimators.labelled import Slices
from ..sample import Sample

SHOWN = 12
"""Classes, groups and columns that a table lists."""
_MATRIX = 6
"""Classes up to which old to new predictions are a matrix; pairs beyond."""
_PAIRS = 8
"""So many."""
_LEVEL = 0.05
"""Of the tests of all columns together."""


class SliceChange(NamedTuple):
    """A class or group: the share that either model has right, or without labels the predictions that change."""

    name: str
    rows: int
    changed: int
    before: float
    """NaN without labels."""
    after: float


def slice_changes(found: Slices) -> list[SliceChange]:
    """Slices with rows, those that lose most first; without labels those that change most."""

    def change(i: int) -> SliceChange:
        n, before, after = found.rows[i], math.nan, math.nan
        if found.right:
            before, after = found.right[i] / n, (found.right[i] - found.worse[i] + found.better[i]) / n
        return SliceChange(found.names[i], n, found.changed[i], before, after)

    changes = [change(i) for i, n in enumerate(found.rows) if n]
    return sorted(changes, key=lambda each: each.after - each.before if found.right else -each.changed / each.rows)


def slice_rows(changes: Sequence[SliceChange], what: str) -> list[list[str]]:
    """At most `SHOWN` of them under a header; ``what`` is "class" or "group"."""
    labelled = any(not math.isnan(each.before) for each in changes)
    header = [what, "rows", "changed", *(["right before", "after"] if labelled else [])]
    return [
        header,
        *(
            [
                each.name,
                str(each.rows),
                f"{each.changed} ({each.changed / each.rows:.0%})",
                *([f"{each.before:.0%}", f"{each.after:.0%}"] if labelled else []),
            ]
            for each in changes[:SHOWN]
        ),
    ]


def transitions(outputs: Tensor, new_outputs: Tensor, classes: Sequence[str]) -> list[list[str]]:
    """How often each class of the old model becomes which of the new one's, from outputs ``[n, C]`` of both.

    A matrix for few classes, else the most frequent pairs that differ; empty where no prediction changes.

    >>> z = torch.eye(2)[[0, 0, 1]]
    >>> transitions(z, z.flip(0), ["a", "b"])
    [['old \\\\ new', 'a', 'b'], ['a', '1', '1'], ['b', '1', '0']]
    """
    before, after = (z.argmax(dim=1).tolist() for z in (outputs, new_outputs))
    counts = Counter(zip(before, after, strict=True))
    pairs = [pair for pair, _ in counts.most_common() if pair[0] != pair[1]]
    if not pairs:
        return []
    if len(classes) <= _MATRIX:
        body = [[classes[i], *(str(counts[i, j]) for j in range(len(classes)))] for i in range(len(classes))]
        return [["old \\ new", *classes], *body]
    shown = [[classes[i], classes[j], str(counts[i, j])] for i, j in pairs[:_PAIRS]]
    return [["old model", "new model", "rows"], *shown]


class ColumnDrift(NamedTuple):
    """How one column's distribution differs between source and target."""

    name: str
    shift: float
    """Of the mean, in standard deviations of the source; NaN where that is 0."""
    distance: float
    """Kolmogorov and Smirnov's, the largest difference of the distribution functions."""
    beyond_chance: bool
    """At 5% for all columns together, by Bonferroni."""


@torch.no_grad()
def column_drift(source: Sample, target: Sample, columns: Sequence[str]) -> list[ColumnDrift]:
    """Every column of inputs ``[n, d]`` and ``[m, d]``, farthest first; empty for inputs of another shape.

    Raises:
        ValueError: for names that are not one for each column.
    """
    x, y = (s.x.double().cpu() for s in (source, target))
    if x.ndim != 2 or y.shape[1:] != x.shape[1:]:
        return []
    if len(columns) != x.shape[1]:
        raise ValueError(f"columns has {len(columns)} names for {x.shape[1]} columns: pass one name for each")
    deviation = x.std(dim=0, correction=0)
    shifts = torch.where(deviation > 0, (y.mean(dim=0) - x.mean(dim=0)) / deviation, math.nan)
    tests = [ks_2samp(x[:, i].numpy(), y[:, i].numpy(), method="asymp") for i in range(len(columns))]
    found = [
        ColumnDrift(name, float(shift), float(test.statistic), bool(test.pvalue * len(columns) <= _LEVEL))
        for name, shift, test in zip(columns, shifts, tests, strict=True)
    ]
    return sorted(found, key=lambda each: -each.distance)


def drift_rows(found: Sequence[ColumnDrift]) -> list[list[str]]:
    """At most `SHOWN` columns under a header."""
    return [
        ["column", "mean", "distance", "beyond chance"],
        *(
            [
                each.name,
                "n/a" if math.isnan(each.shift) else f"{each.shift:+.2f}",
                f"{each.distance:.2f}",
                "yes" if each.beyond_chance else "no",
            ]
            for each in found[:SHOWN]
        ),
    ]
