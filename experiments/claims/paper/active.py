"""What the printed rows of ``tab:trace-domainnet-combined-app`` say by arithmetic.

Here and in the files beside it a measure takes the published numbers as defaults, so that a test can ask what it would
say about others.
"""

from __future__ import annotations

from collections.abc import Sequence

from trace.stats.metrics import spearman

from ...analysis.paper import ACTIVE, ActiveRow
from ..ledger import Measurement, arithmetic

HALF = 0.005
"""Rounding of a number with two decimals."""
POLICIES = ("w1min", "mmdmin")

Rows = Sequence[ActiveRow]


def _of(policy: str, rows: Rows) -> list[ActiveRow]:
    return [row for row in rows if row.policy == policy]


@arithmetic
def ratio_is_of_the_diagnostic(rows: Rows = ACTIVE) -> Measurement:
    """The printed ratio against TRACE-Proxy/|Delta R|, within the rounding of all three."""
    equal = sum(_is_quotient(row) for row in rows)
    return Measurement(
        f"the ratio equals TRACE-Proxy/|Delta R| in {equal} of {len(rows)} rows (42.74/5.82 = {42.74 / 5.82:.2f})",
        0,
        {"share": equal / len(rows)},
    )


def _is_quotient(row: ActiveRow) -> bool:
    low = (row.proxy - HALF) / (row.risk_change + HALF)
    high = (row.proxy + HALF) / (row.risk_change - HALF)
    return low - HALF <= row.ratio <= high + HALF


@arithmetic
def ratio_is_dimensionless(rows: Rows = ACTIVE, points_in_one: float = 100.0) -> Measurement:
    """The same ratios with |Delta R| as a fraction, the unit of every risk in the theory."""
    low, high = (end(row.ratio for row in rows) * points_in_one for end in (min, max))
    return Measurement(f"{low:.0f} to {high:.0f} with |Delta R| as a fraction", 0, {"points in one": points_in_one})


@arithmetic
def ratio_is_stable(rows: Rows = ACTIVE) -> Measurement:
    """The range of the printed ratio for each policy."""
    ratios = {policy: [row.ratio for row in _of(policy, rows)] for policy in POLICIES}
    return Measurement(
        ", ".join(f"{policy} {min(r):.2f} to {max(r):.2f}" for policy, r in ratios.items()),
        0,
        {"smallest": {p: min(r) for p, r in ratios.items()}, "largest": {p: max(r) for p, r in ratios.items()}},
    )


@arithmetic
def w1min_improves_monotonically(rows: Rows = ACTIVE) -> Measurement:
    """Rounds in which the printed |Delta R| rises."""
    values = [row.risk_change for row in _of("w1min", rows)]
    rises = [number for number in range(1, len(values)) if values[number] > values[number - 1]]
    return Measurement(
        "|Delta R| = " + ", ".join(f"{value:.2f}" for value in values) + " percentage points",
        0,
        {"rounds with a rise": len(rises)},
        f"|Delta R| rises in round {', '.join(str(number + 1) for number in rises)}." if rises else "",
    )


@arithmetic
def w1min_improves_both(rows: Rows = ACTIVE) -> Measurement:
    """First and last round of both columns."""
    first, *_between, last = _of("w1min", rows)
    distance, output = (getattr(last, name) / getattr(first, name) - 1 for name in ("distance", "output_distance"))
    return Measurement(
        f"distance {100 * distance:+.0f}%, output discrepancy {100 * output:+.1f}%",
        0,
        {"change": {"distance": distance, "output discrepancy": output}},
    )


@arithmetic
def mmdmin_harms_the_source(rows: Rows = ACTIVE) -> Measurement:
    """The two policies' |Delta R| round by round."""
    pairs = list(zip(_of("mmdmin", rows), _of("w1min", rows), strict=True))
    below = sum(a.risk_change < b.risk_change for a, b in pairs)
    means = [sum(row.risk_change for row in side) / len(pairs) for side in zip(*pairs, strict=True)]
    return Measurement(
        f"mmdmin is below w1min in {below} of {len(pairs)} rounds; mean {means[0]:.2f} against {means[1]:.2f} points",
        0,
        {"rounds below": below},
    )


@arithmetic
def proxy_ranks_the_rounds(rows: Rows = ACTIVE) -> Measurement:
    """Spearman's rho of the two printed scores with |Delta R| over the rounds of both policies."""
    risk = [row.risk_change for row in rows]
    proxy = spearman([row.proxy for row in rows], risk).value
    output = spearman([row.output_distance for row in rows], risk).value
    return Measurement(
        f"rho = {proxy:.2f} (TRACE-Proxy), {output:.2f} (output discrepancy) over {len(rows)} rounds", 0, {"rho": proxy}
    )


@arithmetic
def calibration_makes_terms_comparable(rows: Rows = ACTIVE) -> Measurement:
    """The shift term of the printed proxies as a share of their model change."""
    shares = {p: [row.proxy / row.output_distance - 1 for row in _of(p, rows)] for p in POLICIES}
    shown = [f"{100 * min(s):.1f}% to {100 * max(s):.1f}% ({policy})" for policy, s in shares.items()]
    return Measurement(
        "shift term is " + ", ".join(shown) + " of model change", 0, {"share": {p: min(s) for p, s in shares.items()}}
    )
