"""Claims that the printed rows of ``tab:combined-excerpt-app`` decide by arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import NormalDist

from trace.estimators.remainders import label_noise_remainder, validation_remainder
from trace.losses import ClippedCrossEntropy

from ...analysis.paper import EXCERPT, ExcerptRow
from ..ledger import Finding, Records, claim, first_case

LABEL = "tab:combined-excerpt-app"
VALIDATION_SHARE = 0.15
"""Stratified validation split (``app:common-impl``)."""
LEVEL = 0.05
"""The paper names no delta and no eta; 0.05 is what we take for both."""
ROUNDING = 0.005 + 4 * 0.00005
"""Of a bound with two decimals and its four terms with four."""

LARGEST_CHANGE = ClippedCrossEntropy().lipschitz * ClippedCrossEntropy().output_diameter(2)
"""Of two models whose clipped outputs are as far apart as they can be, at every point."""

Rows = Sequence[ExcerptRow]


@claim(
    LABEL,
    "B-hat is the full diagnostic of cor:practical-trace, with its statistical remainders.",
    published="B-hat from 0.50 to 32.72",
)
def bounds_hold_their_remainders(_: Records, rows: Rows = EXCERPT) -> Finding:
    """Printed bounds against the sum of their printed terms, and against the remainders alone."""
    bounds = [(row.n, bound, bare) for row in rows for bound, bare in _bounds_and_sums(row)]
    bare_sums = sum(abs(bound - bare) <= ROUNDING for _, bound, bare in bounds)
    exceeded = sum(remainders(n) > bound for n, bound, _ in bounds)
    sizes = ", ".join(f"{remainders(n):.2f} at n = {n}" for n in sorted({row.n for row in rows}))
    return first_case(
        f"{bare_sums} of {len(bounds)} bounds are the bare sum; the remainders are {sizes}, above {exceeded} of them",
        0,
        (
            bare_sums == len(bounds),
            "contradicts itself",
            "Every printed bound is gaps + model change + shift and leaves out the remainders that make it a bound.",
        ),
        (True, "partly", "Some printed bounds differ from the bare sum of their printed terms."),
    )


@claim(
    LABEL,
    "ModelChange is the mean norm of the output change times L_ell (eq:outdist).",
    published="2.0648 at tr = 0.25, 32.6832 at tr = 1.0 (Blobs, n = 2000)",
)
def model_change_is_a_norm(_: Records, rows: Rows = EXCERPT) -> Finding:
    """A logistic boundary that moves with the blobs changes its outputs by w.t, everywhere the same and linear in t."""
    small, large = (row for row in rows if row.world == "blobs_shift" and row.n == 2000)
    growth, stretch = large.model_change / small.model_change, large.severity / small.severity
    return first_case(
        (
            f"growth {growth:.1f} times; a norm gives {stretch:.0f} times, its square {stretch**2:.0f} times; the "
            f"larger value is {100 * large.model_change / LARGEST_CHANGE:.0f}% of what clipped logits allow"
        ),
        0,
        (growth <= 1.25 * stretch, "reproduced", "The term grows no faster than the translation."),
        (
            True,
            "contradicts itself",
            (
                "The outputs of a logistic boundary that follows the blobs move in proportion to t; a squared "
                "distance fits."
            ),
        ),
    )


@claim(
    "app:anchor-and-deltaR",
    "|Delta R| is one quantity in all experiments; tab:trace-domainnet-combined-app gives it as top-1 error.",
    published="|Delta R| = 0.7097 (Blobs, tr = 1.0)",
)
def risk_change_is_an_error_rate(_: Records, printed: float | None = None, spread: float = 0.55) -> Finding:
    """The 0-1 risk change of a boundary between balanced blobs at -1 and 1 that moves by 1, and its limit."""
    value = max(row.risk_change for row in EXCERPT) if printed is None else printed
    change = error_of_boundary(1.0, spread) - error_of_boundary(0.0, spread)
    return first_case(
        f"{change:.3f} in 0-1 risk for a boundary moved by 1 (our spread {spread}); below 0.5 however far it moves",
        0,
        (value < 0.5, "partly", "The printed change could be an error rate, and could be a cross-entropy."),
        (
            True,
            "contradicts itself",
            "A 0-1 risk change above 0.5 needs an update worse than guessing, so this one must be a cross-entropy.",
        ),
    )


@claim(
    LABEL,
    "B-hat_MMD is the hybrid bound of cor:mmd-empirical, OT for Q and MMD for Q~.",
    published="EmpShift_MMD = 0.0000 beside EmpShift_OT = 0.0628 (Moons, alpha = 0)",
)
def mmd_bound_is_hybrid(_: Records, rows: Rows = EXCERPT) -> Finding:
    """How much of the OT term the printed MMD bound has room for, in the row whose MMD term is the smallest."""
    row = min(rows, key=lambda row: row.emp_shift_mmd)
    room = row.bound_mmd + ROUNDING - (row.gap_source + row.gap_target + row.model_change + row.emp_shift_mmd)
    share = max(0.0, room) / row.emp_shift_ot
    return first_case(
        f"room for {100 * share:.0f}% of the OT term; Q's share is about 50% where both models see the same data",
        0,
        (share >= 0.25, "reproduced", "The printed bound has room for the OT term of Q."),
        (
            True,
            "contradicts itself",
            "The hybrid form adds L_x(f_Q) c_h W1 > 0 to every MMD bound, but the printed one leaves no room for it.",
        ),
    )


@claim(
    LABEL,
    "EmpShift_OT is the distance of the shift times two Lipschitz factors (cor:practical-trace).",
    published="0.0008 at n = 1000, 0.0003 at n = 2000 (Blobs, tr = 0.25)",
)
def shift_penalty_is_a_distance(_: Records, rows: Rows = EXCERPT) -> Finding:
    """How the term changes with n while the shift stays, beside how the models' slopes changed."""
    first, second = (row for row in rows if row.world == "blobs_shift" and row.severity == 0.25)
    half = 0.00005
    low = (second.emp_shift_ot - half) / (first.emp_shift_ot + half)
    high = (second.emp_shift_ot + half) / (first.emp_shift_ot - half)
    slopes = second.model_change / first.model_change
    ratio = second.emp_shift_ot / first.emp_shift_ot
    return first_case(
        f"ratio {ratio:.2f} ({low:.2f} to {high:.2f} within rounding) while ModelChange rises {slopes:.2f} times",
        0,
        (high >= 0.75, "reproduced", "The term of a fixed shift hardly depends on the sample size."),
        (
            True,
            "contradicts itself",
            (
                "The distance of a fixed shift tends to a constant; falling like 1/n or faster fits gradients of a "
                "mean loss."
            ),
        ),
    )


@claim(
    "app:synth-details",
    "B-hat stays monotone in |Delta R|.",
    published="keeping B-hat monotone in |Delta R|",
)
def bound_is_monotone_in_risk(_: Records, rows: Rows = EXCERPT) -> Finding:
    """Pairs of printed rows of one world whose bounds and risk changes are ordered oppositely."""
    pairs = [pair for pair in itertools.combinations(rows, 2) if pair[0].world == pair[1].world]
    opposed = sum((a.bound_ot - b.bound_ot) * (a.risk_change - b.risk_change) < 0 for a, b in pairs)
    return first_case(
        f"{opposed} of {len(pairs)} pairs of rows of one world are ordered oppositely",
        0,
        (not opposed, "reproduced", "Within each world the larger bound has the larger risk change."),
        (
            True,
            "contradicts itself",
            (
                "Moons has a larger risk change without any shift (0.0166) than at alpha = 0.25 (0.0115), but a "
                "smaller bound."
            ),
        ),
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
