"""Claims that the printed rows of ``tab:trace-domainnet-combined-app`` decide by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

from trace.stats.metrics import spearman

from ...analysis.paper import ACTIVE, ActiveRow
from ..ledger import Finding, Records, claim, first_case

LABEL = "tab:trace-domainnet-combined-app"
HALF = 0.005
"""Rounding of a number with two decimals."""

Rows = Sequence[ActiveRow]


@claim(
    "app:proxy-and-cal",
    "All tightness claims use the full diagnostic B-hat.",
    published="B-hat/|Delta R| from 5.64 to 29.80",
)
def ratio_is_of_the_diagnostic(_: Records, rows: Rows = ACTIVE) -> Finding:
    """The printed ratio against TRACE-Proxy/|Delta R|, within the rounding of all three."""
    equal = sum(_is_quotient(row) for row in rows)
    return first_case(
        f"the ratio equals TRACE-Proxy/|Delta R| in {equal} of {len(rows)} rows (42.74/5.82 = {42.74 / 5.82:.2f})",
        0,
        (
            equal == len(rows),
            "contradicts itself",
            "The column shows the calibrated ranking score, which is no bound, divided by |Delta R|.",
        ),
        (True, "reproduced", "The ratio is not that of the proxy, so it may be that of the diagnostic."),
    )


@claim(
    "app:metrics",
    "Tightness is the dimensionless ratio B-hat/|Delta R|.",
    published="7.34 with |Delta R| = 5.82 percentage points (w1min, round 1)",
)
def ratio_is_dimensionless(_: Records, rows: Rows = ACTIVE, points_in_one: float = 100.0) -> Finding:
    """The same ratios with |Delta R| as a fraction, the unit of every risk in the theory."""
    low, high = (end(row.ratio for row in rows) * points_in_one for end in (min, max))
    return first_case(
        f"{low:.0f} to {high:.0f} with |Delta R| as a fraction",
        0,
        (points_in_one == 1, "reproduced", "|Delta R| is a fraction already."),
        (
            True,
            "contradicts itself",
            (
                "The numerator is in logits, the denominator in percentage points: the size of the ratio is that of a "
                "unit."
            ),
        ),
    )


@claim(LABEL, "The bound ratio B-hat/|Delta R| remains stable (5--9).", published="5 to 9")
def ratio_is_stable(_: Records, rows: Rows = ACTIVE, low: float = 5.0, high: float = 9.0) -> Finding:
    """The range of the printed ratio for each policy."""
    ratios = {policy: [row.ratio for row in rows if row.policy == policy] for policy in ("w1min", "mmdmin")}
    inside = [all(low <= ratio <= high for ratio in r) for r in ratios.values()]
    return first_case(
        ", ".join(f"{policy} {min(r):.2f} to {max(r):.2f}" for policy, r in ratios.items()),
        0,
        (all(inside), "reproduced", "All ratios lie in the stated range."),
        (
            True,
            "contradicts itself",
            "w1min stays in the stated range, mmdmin is above it in every round."
            if inside[0]
            else "Ratios leave the range.",
        ),
    )


@claim("app:domainnet-active", "w1min: |Delta R| improves monotonically.", published="monotone improvement")
def w1min_improves_monotonically(_: Records, rows: Rows = ACTIVE) -> Finding:
    """Rounds in which the printed |Delta R| rises."""
    values = [row.risk_change for row in _of("w1min", rows)]
    rises = [number for number in range(1, len(values)) if values[number] > values[number - 1]]
    rounds = ", ".join(str(number + 1) for number in rises)
    return first_case(
        "|Delta R| = " + ", ".join(f"{value:.2f}" for value in values) + " percentage points",
        0,
        (not rises, "reproduced", "|Delta R| falls in every round."),
        (True, "contradicts itself", f"|Delta R| rises in round {rounds}, so the improvement is not monotone."),
    )


@claim(
    "tab:trace-domainnet-main",
    "w1min improves both metrics, the distance and the model change.",
    published="distance 0.0182 to 0.0034, output discrepancy 42.23 to 44.68",
)
def w1min_improves_both(_: Records, rows: Rows = ACTIVE) -> Finding:
    """First and last round of both columns."""
    first, *_between, last = _of("w1min", rows)
    grown = last.output_distance / first.output_distance - 1
    return first_case(
        f"distance {100 * (last.distance / first.distance - 1):+.0f}%, output discrepancy {100 * grown:+.1f}%",
        0,
        (grown < 0 and last.distance < first.distance, "reproduced", "Both columns end below their first round."),
        (True, "contradicts itself", "The distance falls, but the output discrepancy ends above its first round."),
    )


@claim(
    "tab:trace-domainnet-main",
    "The instability of mmdmin drove poor source performance, which w1min avoids.",
    published="|Delta R| = 4.48 (mmdmin) and 5.11 (w1min) at 250 labels",
)
def mmdmin_harms_the_source(_: Records, rows: Rows = ACTIVE) -> Finding:
    """The two policies' |Delta R| round by round."""
    pairs = list(zip(_of("mmdmin", rows), _of("w1min", rows), strict=True))
    below = sum(a.risk_change < b.risk_change for a, b in pairs)
    means = [sum(row.risk_change for row in side) / len(pairs) for side in zip(*pairs, strict=True)]
    return first_case(
        f"mmdmin is below w1min in {below} of {len(pairs)} rounds; mean {means[0]:.2f} against {means[1]:.2f} points",
        0,
        (below == 0, "reproduced", "mmdmin changes the source risk more in every round."),
        (
            True,
            "contradicts itself",
            (
                "The policy said to perform poorly changes the source risk less, although its output discrepancy "
                "grows most."
            ),
        ),
    )


