"""A gate for model updates: a score with its interval against a threshold, for one anchor or several."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..checks import check_count, check_level
from ..diagnostic import Diagnostic
from ..scores import GATE_SCORES
from .intervals import Record, SampleName, ScoreInterval, score_interval
from .verdict import AnchorVerdict, Decision, Verdict


@dataclass(frozen=True)
class Policy:
    """When to accept an update."""

    threshold: float
    score: str = "anchor_disagreement"
    confidence: float = 0.95
    """Of all intervals together; anchors and the parts of a score share what is left to 1."""
    min_source: int = 100
    min_target: int = 100
    """Smaller samples decide nothing, as far as the score looks at them."""
    anchors: tuple[str, ...] = ()
    """Anchors that must be there; any others are judged too."""
    promise: str = ""

    def __post_init__(self) -> None:
        if self.score not in GATE_SCORES:
            raise ValueError(f"score {self.score!r} is not known: use one of {', '.join(GATE_SCORES)}")
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold must be a finite number, got {self.threshold}")
        check_level(self.confidence, "confidence")
        check_count(self.min_source, "min_source")
        check_count(self.min_target, "min_target")


def decide(diagnostics: Mapping[str, Diagnostic | Record], policy: Policy) -> Verdict:
    """Accept, reject or neither, from one diagnostic per anchor: a `Diagnostic`, or its record.

    An anchor accepts where the whole interval of its score is at or below the threshold, and rejects where it is above.
    Scores of the anchor's training rows decide nothing: their interval does not hold.
    The anchors share the failure probability, so that with the policy's confidence all intervals hold at once.

    Raises:
        ValueError: without any anchor, or without one that the policy asks for.
    """
    if not diagnostics:
        raise ValueError("there is no anchor to decide on: pass at least one diagnostic")
    if absent := [name for name in policy.anchors if name not in diagnostics]:
        raise ValueError(
            f"the policy asks for anchor {', '.join(absent)}, the diagnostics have {', '.join(diagnostics)}: "
            "diagnose it too, or take it out of the policy"
        )
    delta = (1 - policy.confidence) / len(diagnostics)
    verdicts = tuple(
        _judge(name, score_interval(diagnostic, policy.score, delta=delta), policy)
        for name, diagnostic in diagnostics.items()
    )
    order: tuple[Decision, ...] = ("reject", "inconclusive", "accept")
    decision = min((v.decision for v in verdicts), key=order.index)
    deciding = [v for v in verdicts if v.decision == decision]
    worst = max(
        deciding, key=lambda v: (_or_infinite(v.lower if decision == "reject" else v.upper), _or_infinite(v.value))
    )
    return Verdict(decision, verdicts, worst.anchor, policy.confidence, policy.promise)


def _judge(anchor: str, found: ScoreInterval, policy: Policy) -> AnchorVerdict:
    t, sample, size = policy.threshold, found.sample, found.size
    value, lower, upper, limit = (shown(x, policy.score) for x in (found.value, found.lower, found.upper, t))
    sure = f"with {100 * policy.confidence:g}% confidence; the limit is {limit}"
    decision: Decision = "inconclusive"
    needed: int | None = None
    least: dict[SampleName, int] = {"anchor": policy.min_source, "target": policy.min_target}
    small = next((kind for kind, rows in found.sizes.items() if rows < least[kind]), None)
    if math.isnan(found.value):
        why = f"not available ({found.reason})"
    elif found.on_training:
        why = f"{value} on rows that the old model was trained on, which say nothing about new ones: pass anchor rows "
        why += "that no model was trained on (source_val, --source-val)"
        found = found._replace(lower=math.nan, upper=math.nan)
    elif small:
        sample, size, needed = small, found.sizes[small], least[small]
        why = f"{value}, but the policy asks for at least {needed} {sample} samples and there are {size}"
    elif found.upper <= t:
        decision, why = "accept", f"{value}, at most {upper} {sure}"
    elif found.lower > t:
        decision, why = "reject", f"{value}, at least {lower} {sure}"
    else:
        needed = _needed(found, t)
        why = f"{value}, between {lower} and {upper} {sure}"
        why += f" ({found.reason})" if found.reason else ""
        about = "at least" if math.isinf(found.upper) else "about"
        why += f"; {about} {needed} {sample} samples would decide, there are {size}" if needed else ""
    return AnchorVerdict(
        anchor,
        decision,
        policy.score,
        found.value,
        found.lower,
        found.upper,
        t,
        needed,
        f"The {GATE_SCORES[policy.score].meaning} is {why}.",
        sample,
        size,
        found.notes,
    )


def _needed(found: ScoreInterval, threshold: float) -> int | None:
    """Samples at which the interval's end, at a distance like ``n^-1/2``, would clear the threshold, or be finite.

    None where the value is on the threshold, where the end does not depend on n, or beyond 1e9.
    """
    if found.thinned:
        return None
    gap = abs(threshold - found.value)
    below = found.value <= threshold
    radius = found.upper - found.value if below else found.value - found.lower
    if math.isinf(radius):
        return found.least if found.least > found.size else None
    if gap == 0 or (found.open_below and not below):
        return None
    needed = found.size * (radius / gap) ** 2
    return max(found.size + 1, math.ceil(needed)) if needed < 1e9 else None


def shown(value: float, score: str) -> str:
    """A score for people, in percent where it is a share."""
    if math.isnan(value):
        return "n/a"
    return f"{100 * value:.3g}%" if GATE_SCORES[score].units == "share" else f"{value:.4g}"


def _or_infinite(value: float) -> float:
    return math.inf if math.isnan(value) else value
