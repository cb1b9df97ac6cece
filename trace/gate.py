"""A gate for model updates: a score with its interval against a threshold, for one anchor or several."""

from __future__ import annotations

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
    """The interval that decides, at the policy's confidence."""
    threshold: float
    """Accept where the whole interval lies at or below it, reject where it lies above."""
    needed: int | None
    """About how many samples would decide; None where the decision stands, or where no number would."""
    reason: str
    """One sentence for people."""


class Verdict(NamedTuple):
    """What the gate says about an update: reject if any anchor does, accept only if all do."""

    decision: Decision
    anchors: tuple[AnchorVerdict, ...]
    worst: str
    """The anchor that decides."""


class PastUpdate(NamedTuple):
    """An earlier update whose outcome is known."""

    name: str
    score: float
    risk_change: float
    """Signed, on the anchor: positive is harm."""