@claim(
    "abstract",
    "Across synthetic and vision benchmarks the diagnostics have a strong monotonic relation with |Delta R|.",
    published="strong monotonic relationship",
)
def proxy_ranks_the_rounds(_: Records, rows: Rows = ACTIVE) -> Finding:
    """Spearman's rho of the two printed scores with |Delta R| over the rounds of both policies."""
    risk = [row.risk_change for row in rows]
    proxy = spearman([row.proxy for row in rows], risk).value
    output = spearman([row.output_distance for row in rows], risk).value
    return first_case(
        f"rho = {proxy:.2f} (TRACE-Proxy), {output:.2f} (output discrepancy) over {len(rows)} rounds",
        0,
        (proxy >= 0.7, "reproduced", "Rounds with a larger proxy have the larger |Delta R|."),
        (True, "contradicts itself", "In the table of active selection neither score ranks the rounds by |Delta R|."),
    )


@claim(
    "eq:chat-cal-app",
    "The calibration ensures that model change and shift are comparable in magnitude in TRACE-Proxy.",
    published="equal medians on the development set",
)
def calibration_makes_terms_comparable(_: Records, rows: Rows = ACTIVE) -> Finding:
    """The shift term of the printed proxies as a share of their model change."""
    shares = {p: [row.proxy / row.output_distance - 1 for row in _of(p, rows)] for p in ("w1min", "mmdmin")}
    shown = [f"{100 * min(s):.1f}% to {100 * max(s):.1f}% ({policy})" for policy, s in shares.items()]
    return first_case(
        "shift term is " + ", ".join(shown) + " of model change",
        0,
        (
            min(min(s) for s in shares.values()) >= 0.1,
            "reproduced",
            "The two terms are within a factor of ten in every row.",
        ),
        (
            True,
            "contradicts itself",
            (
                "For w1min the calibrated shift term is about a hundredth of the model change: the proxy is the "
                "latter alone."
            ),
        ),
    )


def _of(policy: str, rows: Rows) -> list[ActiveRow]:
    return [row for row in rows if row.policy == policy]


def _is_quotient(row: ActiveRow) -> bool:
    low = (row.proxy - HALF) / (row.risk_change + HALF)
    high = (row.proxy + HALF) / (row.risk_change - HALF)
    return low - HALF <= row.ratio <= high + HALF
