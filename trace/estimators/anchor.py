"""Bounds on the risk change that look at the anchor's own inputs, without labels.

The paper goes through the target sample and pays for the shift between the two. Where inputs of the anchor are at hand
(the shift term needs them anyway) the risk change has direct label-free bounds,

    |Delta R| <= E_P max_y |ell(f~(x), y) - ell(f(x), y)| <= L_ell E_P |f~(x) - f(x)|,

with the centred norm for cross-entropy, and ``|Delta error| <= P(argmax f~ != argmax f)``. A plug-in estimate of the
signed change takes the labels from the first model's predictive distribution.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import check_level, check_paired
from ..losses import Loss
from ..stats.intervals import Interval, bernstein_interval, hoeffding_interval

_NO_INTERVAL = Interval(-math.inf, math.inf, math.nan)


class AnchorTerm(NamedTuple):
    """A mean over anchor inputs and two finite-sample intervals for its population value."""

    value: float
    hoeffding: Interval
    bernstein: Interval
    reason: str = ""
    """Why the value is NaN, or why there is no interval."""
    deviation: float = math.nan
    """Standard deviation of the values; NaN for fewer than 2."""
    low: float = math.nan
    high: float = math.nan
    """The values' range: with the deviation, all that an interval at another level needs."""


class AnchorTerms(NamedTuple):
    """All anchor terms of one model pair. Every interval holds alone with its level, not all of them together."""

    worst_label: AnchorTerm
    """``E max_y |ell~ - ell| >= |Delta R|``."""
    lipschitz: AnchorTerm
    """``L_ell E |f~ - f| >= worst_label``."""
    disagreement: AnchorTerm
    """``P(argmax f~ != argmax f) >= |Delta error|``."""
    plug_in: AnchorTerm
    """``E_x E_{y ~ Q(.|x)} [ell~ - ell]``, an estimate of the signed change: no bound."""
    num_samples: int


def anchor_terms(outputs: Tensor, new_outputs: Tensor, loss: Loss, *, delta: float = 0.05) -> AnchorTerms:
    """Label-free anchor terms from both models' outputs ``[n, C]`` on the same anchor inputs.

    The inputs must be independent of both models (held out), or the intervals mean nothing.

    >>> from ..losses import ZeroOne
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> anchor_terms(z, z.flip(0)[[0, 0]], ZeroOne()).disagreement.value
    0.5
    """
    check_paired(outputs, new_outputs)
    check_level(delta, "delta")
    bound = loss.bound(outputs.shape[1])
    if math.isfinite(bound):
        worst = _term(loss.worst_label_change(outputs, new_outputs), 0, bound, delta)
    else:
        worst = _unavailable(f"{type(loss).__name__} is unbounded, so no label is the worst: give it a limit")
    return AnchorTerms(
        worst_label=worst,
        lipschitz=_lipschitz_term(outputs, new_outputs, loss, delta),
        disagreement=_disagreement_term(outputs, new_outputs, loss, delta),
        plug_in=_term(loss.expected_change(outputs, new_outputs), -bound, bound, delta),
        num_samples=len(outputs),
    )


def _term(values: Tensor, low: float, high: float, delta: float) -> AnchorTerm:
    mean = float(values.double().mean())
    if not math.isfinite(high - low):
        return AnchorTerm(mean, _NO_INTERVAL, _NO_INTERVAL, "no interval: the values have no finite range")
    return AnchorTerm(
        mean,
        hoeffding_interval(values, low, high, delta),
        bernstein_interval(values, low, high, delta),
        deviation=float(values.double().std(correction=1)) if len(values) > 1 else math.nan,
        low=low,
        high=high,
    )


def _unavailable(reason: str) -> AnchorTerm:
    return AnchorTerm(math.nan, _NO_INTERVAL, _NO_INTERVAL, reason)


def _lipschitz_term(outputs: Tensor, new_outputs: Tensor, loss: Loss, delta: float) -> AnchorTerm:
    if not math.isfinite(loss.lipschitz):
        return _unavailable(f"{type(loss).__name__} has no finite Lipschitz constant in the outputs")
    norms = loss.change_norms(outputs, new_outputs)
    return _term(loss.lipschitz * norms, 0, loss.lipschitz * loss.output_diameter(outputs.shape[1]), delta)


def _disagreement_term(outputs: Tensor, new_outputs: Tensor, loss: Loss, delta: float) -> AnchorTerm:
    if not loss.classification:
        return _unavailable("disagreement is defined for classification only")
    return _term((outputs.argmax(dim=1) != new_outputs.argmax(dim=1)).to(torch.float64), 0, 1, delta)
