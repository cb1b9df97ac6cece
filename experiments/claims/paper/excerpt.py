"""What the printed rows of ``tab:combined-excerpt-app`` say by arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import NormalDist

from trace.estimators.remainders import label_noise_remainder, validation_remainder
from trace.losses import ClippedCrossEntropy

from ...analysis.paper import EXCERPT, ExcerptRow
from ..ledger import Measurement, arithmetic

VALIDATION_SHARE = 0.15
"""Stratified validation split (``app:common-impl``)."""
LEVEL = 0.05
"""The paper names no delta and no eta; 0.05 is what we take for both."""
ROUNDING = 0.005 + 4 * 0.00005
"""Of a bound with two decimals and its four terms with four."""

LARGEST_CHANGE = ClippedCrossEntropy().lipschitz * ClippedCrossEntropy().output_diameter(2)
"""Of two models whose clipped outputs are as far apart as they can be, at every point."""

Rows = Sequence[ExcerptRow]


@arithmetic
def bounds_hold_their_remainders(rows: Rows = EXCERPT) -> Measurement:
    """Printed bounds against the sum of their printed terms, and against the remainders alone."""
    bounds = [(row.n, bound, bare) for row in rows for bound, bare in _bounds_and_sums(row)]
    bare_sums = sum(abs(bound - bare) <= ROUNDING for _, bound, bare in bounds)
    exceeded = sum(remainders(n) > bound for n, bound, _ in bounds)
    sizes = ", ".join(f"{remainders(n):.2f} at n = {n}" for n in sorted({row.n for row in rows}))
    return Measurement(
        f"{bare_sums} of {len(bounds)} bounds are the bare sum; the remainders are {sizes}, above {exceeded} of them",
        0,
        {"share of bare sums": bare_sums / len(bounds)},
    )


@arithmetic
def model_change_is_a_norm(rows: Rows = EXCERPT) -> Measurement:
    """A logistic boundary that moves with the blobs changes its outputs by w.t, everywhere the same and linear in t."""
    small, large = (row for row in rows if row.world == "blobs_shift" and row.n == 2000)
    growth, stretch = large.model_change / small.model_change, large.severity / small.severity
    return Measurement(
        f"growth {growth:.1f} times; a norm gives {stretch:.0f} times, its square {stretch**2:.0f} times; the larger "
        f"value is {100 * large.model_change / LARGEST_CHANGE:.0f}% of what clipped logits allow",
        0,
        {"growth over stretch": growth / stretch},
    )


@arithmetic
def risk_change_is_an_error_rate(printed: float | None = None, spread: float = 0.55) -> Measurement:
    """The 0-1 risk change of a boundary between balanced blobs at -1 and 1 that moves by 1, and its limit."""
    value = max(row.risk_change for row in EXCERPT) if printed is None else printed
    change = error_of_boundary(1.0, spread) - error_of_boundary(0.0, spread)
    return Measurement(
        f"{change:.3f} in 0-1 risk for a boundary moved by 1 (our spread {spread}); below 0.5 however far it moves",
        0,
        {"printed": value},
    )


@arithmetic
def mmd_bound_is_hybrid(rows: Rows = EXCERPT) -> Measurement:
    """How much of the OT term the printed MMD bound has room for, in the row whose MMD term is the smallest."""
    row = min(rows, key=lambda row: row.emp_shift_mmd)
    room = row.bound_mmd + ROUNDING - (row.gap_source + row.gap_target + row.model_change + row.emp_shift_mmd)
    share = max(0.0, room) / row.emp_shift_ot
    return Measurement(
        f"room for {100 * share:.0f}% of the OT term; Q's share is about 50% where both models see the same data",
        0,
        {"share": share},
    )


@arithmetic
def shift_penalty_is_a_distance(rows: Rows = EXCERPT) -> Measurement:
    """How the term changes with n while the shift stays, beside how the models' slopes changed."""
    first, second = (row for row in rows if row.world == "blobs_shift" and row.severity == 0.25)
    half = 0.00005
    low = (second.emp_shift_ot - half) / (first.emp_shift_ot + half)
    high = (second.emp_shift_ot + half) / (first.emp_shift_ot - half)
    slopes = second.model_change / first.model_change
    ratio = second.emp_shift_ot / first.emp_shift_ot
    return Measurement(
        f"ratio {ratio:.2f} ({low:.2f} to {high:.2f} within rounding) while ModelChange rises {slopes:.2f} times",
        0,
        {"largest ratio": high},
    )


@arithmetic
def bound_is_monotone_in_risk(rows: Rows = EXCERPT) -> Measurement:
    """Pairs of printed rows of one world whose bounds and risk changes are ordered oppositely."""
    pairs = [pair for pair in itertools.combinations(rows, 2) if pair[0].world == pair[1].world]
    opposed = sum((a.bound_ot - b.bound_ot) * (a.risk_change - b.risk_change) < 0 for a, b in pairs)
    return Measurement(
        f"{opposed} of {len(pairs)} pairs of rows of one world are ordered oppositely", 0, {"opposed": opposed}
    )


def remainders(n: int) -> float:
    """Label noise and validation remainders of ``cor:practical-trace`` with the paper's M, two classes."""
    m, bound = round(VALIDATION_SHARE * n), ClippedCrossEntropy().bound(2, "paper")
    return label_noise_remainder(n, n, bound, LEVEL) + validation_remainder(m, m, bound, LEVEL, LEVEL)


def error_of_boundary(position: float, spread: float) -> float:
    """0-1 risk on balanced blobs ``N(-1, spread^2)`` and ``N(1, spread^2)`` of the boundary x = position."""
    right, left = (position - 1) / spread, -(position + 1) / spread
    return (NormalDist().cdf(right) + NormalDist().cdf(left)) / 2


def _bounds_and_sums(row: ExcerptRow) -> list[tuple[float, float]]:
    core = row.gap_source + row.gap_target + row.model_change
    return [(row.bound_ot, core + row.emp_shift_ot), (row.bound_mmd, core + row.emp_shift_mmd)]
