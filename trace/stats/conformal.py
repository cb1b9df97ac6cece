"""A gate's threshold from past updates, with a finite-sample promise on harmful updates that it accepts.

An update is harmful if it raised the anchor's risk by more than a tolerance. With the harmful scores sorted,
``s_(1) <= s_(2) <= ...``, a gate that accepts below ``s_(k)`` promises, for a new update exchangeable with the past,

* "conditional": ``P(accept | harmful) <= alpha`` with ``k = floor(alpha (m + 1))``, m past harmful updates (split
  conformal prediction: the new score is among the k smallest of m + 1 with probability at most k / (m + 1));
* "joint": ``P(accept and harmful) <= alpha`` with ``k = floor(alpha (n + 1))``, n past updates of any outcome
  (conformal risk control, Angelopoulos et al., 2024);
* "pac": with probability ``1 - delta`` over the past updates, ``P(accept | harmful) <= alpha``; k is the largest with
  ``P(Binomial(m, alpha) < k) <= delta``.

No model of the scores is needed, ties are safe. What the promise rests on is exchangeability: past updates must have
come about like the new one. A gate that accepts only where a score's whole interval is below keeps the promise.
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple

from ..checks import check_level

Guarantee = Literal["conditional", "joint", "pac"]
GUARANTEES: tuple[Guarantee, ...] = ("conditional", "joint", "pac")


class PastUpdate(NamedTuple):
    """An earlier update whose outcome is known."""

    name: str
    score: float
    risk_change: float
    """Signed, on the anchor: positive is harm."""


class TooFewUpdatesError(ValueError):
    """No threshold can keep the promise with so few past updates."""


class ThresholdCalibration(NamedTuple):
    """A threshold and what it promises."""

    threshold: float
    """Accept at or below it."""
    guarantee: Guarantee
    max_harmful_accepted: float
    """alpha."""
    delta: float
    """Of "pac"; 0 for the others."""
    harm_above: float
    """A rise of the anchor's risk beyond this is harm."""
    rank: int
    """k: the threshold is just below the k-th smallest harmful score."""
    num_past: int
    num_harmful: int
    safe_rejected: int
    """Safe past updates that this procedure would have rejected, each judged by the others (leave-one-out)."""
    harmful_accepted: int
    """Harmful ones it would have accepted, likewise."""

    @property
    def power(self) -> float:
        """Share of safe past updates that would have been accepted; NaN without any."""
        safe = self.num_past - self.num_harmful
        return 1 - self.safe_rejected / safe if safe else math.nan

    def in_words(self) -> str:
        """The promise in one sentence, and the power in another."""
        alpha, safe = f"{100 * self.max_harmful_accepted:g}%", self.num_past - self.num_harmful
        promise = {
            "conditional": f"A harmful update is accepted with probability at most {alpha}",
            "joint": f"An update is both harmful and accepted with probability at most {alpha}",
            "pac": f"With confidence {100 * (1 - self.delta):g}%, at most {alpha} of harmful updates are accepted",
        }[self.guarantee]
        return (
            f"{promise}, if it is exchangeable with the {self.num_past} past updates ({self.num_harmful} harmful: "
            f"risk up by more than {self.harm_above:g}). Judged by the others, {safe - self.safe_rejected} of {safe} "
            f"safe past updates would have been accepted, and {self.harmful_accepted} of {self.num_harmful} harmful."
        )


