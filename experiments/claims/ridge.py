"""What is measured for the claims of the ridge example (``sec:theoretical_example``, ``app:ridge_derivation``)."""

from __future__ import annotations

import statistics

from ..analysis import ridge as reading
from ..analysis.ridge import Spread, closed_forms, closed_slope, middle_half, points
from ..engine.records import Record
from .ledger import Measurement, measure, present
from .rule import Estimated

CHANGING = "such problem whose risk changes"


def order_of(closed: list[Record], curve: str, regime: str = "small") -> tuple[Spread, Estimated]:
    """A slope in log-log coordinates: the median over problems, and the widest ends of their intervals."""
    slope = closed_slope(closed, curve, regime)
    present(range(slope.num_records), CHANGING)
    return slope, Estimated(slope.median, slope.lower, slope.upper)


@measure(closed_forms, CHANGING)
def ridge_order(closed: list[Record], curve: str) -> Measurement:
    slope, order = order_of(closed, curve)
    return Measurement(f"slope {slope.text()} in log|mu| for |mu| <= 0.1", len(closed), {"order": order})


@measure(closed_forms, CHANGING)
def model_change_is_lower_order(closed: list[Record]) -> Measurement:
    (change, own), (shift, theirs) = (order_of(closed, name) for name in ("model_change", "shift_penalty"))
    far, _ = order_of(closed, "model_change", "large")
    gap = Estimated(own.estimate - theirs.estimate, own.lower - theirs.upper, own.upper - theirs.lower)
    return Measurement(
        f"slopes {change.text()} and {shift.text()} for |mu| <= 0.1; of the change {far.text()} for |mu| >= 10",
        len(closed),
        {"difference of orders": gap},
    )


@measure(closed_forms, CHANGING)
def mean_norm_is_constant(closed: list[Record]) -> Measurement:
    (small, near), (large, far) = (order_of(closed, "mean_norm", regime) for regime in ("small", "large"))
    return Measurement(
        f"slope {small.text()} for |mu| <= 0.1, {large.text()} for |mu| >= 10",
        len(closed),
        {"small shifts": near, "large shifts": far},
    )


@measure(closed_forms, CHANGING)
def cauchy_schwarz_holds(closed: list[Record]) -> Measurement:
    pairs = points(reading.with_change(closed), "model_change", "model_change_bound")
    present(pairs, CHANGING)
    held = sum(exact <= bound for exact, bound in pairs)
    slack = statistics.median([bound / exact for exact, bound in pairs if exact])
    return Measurement(
        f"{held} of {len(pairs)} points; the bound is {slack:.3g} times the exact value in the median",
        len(closed),
        {"share": held / len(pairs)},
    )


@measure(reading.closed_parts, "closed form")
def weights_satisfy_their_equations(checked: list[Record]) -> Measurement:
    worst, draws = reading.worst_error(checked), checked[0]["config"]["num_draws"]
    return Measurement(
        f"largest Monte Carlo error {worst:.1f} standard errors, {draws} draws a run", len(checked), {"error": worst}
    )


@measure(closed_forms, CHANGING)
def weights_differ(closed: list[Record]) -> Measurement:
    equal = [r for r in closed if not any(r["curves"]["weight_change"])]
    angles = ", ".join(sorted({f"{r['config']['angle']:g}" for r in equal}))
    note = f"Equal where mu is orthogonal to w* (an angle of {angles} degrees): Delta w has the factor mu.w*."
    return Measurement(
        f"equal in {len(equal)} of {len(closed)} problems",
        len(closed),
        {"share equal": len(equal) / len(closed)},
        note if equal else "",
    )


@measure(closed_forms, CHANGING)
def weight_change_is_linear(closed: list[Record]) -> Measurement:
    slope, order = order_of(closed, "weight_change")
    return Measurement(
        f"slope {slope.text()}: half the shift leaves {0.5**slope.median:.3f} of |Delta w|",
        len(closed),
        {"order": order},
    )


