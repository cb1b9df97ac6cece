"""The tables of active selection, `trace-domainnet-main` and `trace-domainnet-combined`, from records."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .frame import Frame, active_frame, groups, where
from .published import ACTIVE, ActiveRow
from .records import Record
from .table_text import MISSING, Table
from .tables_synthetic import spread

DISTANCE = {"w1min": "distance", "mmdmin": "mmd", "random": "distance"}
"""What a policy's Distance column shows: the OT divergence, or MMD."""


def combined(records: list[Record]) -> Table:
    """Every round of every policy: the paper's on DomainNet, ours on the data that was run."""
    frame = active_frame(records)
    rows = []
    for policy in DISTANCE:
        for number in sorted({row.round for row in ACTIVE}):
            rows += [_published(row) for row in ACTIVE if (row.policy, row.round) == (policy, number)]
            rows += _ours(frame, policy, number)
    caption = (
        "Active selection. Published: DomainNet, real to painting. Ours: mean (standard deviation) over seeds on the "
        "data named. Distance is that of all labels so far to the source, OT for w1min and random, MMD for mmdmin. "
        "|Delta R| in percentage points of top-1 error; Proxy / |Delta R| is what the paper prints as B / |Delta R|, "
        "the last ratio is the bound without remainders over |Delta R| in clipped cross-entropy."
    )
    header = ["policy", "round", "labeled", "data", "Distance", "Out. Disc.", "TRACE-Proxy", "|Delta R| [p.p.]",
              "Proxy / |Delta R|", "B / |Delta R|", "target error [%]"]  # fmt: skip
    return Table(caption, header, rows)


def main(records: list[Record]) -> Table:
    """The first and the last round, in the columns of the paper's main text."""
    full = combined(records)
    ends = {"1", str(max(row.round for row in ACTIVE))}
    kept = [[row[0], *row[2:6], row[7]] for row in full.rows if row[1] in ends]
    return Table(full.caption, ["policy", "labeled", "data", "Distance", "Out. Disc.", "|Delta R| [p.p.]"], kept)


def _published(row: ActiveRow) -> list[str]:
    return [row.policy, str(row.round), str(row.labeled), "domainnet, published", f"{row.distance:.4f}",
            f"{row.output_distance:.2f}", f"{row.proxy:.2f}", f"{row.risk_change:.2f}", f"{row.ratio:.2f}",
            "not printed", "not printed"]  # fmt: skip


def _ours(frame: Frame, policy: str, number: int) -> list[list[str]]:
    """One line for each data set that was run."""
    rows = []
    for (data,) in groups(where(frame, policy=policy), "data"):
        runs = where(frame, policy=policy, data=data)
        labeled = sorted(set(runs["labeled"].tolist()))
        if number > len(labeled):
            continue
        part = where(runs, labeled=labeled[number - 1])
        points = 100 * np.abs(part["error_change"])
        proxy = part["proxy_mmd" if policy == "mmdmin" else "proxy_ot"]
        rows.append([policy, str(number), f"{labeled[number - 1]:g}", data, spread(part[DISTANCE[policy]]),
                     spread(part["output_distance"]), spread(proxy), spread(points), _ratio(proxy, points),
                     _ratio(part["bound_ot"], part["abs_risk_change"]),
                     spread(100 * part["target_error"])])  # fmt: skip
    return rows or [[policy, str(number), *[MISSING] * 9]]


def _ratio(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> str:
    """Ratio of means: single seeds divide by nearly nothing."""
    below = float(denominator.mean())
    return f"{numerator.mean() / below:.3g}" if below > 0 and not np.isnan(numerator).any() else MISSING
