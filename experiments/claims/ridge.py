"""Claims of the ridge example (``sec:theoretical_example``, ``app:ridge_derivation``), judged from stored records."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from ..analysis import ridge as reading
from ..analysis.ridge import agrees, closed_forms, closed_slope, middle_half, points
from ..engine.records import Record
from .ledger import Finding, Judge, Verdict, claim, first_case, needs

SECTION, APPENDIX = "sec:theoretical_example", "app:ridge_derivation"
STANDARD_ERRORS = 5.0
"""Monte Carlo errors beyond this refute a closed form; several thousand checks stay below it."""

YES: Verdict = "reproduced"
NO: Verdict = "not reproduced"


def ridge_rule(read: Callable[..., list[Record]], *slopes: str) -> Callable[[Callable[[Any], Finding]], Judge]:
    """A judge of the ridge records that ``read`` picks; where none has these slopes, the finding says so."""

    def read_defined(records: list[Record]) -> list[Record]:
        found = read(records)
        return found if all(closed_slope(found, name).num_records for name in slopes) else []

    return needs("ridge", read_defined, "such problem whose risk changes")


def _order_claim(name: str, statement: str, curve: str, order: float, yes: str, no: str) -> None:
    @claim(SECTION, statement, published=f"order {order:g}", name=name)
    @ridge_rule(closed_forms, curve)
    def judge(closed: list[Record]) -> Finding:
        slope = closed_slope(closed, curve)
        return first_case(
            f"slope {slope.text()} in log|mu| for |mu| <= 0.1",
            len(closed),
            (agrees(slope, order), YES, yes),
            (True, NO, no),
        )


for _name, _statement, _curve, _order, _yes, _no in (
    (
        "shift_penalty_is_linear",
        "For small shifts the covariate shift penalty is O(|mu|)",
        "shift_penalty",
        1.0,
        "W1 = |mu|, and L_x tends to a constant above 0.",
        "Another order.",
    ),
    (
        "weight_change_is_quadratic",
        "For small shifts the weights differ by O(|mu|^2)",
        "weight_change",
        2.0,
        "mu enters twice, in mu.w* and as the direction; the difference levels off beyond |mu|^2 = 1 + lambda.",
        "The difference has another order.",
    ),
    (
        "risk_change_is_linear",
        "For small shifts the true risk difference grows linearly with |mu|",
        "risk_change",
        1.0,
        "The change is of first order.",
        "Delta R is Delta w, of order 2, times a vector that tends to a constant; O(|mu|) is an upper bound that is "
        "not attained, and for large shifts the change levels off.",
    ),
):
    _order_claim(_name, _statement, _curve, _order, _yes, _no)


@claim(SECTION, "The model change penalty has a lower order than the shift penalty", published="order 2 against 1")
@ridge_rule(closed_forms, "model_change", "shift_penalty")
def model_change_is_lower_order(closed: list[Record]) -> Finding:
    change, shift = closed_slope(closed, "model_change"), closed_slope(closed, "shift_penalty")
    far = closed_slope(closed, "model_change", "large")
    return first_case(
        f"slopes {change.text()} and {shift.text()} for |mu| <= 0.1; of the change {far.text()} for |mu| >= 10",
        len(closed),
        (
            change.lower - shift.upper > 0.5,
            YES,
            "It vanishes faster, for small shifts only: for large ones the output distance grows like |mu| as well.",
        ),
        (True, NO, "It is not of lower order."),
    )


@claim(APPENDIX, "E|x| on the target is constant for a fixed dimension", published="order 0")
@ridge_rule(closed_forms, "mean_norm")
def mean_norm_is_constant(closed: list[Record]) -> Finding:
    small, large = closed_slope(closed, "mean_norm"), closed_slope(closed, "mean_norm", "large")
    return first_case(
        f"slope {small.text()} for |mu| <= 0.1, {large.text()} for |mu| >= 10",
        len(closed),
        (not agrees(small, 0.0), NO, "It depends on the shift."),
        (agrees(large, 0.0), YES, "It does not depend on the shift."),
        (True, "partly", "Constant for small shifts; it grows like |mu| for large ones."),
    )


@claim(APPENDIX, "E|Delta w.x| <= |Delta w| E|x| by Cauchy-Schwarz", published="always")
@ridge_rule(closed_forms, "model_change")
def cauchy_schwarz_holds(closed: list[Record]) -> Finding:
    pairs = points(closed, "model_change", "model_change_bound")
    held = sum(exact <= bound for exact, bound in pairs)
    slack = statistics.median([bound / exact for exact, bound in pairs if exact])
    return first_case(
        f"{held} of {len(pairs)} points; the bound is {slack:.3g} times the exact value in the median",
        len(closed),
        (held == len(pairs), YES, "Both sides were computed exactly."),
        (True, NO, "The bound is below the exact value somewhere."),
    )


@claim(APPENDIX, "Closed forms of both weights and of their difference", published="three formulas")
@ridge_rule(reading.closed_parts)
def weights_satisfy_their_equations(checked: list[Record]) -> Finding:
    worst, draws = reading.worst_error(checked), checked[0]["config"]["num_draws"]
    return first_case(
        f"largest Monte Carlo error {worst:.1f} standard errors, {draws} draws a run",
        len(checked),
        (
            worst < STANDARD_ERRORS,
            YES,
            (
                "The normal equations hold on draws, and all that is derived from the weights agrees with draws of "
                "its own."
            ),
        ),
        (True, NO, "Draws refute at least one formula."),
    )


@claim(APPENDIX, "The two population solutions differ", published="always")
@ridge_rule(closed_forms)
def weights_differ(closed: list[Record]) -> Finding:
    equal = [r for r in closed if not any(r["curves"]["weight_change"])]
    angles = ", ".join(sorted({f"{r['config']['angle']:g}" for r in equal}))
    return first_case(
        f"equal in {len(equal)} of {len(closed)} problems",
        len(closed),
        (not equal, YES, "They differ in every problem."),
        (len(equal) == len(closed), NO, "They are the same in every problem."),
        (
            True,
            "partly",
            f"Equal where mu is orthogonal to w* (an angle of {angles} degrees): Delta w has the factor mu.w*.",
        ),
    )


@claim(APPENDIX, "Within the risk difference, Delta w is linear in the shift", published="order 1; order 2 before it")
@ridge_rule(closed_forms, "weight_change")
def weight_change_is_linear(closed: list[Record]) -> Finding:
    slope = closed_slope(closed, "weight_change")
    return first_case(
        f"slope {slope.text()}: half the shift leaves {0.5**slope.median:.3f} of |Delta w|",
        len(closed),
        (agrees(slope, 1.0), YES, "It is of first order."),
        (
            agrees(slope, 2.0),
            "contradicts itself",
            "The same appendix derives |Delta w| = |c| |mu| with c = O(|mu|), which is order 2, one paragraph earlier.",
        ),
        (True, NO, "It has neither order."),
    )


@claim(SECTION, "The bound is asymptotically sharp: it scales like the risk change", published="ratio of order 0")
@ridge_rule(closed_forms, "tightness")
def bound_is_sharp(closed: list[Record]) -> Finding:
    slope = closed_slope(closed, "tightness")
    moved, shifts = reading.with_change(closed), closed[0]["shifts"]
    ratios = {
        shifts[i]: middle_half(reading.tightness(r, i) for r in moved) for i in (0, sum(m <= 0.1 for m in shifts) - 1)
    }
    sizes = ", ".join(f"{ratio.median:.3g} at |mu| = {m:g}" for m, ratio in ratios.items())
    return first_case(
        f"bound / |Delta R|: slope {slope.text()} for |mu| <= 0.1; medians {sizes}",
        len(closed),
        (agrees(slope, 0.0), YES, "The ratio tends to a constant."),
        (
            True,
            NO,
            "The bound is of order 1, the change of order 2: their ratio grows like 1/|mu| as the shift vanishes.",
        ),
    )


@claim(SECTION, "The bound holds", published="always")
@ridge_rule(closed_forms)
def bound_holds(closed: list[Record]) -> Finding:
    shares = [abs(change) / bound for bound, change in points(closed, "bound", "risk_change")]
    held = sum(share <= 1 for share in shares)
    return first_case(
        f"{held} of {len(shares)} points; |Delta R| is at most {max(shares):.2g} of the bound",
        len(closed),
        (held == len(shares), YES, "With wide room, although quantiles stand in for constants that do not exist."),
        (True, NO, "The quantiles that stand in for L_x and L_ell are too small."),
    )


@claim(SECTION, "The update costs the source: its instability is a penalty", published="no sign of Delta R is given")
@ridge_rule(closed_forms)
def update_is_a_cost(closed: list[Record]) -> Finding:
    changes = [change for (change,) in points(closed, "risk_change")]
    better, worse = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
    return first_case(
        f"Delta R < 0 at {better} and > 0 at {worse} of {len(changes)} points",
        len(closed),
        (worse > 0, YES, "The update can harm the source."),
        (
            True,
            "partly",
            "Retraining never harms the source here: the shift undoes part of the shrinkage. The bound limits a gain.",
        ),
    )


@claim("assump:Lx", "The loss of the ridge example is Lipschitz in the inputs", published="a finite L_x(f)")
@ridge_rule(closed_forms)
def sensitivity_is_finite(closed: list[Record]) -> Finding:
    quantiles = [[value for _, value in r["quantiles"]] for r in closed]
    growth = statistics.median(values[-1] / values[1] for values in quantiles)
    tails = [tail for tail, _ in closed[0]["quantiles"]]
    return first_case(
        f"the gradient quantile grows {growth:.2f} times from 1 - q = {tails[1]:g} to {tails[-1]:g}",
        len(closed),
        (
            all(values[-1] <= 1.001 * values[-2] for values in quantiles),
            YES,
            "The quantiles settle at a largest gradient.",
        ),
        (
            True,
            NO,
            (
                "Squared error on Gaussian inputs has no largest gradient: the penalty depends on the level q that is "
                "chosen."
            ),
        ),
    )


@claim(SECTION, "The sizes on samples follow the population's", published="not computed")
@ridge_rule(reading.samples)
def samples_follow(finite: list[Record]) -> Finding:
    held = reading.diagnostics(finite)["holds"]
    apart, copied = (reading.refit_slope(finite, draws) for draws in ("fresh", "shared"))
    return first_case(
        (
            f"bound held in {held.sum()} of {len(held)}; slope of |Delta R| for |mu| <= 0.1: {apart.text()} on "
            f"separate samples, {copied.text()} on one sample and its moved copy (medians, quartiles)"
        ),
        len(finite),
        (not held.all(), NO, "The core bound fails on some samples."),
        (agrees(apart, 2.0), YES, "The bound holds, and |Delta R| has order 2 as in the limit."),
        (
            True,
            "partly",
            (
                "The core bound holds; fits to separate samples differ before any shift, which hides small ones, and "
                "fits to one sample and its moved copy differ in order 1, through the sample mean, of size 1/sqrt(n)."
            ),
        ),
    )


@claim(SECTION, "Generalisation gaps vanish in the population setting", published="0 by construction")
@ridge_rule(reading.samples)
def gaps_vanish(finite: list[Record]) -> Finding:
    rows = reading.diagnostics(finite)
    gaps, change = (rows["gap_source"] + rows["gap_target"]).median(), rows["risk_change"].abs().median()
    return first_case(
        f"on samples of {finite[0]['config']['n']}: gaps {gaps:.3g}, |Delta R| {change:.3g} (medians)",
        len(rows),
        (gaps <= 0.1 * change, YES, "Small beside the change on samples too."),
        (
            True,
            "partly",
            (
                "True of the population, where nothing is estimated; on samples they do not vanish beside the change "
                "itself."
            ),
        ),
    )


@claim(SECTION, "W1 between source and target is the distance of their means", published="W1 = |mu|")
@ridge_rule(reading.samples)
def transport_is_the_distance_of_means(finite: list[Record]) -> Finding:
    rows = reading.diagnostics(finite)
    ratios = (rows["transport"] / rows["shift"]).groupby(rows["shift"]).median()
    near, far, ends = ratios.iloc[0], ratios.iloc[-1], ratios.index[[0, -1]]
    return first_case(
        f"sample W1 / |mu| = {near:.3g} at |mu| = {ends[0]:g}, {far:.3g} at {ends[1]:g} (medians)",
        len(rows),
        (abs(far - 1) > 0.1, NO, "Even far apart, W1 is not the distance of the means."),
        (abs(near - 1) <= 0.1, YES, "At all shifts, on samples too."),
        (
            True,
            "partly",
            "True of the population; between samples W1 has a floor that hides small shifts, the higher the dimension.",
        ),
    )