@measure(closed_forms, CHANGING)
def bound_is_sharp(closed: list[Record]) -> Measurement:
    slope, order = order_of(closed, "tightness")
    moved, shifts = reading.with_change(closed), closed[0]["shifts"]
    ratios = {
        shifts[i]: middle_half(reading.tightness(r, i) for r in moved) for i in (0, sum(m <= 0.1 for m in shifts) - 1)
    }
    sizes = ", ".join(f"{ratio.median:.3g} at |mu| = {m:g}" for m, ratio in ratios.items())
    return Measurement(
        f"bound / |Delta R|: slope {slope.text()} for |mu| <= 0.1; medians {sizes}", len(closed), {"order": order}
    )


@measure(closed_forms, CHANGING)
def ridge_bound_holds(closed: list[Record]) -> Measurement:
    shares = [abs(change) / bound for bound, change in points(closed, "bound", "risk_change")]
    held = sum(share <= 1 for share in shares)
    return Measurement(
        f"{held} of {len(shares)} points; |Delta R| is at most {max(shares):.2g} of the bound",
        len(closed),
        {"share": held / len(shares)},
    )


@measure(closed_forms, CHANGING)
def update_is_a_cost(closed: list[Record]) -> Measurement:
    changes = [change for (change,) in points(closed, "risk_change")]
    better, worse = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
    return Measurement(
        f"Delta R < 0 at {better} and > 0 at {worse} of {len(changes)} points", len(closed), {"harmed": worse}
    )


@measure(closed_forms, CHANGING)
def sensitivity_is_finite(closed: list[Record]) -> Measurement:
    quantiles = [[value for _, value in r["quantiles"]] for r in closed]
    growth = statistics.median(values[-1] / values[1] for values in quantiles)
    tails = [tail for tail, _ in closed[0]["quantiles"]]
    return Measurement(
        f"the gradient quantile grows {growth:.2f} times from 1 - q = {tails[1]:g} to {tails[-1]:g}",
        len(closed),
        {"last step": max(values[-1] / values[-2] for values in quantiles)},
    )


@measure(reading.samples, "samples")
def samples_follow(finite: list[Record]) -> Measurement:
    held = reading.diagnostics(finite)["holds"]
    apart, copied = (reading.refit_slope(finite, draws) for draws in ("fresh", "shared"))
    return Measurement(
        f"bound held in {held.sum()} of {len(held)}; slope of |Delta R| for |mu| <= 0.1: {apart.text()} on separate "
        f"samples, {copied.text()} on one sample and its moved copy (medians, quartiles)",
        len(finite),
        {"share": float(held.mean()), "order": Estimated(apart.median, apart.lower, apart.upper)},
    )


@measure(reading.samples, "samples")
def gaps_on_samples(finite: list[Record]) -> Measurement:
    rows = reading.diagnostics(finite)
    gaps, change = (rows["gap_source"] + rows["gap_target"]).median(), rows["risk_change"].abs().median()
    return Measurement(
        f"on samples of {finite[0]['config']['n']}: gaps {gaps:.3g}, |Delta R| {change:.3g} (medians)",
        len(rows),
        {"gaps over change": float(gaps / change)},
    )


@measure(reading.samples, "samples")
def transport_on_samples(finite: list[Record]) -> Measurement:
    rows = reading.diagnostics(finite)
    ratios = (rows["transport"] / rows["shift"]).groupby(rows["shift"]).median()
    near, far, ends = ratios.iloc[0], ratios.iloc[-1], ratios.index[[0, -1]]
    return Measurement(
        f"sample W1 / |mu| = {near:.3g} at |mu| = {ends[0]:g}, {far:.3g} at {ends[1]:g} (medians)",
        len(rows),
        {"smallest shift": float(near), "largest shift": float(far)},
    )


@measure()
def diagnosed_with(records: list[Record], loss: str) -> Measurement:
    """Share of fits to samples for which the core bound holds, with a given loss."""
    finite = reading.samples(records, loss)
    rows = reading.diagnostics(present(finite, f"fits diagnosed with the {loss} loss"))
    ratio = (rows["bound_core"] / rows["risk_change"].abs()).median()
    return Measurement(
        f"core bound held in {rows['holds'].sum()} of {len(rows)}",
        len(rows),
        {"share": float(rows["holds"].mean())},
        f"It is {ratio:.3g} times |Delta R| in the median.",
    )
