"""Ranking and gate scores: TRACE-Proxy with its calibration, TRACE-W and TRACE-MMD.

Higher predicts more harm on the anchor domain. Each score adds a model change, in units of the logits, and a shift
factor. Only the proxy rescales that factor (``app:proxy-and-cal``); the gate scores take it as it is
(``app:gate-scores``), so they depend on the units of the features.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from .checks import check_positive

SINKHORN_SLACK = 1e-3
"""A debiased Sinkhorn divergence this far below 0 is a numerical zero; it counts as 0."""

MIN_CANDIDATES = 3
"""Fewest development candidates; the paper takes 3 to 5."""


class Candidate(NamedTuple):
    """One updated model, measured without labels. ``sensitivity * distance`` is its shift factor."""

    name: str
    output_distance: float
    """M_l2, the model change."""
    sensitivity: float
    """L_x^(q), the gradient quantile; with either distance."""
    distance: float
    """Sinkhorn divergence or MMD, one kind for all candidates."""


class Calibration(NamedTuple):
    """The frozen scale of the proxy's shift factor."""

    c_h: float
    names: tuple[str, ...]
    """Development candidates, which no evaluation may use again."""


def with_shift(change: float, scale: float, distance: float) -> float:
    """``change + scale max(distance, 0)``, the form of all scores.

    Unchecked: NaN stays, and ``0 * inf = 0``, since an unknown but finite factor of nothing is nothing.

    >>> with_shift(1.0, 2.0, -1e-4), with_shift(1.0, 0.0, math.inf)
    (1.0, 1.0)
    """
    d = max(distance, 0.0)
    return change + (0.0 if 0.0 in (scale, d) else scale * d)


def trace_proxy(output_distance: float, sensitivity: float, distance: float, *, c_h: float) -> float:
    """TRACE-Proxy ``M_l2 + c_h L_x^(q) Distance`` (``app:proxy-and-cal``), a ranking score and not a bound.

    Args:
        output_distance: M_l2, the model change.
        sensitivity: L_x^(q), the gradient quantile.
        distance: Sinkhorn divergence (down to ``-SINKHORN_SLACK``) or MMD.
        c_h: from `calibrate_c_h`, the same for all candidates that are ranked together.

    Raises:
        ValueError: for a NaN, infinite or negative input, or ``c_h`` that is not positive.

    >>> trace_proxy(1.0, 2.0, 0.5, c_h=3.0)
    4.0
    """
    change, scale = _nonnegative(output_distance, "output_distance"), _nonnegative(sensitivity, "sensitivity")
    distance = _nonnegative(distance, "distance", slack=SINKHORN_SLACK)
    return with_shift(change, check_positive(c_h, "c_h") * scale, distance)


def calibrate_c_h(development: Sequence[Candidate], *, evaluation: Sequence[str]) -> Calibration:
    """``c_h = median(M_l2) / median(L_x^(q) Distance)`` over development candidates (``app:proxy-and-cal``).

    Unsupervised, once per pair of domains, then frozen.

    Args:
        development: at least 3 candidates with different names; the paper takes 3 to 5.
        evaluation: names of all candidates that the proxy will rank. None may stand in ``development``.

    Raises:
        ValueError: for too few or repeated candidates, an overlap with ``evaluation``, an invalid measurement, or a
            median that is zero or not finite, so that the ratio has no meaning.

    >>> models = [Candidate("a", 1.0, 2.0, 0.1), Candidate("b", 2.0, 2.0, 0.2), Candidate("c", 9.0, 2.0, 0.9)]
    >>> calibrate_c_h(models, evaluation=["d", "e"])
    Calibration(c_h=5.0, names=('a', 'b', 'c'))
    """
    names = tuple(candidate.name for candidate in development)
    _check_disjoint(names, evaluation)
    changes = [_nonnegative(c.output_distance, f"output_distance of {c.name!r}") for c in development]
    shifts = [
        with_shift(
            0.0,
            _nonnegative(c.sensitivity, f"sensitivity of {c.name!r}"),
            _nonnegative(c.distance, f"distance of {c.name!r}", slack=SINKHORN_SLACK),
        )
        for c in development
    ]
    change = _positive_median(changes, "output_distance", "take candidates whose outputs differ from the first model's")
    shift = _positive_median(shifts, "sensitivity * distance", "take candidates with a shift above the numerical zero")
    return Calibration(change / shift, names)


def trace_w(output_distance: float, sensitivity_new: float, sinkhorn: float) -> float:
    """Gate score TRACE-W ``M_l2 + L_x(f~) W`` (``app:gate-scores``).

    Args:
        output_distance: M_l2, the model change.
        sensitivity_new: L_x of the updated model.
        sinkhorn: the paper's W, a Sinkhorn divergence in squared feature units; values down to ``-SINKHORN_SLACK``
            are numerical zeros and count as 0.

    Raises:
        ValueError: for a NaN, infinite or negative input.

    >>> trace_w(1.0, 2.0, 0.25)
    1.5
    """
    change, scale = _nonnegative(output_distance, "output_distance"), _nonnegative(sensitivity_new, "sensitivity_new")
    return with_shift(change, scale, _nonnegative(sinkhorn, "sinkhorn", slack=SINKHORN_SLACK))


def trace_mmd(output_distance: float, rkhs_norm: float, mmd: float) -> float:
    """Gate score TRACE-MMD ``M_l2 + B MMD`` (``app:gate-scores``).

    Args:
        output_distance: M_l2, the model change.
        rkhs_norm: B, the norm of the updated model's loss in the kernel's space.
        mmd: the distance itself, not its square.

    Raises:
        ValueError: for a NaN, infinite or negative input.

    >>> trace_mmd(1.0, 4.0, 0.25)
    2.0
    """
    change, scale = _nonnegative(output_distance, "output_distance"), _nonnegative(rkhs_norm, "rkhs_norm")
    return with_shift(change, scale, _nonnegative(mmd, "mmd"))


def _nonnegative(value: float, name: str, *, slack: float = 0.0) -> float:
    if not math.isfinite(value):
        raise ValueError(
            f"{name} is {float(value)}: leave out what its estimator could not measure, or measure it again"
        )
    if value < -slack:
        raise ValueError(
            f"{name} must be at least {-slack or 0:g}, got {float(value):g}: check its estimator's convergence"
        )
    return float(value)


def _check_disjoint(names: tuple[str, ...], evaluation: Sequence[str]) -> None:
    if isinstance(evaluation, str):
        raise ValueError(f"evaluation must be a sequence of names, got the string {evaluation!r}: use [{evaluation!r}]")
    if len(names) < MIN_CANDIDATES:
        raise ValueError(f"development has {len(names)} candidates, at least {MIN_CANDIDATES} are needed: add some")
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(f"development names {', '.join(repeated)} more than once: give each candidate its own name")
    shared = sorted(set(names) & set(evaluation))
    if shared:
        raise ValueError(
            f"development and evaluation share {', '.join(shared)}: calibrate on candidates that are not ranked"
        )


def _positive_median(values: list[float], name: str, remedy: str) -> float:
    middle = median(values)
    if not (math.isfinite(middle) and middle > 0):
        raise ValueError(f"the median of {name} over development is {middle:g}, so c_h is undefined: {remedy}")
    return middle
