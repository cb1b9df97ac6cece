"""What is measured for the paper's hope of anchor-aware learning (`sec:conclusion`), from the records of `anchoring`.

The paper trains no such model; its sentence names a direction, and these rows say what is found when one follows it.
"""

from __future__ import annotations

from pandas import DataFrame

from trace.stats.jackknife import StudentInterval

from ..analysis.anchoring import (
    METHODS,
    PENALTIES,
    TRIVIAL,
    anchoring_frame,
    at_equal_accuracy,
    difference,
    lower_penalties,
    lowest,
    replicated_studies,
)
from ..analysis.cells import interval
from ..analysis.summary import mean_interval
from ..engine.records import Record
from .ledger import Measurement, measure, present

TWO_SEEDS = "study with two seeds"


@measure()
def anchor_penalty_protects(records: list[Record]) -> Measurement:
    """Every penalty against the plain fine-tune, at equal target accuracy."""
    frame, shown, beyond = anchoring_frame(records), [], []
    changes: dict[str, StudentInterval] = {}
    costs: dict[str, StudentInterval] = {}
    for title, part in present(replicated_studies(frame), TWO_SEEDS):
        kinds = {kind: difference(part, kind, "plain", "abs_risk_change") for kind in PENALTIES}
        errors = {kind: difference(part, kind, "plain", "target_error") for kind in PENALTIES}
        changes |= {f"{title}, {METHODS[kind].title}": found for kind, found in kinds.items()}
        costs |= {f"{title}, {METHODS[kind].title}": found for kind, found in errors.items()}
        best = lowest(part, PENALTIES, "abs_risk_change")
        plain = float(at_equal_accuracy(part, "plain")["abs_risk_change"].mean())
        shown.append(
            f"{title}: plain {plain:.3f} nats, changed by the {METHODS[best].title}, by {interval(kinds[best])} "
            f"at {100 * errors[best].estimate:+.1f} points of target error"
        )
        beyond.append(_beyond_moving_less(title, part))
    fewer = sum(found.upper < 0 for found in changes.values())
    return Measurement(
        "; ".join(shown),
        len(frame),
        {"change": changes, "cost": costs},
        f"{fewer} of {len(changes)} pairs of study and penalty lower |Delta R|; {'; '.join(beyond)}.",
    )


def _beyond_moving_less(title: str, part: DataFrame) -> str:
    """How many penalties beat the best of the ways to move less."""
    other = lowest(part, TRIVIAL, "abs_risk_change")
    fewer = lower_penalties(part, other, "abs_risk_change")
    return f"{title}: {len(fewer)} of {len(PENALTIES)} penalties leave less of it than {METHODS[other].title}"


@measure()
def anchor_penalty_certifies(records: list[Record]) -> Measurement:
    """The certificate of the chosen updates: does it hold, does it fall, and is it below the harm it should exclude."""
    frame, covered, fallen, excess, shown = anchoring_frame(records), [], {}, {}, []
    for title, part in present(replicated_studies(frame), TWO_SEEDS):
        plain = at_equal_accuracy(part, "plain")
        best = lowest(part, PENALTIES, "anchor_upper")
        own = at_equal_accuracy(part, best)
        covered += (own["abs_risk_change"] <= own["anchor_upper"]).tolist()
        fallen[title] = difference(part, best, "plain", "anchor_upper")
        excess[title] = mean_interval(own["anchor_upper"] - plain["abs_risk_change"])
        shown.append(
            f"{title}: certificate {plain['anchor_upper'].mean():.2f} to {own['anchor_upper'].mean():.2f} nats "
            f"({METHODS[best].title}) for a plain |Delta R| of {plain['abs_risk_change'].mean():.3f}"
        )
    return Measurement(
        "; ".join(shown),
        len(frame),
        {"share": sum(covered) / len(covered), "change": fallen, "excess": excess},
        f"The certificate holds for {sum(covered)} of {len(covered)} updates.",
    )
