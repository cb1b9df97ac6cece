"""What can be said about ``|Delta R|``, which of it holds, and the smallest number that does.

Beside the corollary's bounds stand two of fewer terms. With ``G(x) = max_y |ell(f~(x), y) - ell(f(x), y)|``,

    |Delta R| <= E_P G <= E_P~ G + Lip(G) W1(P, P~)      (Kantorovich and Rubinstein)
              <= L_ell E_P~ |f~ - f| + (L_Q + L_Q~) W1(P, P~)                       `bound_direct`

as G is a maximum of differences of functions with the constants L_Q and L_Q~, which must therefore hold under every
label. Nothing is assumed of labels, and no gap, label noise or validation error is paid. The way of the paper's proof
through ``phi(x) = E[ell(f(x), y) | x]`` is not open: phi need not be Lipschitz where ``P(y|x)`` varies. Constant logits
have ``L_x = 0``, and their risks on two domains differ all the same.

The loss moves by no more than ``H(x) = min(L_ell |f~(x) - f(x)|, M)``, which has the constant ``L_ell Lip(f~ - f)``, so

    |Delta R| <= E_P~ min(L_ell |f~ - f|, M) + L_ell Lip(f~ - f) W1(P, P~)          `bound_difference`

between outputs as they are: clipped ones may part faster than the models do. It is 0 for ``Q~ = Q``.

Both hold for certified constants, the W1 of all that was drawn from (`w1_excess`) and expectations over rows that no
model was trained on. With the largest slopes that were seen instead they are conditional, as the corollary's bounds are
on quantiles: they describe, and are never the best statement.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

from .estimators.anchor import AnchorTerm
from .estimators.output_distance import OutputDistance
from .estimators.remainders import w1_excess
from .evidence import CappedChange, Evidence
from .settings import Settings
from .stats.betting import confidence_sequence

Constants = Literal["seen", "certified"]
"""Where Lipschitz constants come from: rows, from below; or the layers of the models, from above."""
DIRECT: dict[Constants, tuple[str, str]] = {
    "seen": ("largest_gradient_source", "largest_gradient_target"),
    "certified": ("certified_source", "certified_target"),
}
CHANGE: dict[Constants, str] = {"seen": "jacobian_change", "certified": "certified_change"}
"""What the two bounds read, by name."""

Event = Literal["fails", "holds", "unknown"]
_SLACK = 1e-5
"""Relative difference that rounding may make between two ways to the same gradient."""


def bound_direct(v: Mapping[str, Any], constants: Constants = "seen") -> Any:
    """``L_ell E_P~ |f~ - f| + (L_Q + L_Q~) W1``, with constants under all labels."""
    source, target = DIRECT[constants]
    return v["lipschitz_loss"] * v["held_out_distance"] + (v[source] + v[target]) * v["wasserstein1_input"]


def bound_difference(v: Mapping[str, Any], constants: Constants = "seen") -> Any:
    """``E_P~ min(L_ell |f~ - f|, M) + L_ell Lip(f~ - f) W1``."""
    return v["capped_change"] + v["lipschitz_loss"] * v[CHANGE[constants]] * v["wasserstein1_input"]


class Statement(NamedTuple):
    """``|Delta R| <= value``."""

    name: str
    value: float
    level: float
    """Probability with which it holds, together with all others that are valid; NaN where none is claimed."""
    valid: bool
    """It holds, given ``needs``; otherwise it stands on conditions that are not known to hold."""
    vacuous: bool
    """At or above the largest change that the loss allows."""
    needs: str
    """What it takes for granted."""


class _AtLevel(NamedTuple):
    """A statement at any level."""

    at: Callable[[float], float]
    """Its value, which fails with at most this probability."""
    valid: bool
    needs: str


def statements(e: Evidence, s: Settings, bounds: Mapping[str, float], level: float) -> tuple[Statement, ...]:
    """Everything that is known about ``|Delta R|``, valid ones first.

    The valid ones share ``delta``, so that all of them, and so the smallest, hold with probability ``1 - delta``.

    Args:
        bounds: the corollary's, by name; ``level`` is what it promises for those with all remainders.
    """
    parts = {**_on_anchor(e), **_two_terms(e, s)}
    share = s.delta / max(1, sum(part.valid for part in parts.values()))
    found = [
        ("loss_range", e.loss_range, 1.0, True, "nothing but the range of the loss"),
        *((name, part.at(share), 1 - s.delta, part.valid, part.needs) for name, part in parts.items()),
        *((name, bound, level if "full" in name else math.nan, False, _COROLLARY) for name, bound in bounds.items()),
    ]
    known = [
        Statement(name, value, probability, valid, value >= e.loss_range, needs)
        for name, value, probability, valid, needs in found
        if math.isfinite(value)
    ]
    return tuple(sorted(known, key=lambda statement: not statement.valid))


def best(known: tuple[Statement, ...]) -> Statement | None:
    """The smallest of the valid ones; None where the loss is unbounded and nothing else is valid."""
    return min((statement for statement in known if statement.valid), key=lambda each: each.value, default=None)


def proxy_event(quantile: float, largest: float, certified: float) -> Event:
    """Whether ``L^(q) >= L_x``, the event that the corollary conditions on, is known to hold or to fail.

    It fails where a gradient that was seen, under any label, exceeds the quantile; it holds where not even the
    certified constant does. NaN stands for what is not known.

    >>> proxy_event(1.0, 1.2, math.nan), proxy_event(1.0, 0.9, 1.0), proxy_event(1.0, 1.0, 3.0)
    ('fails', 'holds', 'unknown')
    """
    if largest > quantile * (1 + _SLACK):
        return "fails"
    return "holds" if certified <= quantile * (1 + _SLACK) else "unknown"


_COROLLARY = (
    "gradient quantiles that are no less than the Lipschitz constants, a conditional risk E[loss | x] as smooth as the "
    "loss, a distance between features in place of W1, and models that do not depend on their samples' labels"
)
_ROWS = "the rows of {} are independent draws of the {} that no model was trained on"


def _on_anchor(e: Evidence) -> dict[str, _AtLevel]:
    """From rows of the anchor: the label-free bound, and the estimate from labels."""
    found, term, labelled = {}, e.anchor.worst_label, e.labelled
    if "anchor" not in e.reasons and term.tally is not None:
        found["anchor_worst_label"] = _AtLevel(
            lambda delta: _upper_mean(term, delta), True, _ROWS.format("source_val", "anchor") + "; no labels are used"
        )
    if labelled is not None and labelled.risk.tally is not None:

        def largest(delta: float) -> float:
            ends = labelled.risk.interval(delta)
            return max(-ends.lower, ends.upper)

        found["labelled"] = _AtLevel(largest, True, _ROWS.format(labelled.sample, "anchor") + "; their labels are used")
    return found


def _two_terms(e: Evidence, s: Settings) -> dict[str, _AtLevel]:
    """`bound_direct` and `bound_difference`: with certified constants where that makes them valid."""
    moved, capped, w1 = e.held_out_distance, e.capped_change, e.wasserstein1_input
    if moved is None or capped is None or w1 is None or "target" in e.reasons:
        return {}
    diameter = s.input_diameter or w1.diameter
    values = {name: value_of(getattr(e, name)) for names in (*DIRECT.values(), CHANGE.values()) for name in names}

    def ends(delta: float) -> dict[str, float]:
        """What is estimated, from above."""
        return {
            **values,
            "lipschitz_loss": e.lipschitz,
            "held_out_distance": _upper_mean(moved, delta / 2),
            "capped_change": _upper_mean(capped, delta / 2),
            "wasserstein1_input": w1.value + (w1_excess(*w1.sizes, diameter, delta / 2) if diameter else 0.0),
        }

    found = {}
    for name, formula, constants in (
        ("bound_direct", bound_direct, DIRECT["certified"]),
        ("bound_difference", bound_difference, (CHANGE["certified"],)),
    ):
        bounded = math.isfinite(e.loss_range) and s.input_diameter is not None
        valid = bounded and not any(math.isnan(values[constant]) for constant in constants)
        kind: Constants = "certified" if valid else "seen"
        found[name] = _AtLevel(partial(_at, formula, ends, kind), valid, _needs(valid, s.input_diameter))
    return found


def _at(
    formula: Callable[[Mapping[str, Any], Constants], Any],
    ends: Callable[[float], dict[str, float]],
    kind: Constants,
    delta: float,
) -> float:
    return float(formula(ends(delta), kind))


def _needs(valid: bool, diameter: float | None) -> str:
    assumed = [_ROWS.format("target_val", "target"), "the rows of source and target are independent draws"]
    if not valid:
        assumed.append("no slope is steeper than the steepest that was seen")
    within = "no two inputs lie further apart than the rows that were seen do"
    assumed.append(within if diameter is None else f"no two inputs lie further apart than {diameter:g}")
    return "; ".join([*assumed, "no labels are used"])


def _upper_mean(estimate: AnchorTerm | OutputDistance | CappedChange, delta: float) -> float:
    """The upper end of a mean's confidence sequence; the mean itself where its values have no range."""
    return estimate.value if estimate.tally is None else confidence_sequence(estimate.tally, delta, "below").upper


def value_of(estimate: Any) -> float:
    """An estimate's value; NaN where there is none."""
    return math.nan if estimate is None else float(getattr(estimate, "value", estimate))
