"""What the paper hopes of anchor-aware learning (`sec:conclusion`), judged by the records of `anchoring`.

The paper trains no such model; its sentence names a direction, and these rows say what is found when one follows it.
"""

from __future__ import annotations

from pandas import DataFrame

from ..analysis.anchoring import (
    METHODS,
    PENALTIES,
    TOLERANCE,
    TRIVIAL,
    anchoring_frame,
    at_equal_accuracy,
    difference,
    lower_penalties,
    lowest,
    replicated_studies,
)
from ..analysis.cells import interval
from ..engine.records import Record
from .ledger import Finding, claim, grade, needs, present

TWO_SEEDS = "study with two seeds"


@claim(
    "sec:conclusion",
    "Minimising the diagnostic during training lowers |Delta R| on a chosen anchor.",
    published="future work, no number",
)
@needs("anchoring")
def anchor_penalty_protects(records: list[Record]) -> Finding:
    """Every penalty against the plain fine-tune, at equal target accuracy."""
    frame, holds, shown, beyond = anchoring_frame(records), [], [], []
    for title, part in present(replicated_studies(frame), TWO_SEEDS):
        kinds = {kind: difference(part, kind, "plain", "abs_risk_change") for kind in PENALTIES}
        costs = {kind: difference(part, kind, "plain", "target_error").estimate for kind in PENALTIES}
        held = [kind for kind, found in kinds.items() if found.upper < 0 and costs[kind] <= TOLERANCE]
        holds += [kind in held for kind in kinds]
        best = lowest(part, held or PENALTIES, "abs_risk_change")
        plain = float(at_equal_accuracy(part, "plain")["abs_risk_change"].mean())
        shown.append(
            f"{title}: plain {plain:.3f} nats, changed by the {METHODS[best].title}, by {interval(kinds[best])} "
            f"at {100 * costs[best]:+.1f} points of target error"
        )
        beyond.append(_beyond_moving_less(title, part))
    return Finding(
        measured="; ".join(shown),
        runs=len(frame),
        verdict=grade(all(holds), any(holds)),
        why=(
            f"{sum(holds)} of {len(holds)} pairs of study and penalty lower |Delta R| at a target error of at most "
            f"{100 * TOLERANCE:g} point more; {'; '.join(beyond)}."
        ),
    )


def _beyond_moving_less(title: str, part: DataFrame) -> str:
    other = lowest(part, TRIVIAL, "abs_risk_change")
    fewer = lower_penalties(part, other, "abs_risk_change")
    return f"{title}: {len(fewer)} of {len(PENALTIES)} penalties leave less of it than {METHODS[other].title}"


@claim(
    "sec:conclusion",
    "Anchor-aware training enforces a performance guarantee on the anchor.",
    published="future work, no number",
)
@needs("anchoring")
def anchor_penalty_certifies(records: list[Record]) -> Finding:
    """The certificate of the chosen updates: does it hold, does it fall, and is it below the harm it should exclude."""
    frame, covered, fallen, useful, shown = anchoring_frame(records), [], [], [], []
    for title, part in present(replicated_studies(frame), TWO_SEEDS):
        plain = at_equal_accuracy(part, "plain")
        best = lowest(part, PENALTIES, "anchor_upper")
        own = at_equal_accuracy(part, best)
        covered += (own["abs_risk_change"] <= own["anchor_upper"]).tolist()
        fallen.append(difference(part, best, "plain", "anchor_upper").upper < 0)
        harm, before, after = plain["abs_risk_change"].mean(), plain["anchor_upper"].mean(), own["anchor_upper"].mean()
        useful.append(after < harm)
        shown.append(
            f"{title}: certificate {before:.2f} to {after:.2f} nats ({METHODS[best].title}) for a plain |Delta R| of "
            f"{harm:.3f}"
        )
    sound = all(covered) and all(fallen)
    return Finding(
        measured="; ".join(shown),
        runs=len(frame),
        verdict=grade(sound and all(useful), sound),
        why=(
            f"The certificate holds for {sum(covered)} of {len(covered)} updates and falls in {sum(fallen)} of "
            f"{len(fallen)} studies; it is below the plain fine-tune's |Delta R| in {sum(useful)} of them."
        ),
    )