def calibrate_threshold(
    past: Sequence[PastUpdate],
    *,
    harm_above: float = 0.0,
    max_harmful_accepted: float = 0.1,
    guarantee: Guarantee = "conditional",
    delta: float = 0.05,
) -> ThresholdCalibration:
    """The largest threshold that keeps the promise.

    Where even the largest harmful score may be accepted ("joint", few harmful updates), the threshold is the largest
    past score: beyond it there is no experience.

    Args:
        past: updates with known outcomes; with several anchors, the worst score and the worst change of each.
        harm_above: the tolerated rise of the anchor's risk.
        max_harmful_accepted: alpha, the promised rate.
        delta: for "pac", how often the past updates may mislead.

    Raises:
        TooFewUpdatesError: where no threshold keeps the promise; the message says how many updates would.
        ValueError: for scores or changes that are not finite, repeated names, or invalid levels.

    >>> past = [PastUpdate(str(i), float(i), 0.1 if i > 5 else -0.1) for i in range(15)]
    >>> found = calibrate_threshold(past, max_harmful_accepted=0.2)
    >>> found.rank, round(found.threshold, 6), found.power
    (2, 7.0, 1.0)
    """
    check_level(max_harmful_accepted, "max_harmful_accepted")
    check_level(delta, "delta")
    if guarantee not in GUARANTEES:
        raise ValueError(f"guarantee must be one of {', '.join(GUARANTEES)}, got {guarantee!r}")
    _check_past(past, harm_above)
    alpha = max_harmful_accepted

    def threshold(updates: Sequence[PastUpdate]) -> tuple[int, float]:
        return _threshold(updates, harm_above, alpha, guarantee, delta)

    harmful = [u for u in past if u.risk_change > harm_above]
    rank, value = threshold(past)
    if rank == 0:
        raise TooFewUpdatesError(_too_few(len(past), len(harmful), alpha, guarantee, delta))
    accepted = [u for i, u in enumerate(past) if u.score <= threshold([*past[:i], *past[i + 1 :]])[1]]
    harmful_accepted = sum(u.risk_change > harm_above for u in accepted)
    return ThresholdCalibration(
        value,
        guarantee,
        alpha,
        delta if guarantee == "pac" else 0.0,
        harm_above,
        rank,
        len(past),
        len(harmful),
        safe_rejected=len(past) - len(harmful) - (len(accepted) - harmful_accepted),
        harmful_accepted=harmful_accepted,
    )


def _threshold(
    past: Sequence[PastUpdate], harm_above: float, alpha: float, guarantee: Guarantee, delta: float
) -> tuple[int, float]:
    """Rank k and the largest number below ``s_(k)``; 0 and minus infinity where there is none."""
    scores = sorted(u.score for u in past if u.risk_change > harm_above)
    if guarantee == "pac":
        rank = _pac_rank(len(scores), alpha, delta)
    else:
        rank = _floor(alpha, (len(past) if guarantee == "joint" else len(scores)) + 1)
    if rank == 0:
        return 0, -math.inf
    if rank > len(scores):
        return rank, max(u.score for u in past)
    return rank, math.nextafter(scores[rank - 1], -math.inf)


@cache
def _floor(alpha: float, count: int) -> int:
    """``floor(alpha count)`` for alpha as it is written: 0.29 * 100 is 29, which floats miss."""
    return math.floor(Fraction(repr(float(alpha))) * count)


@cache
def _pac_rank(m: int, alpha: float, delta: float) -> int:
    """The largest k with ``P(Binomial(m, alpha) <= k - 1) <= delta``."""
    from scipy.stats import binom

    rank = int(binom.ppf(delta, m, alpha)) if m else 0
    return rank + 1 if m and binom.cdf(rank, m, alpha) <= delta else rank


def _too_few(n: int, m: int, alpha: float, guarantee: Guarantee, delta: float) -> str:
    if guarantee == "joint":
        have, needed = f"there are {n} past updates", math.ceil(1 / Fraction(repr(float(alpha)))) - 1
    else:
        have = f"{m} of {n} past updates were harmful"
        exact = math.log(delta) / math.log1p(-alpha) if guarantee == "pac" else 1 / Fraction(repr(float(alpha))) - 1
        needed = math.ceil(exact)
    kind = "" if guarantee == "joint" else "harmful "
    return (
        f"{have}, and a promise of {100 * alpha:g}% needs at least {needed} {kind}ones: add past updates, "
        "or promise less with a larger max_harmful_accepted"
    )


def _check_past(past: Sequence[PastUpdate], harm_above: float) -> None:
    if not math.isfinite(harm_above):
        raise ValueError(f"harm_above must be a finite number, got {harm_above}")
    for update in past:
        if not (math.isfinite(update.score) and math.isfinite(update.risk_change)):
            raise ValueError(f"past update {update.name!r} has no finite score and risk_change: leave it out")
    if repeated := sorted(name for name, count in Counter(update.name for update in past).items() if count > 1):
        raise ValueError(f"past updates share the name {', '.join(repeated)}: give each its own")
