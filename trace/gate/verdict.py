"""What a gate says about an update, anchor by anchor."""

import math
from typing import Literal, NamedTuple

Decision = Literal["accept", "reject", "inconclusive"]


class AnchorVerdict(NamedTuple):
    """What the gate says about one anchor."""

    anchor: str
    decision: Decision
    score: str
    """Name of the score, such as ``anchor_disagreement`` or ``trace_w``; higher predicts more harm."""
    value: float
    lower: float
    upper: float
    """The interval that decides, at the policy's confidence; NaN where none holds."""
    threshold: float
    """Accept where the whole interval lies at or below it, reject where it lies above."""
    needed: int | None
    """About how many samples would decide; None where the decision stands, or where no number would."""
    reason: str
    """One sentence for people."""
    sample: str = ""
    """Which sample ``needed`` counts: "anchor" or "target"."""
    size: int = 0
    """How many it has now."""
    notes: tuple[str, ...] = ()
    """What the interval takes for granted."""


class Verdict(NamedTuple):
    """What the gate says about an update: reject if any anchor does, accept only if all do."""

    decision: Decision
    anchors: tuple[AnchorVerdict, ...]
    worst: str
    """The anchor that decides."""
    confidence: float = math.nan
    """All intervals hold together with at least this probability."""
    promise: str = ""
    """What a calibrated threshold promises, in words; empty for one that was set by hand."""
