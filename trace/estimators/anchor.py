"""Bounds on the risk change that look at the anchor's own inputs, without labels.

The paper goes through the target sample and pays for the shift between the two. Where inputs of the anchor are at hand
(the shift term needs them anyway) the risk change has direct label-free bounds,

    |Delta R| <= E_P max_y |ell(f~(x), y) - ell(f(x), y)| <= L_ell E_P |f~(x) - f(x)|,

with the centred norm for cross-entropy, and ``|Delta error| <= P(argmax f~ != argmax f)``. Plug-in estimates of the
change of the risk and of the error take the labels from the first model's predictive distribution.
"""

import math
from typing import NamedTuple

from torch import Tensor

from ..checks import check_paired
from ..hardware import doubled
from ..losses import Loss, ZeroOne
from ..stats.betting import Tally, confidence_sequence, tally
from ..stats.intervals import Interval


class AnchorTerm(NamedTuple):
    """A mean over anchor inputs, and the tally of its rows, from which any interval for its population value comes."""

    value: float
    tally: Tally | None = None
    """None where the values have no finite range."""
    reason: str = ""
    """Why the value is NaN, or why there is no interval."""
    deviation: float = math.nan
    """Standard deviation of the values; NaN for fewer than 2."""

    def interval(self, delta: float) -> Interval:
        """With probability ``1 - delta`` it holds the population value after every row at once."""
        if self.tally is None:
            return Interval(-math.inf, math.inf, 1 - delta)
        return confidence_sequence(self.tally, delta)


class AnchorTerms(NamedTuple):
    """All anchor terms of one model pair."""

    worst_label: AnchorTerm
    """``E max_y |ell~ - ell| >= |Delta R|``."""
    lipschitz: AnchorTerm
    """``L_ell E |f~ - f| >= worst_label``."""
    disagreement: AnchorTerm
    """``P(argmax f~ != argmax f) >= |Delta error|``."""
    plug_in: AnchorTerm
    """``E_x E_{y ~ Q(.|x)} [ell~ - ell]``, an estimate of the signed change: no bound."""
    error_plug_in: AnchorTerm
    """``E_x [max_y Q(y|x) - Q(argmax f~(x)|x)]``, for the error: a disagreement counts as far as Q was sure."""
    num_samples: int


def anchor_terms(outputs: Tensor, new_outputs: Tensor, loss: Loss) -> AnchorTerms:
    """Label-free anchor terms from both models' outputs ``[n, C]`` on the same anchor inputs.

    The inputs must be independent of both models (held out), or the intervals mean nothing.

    >>> import torch
    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> anchor_terms(z, z.flip(0)[[0, 0]], ZeroOne()).disagreement.value
    0.5
    """
    check_paired(outputs, new_outputs)
    bound = loss.bound(outputs.shape[1])
    if math.isfinite(bound):
        worst = mean_term(loss.worst_label_change(outputs, new_outputs), 0, bound)
    else:
        worst = _unavailable(f"{type(loss).__name__} is unbounded, so no label is the worst: give it a limit")
    return AnchorTerms(
        worst_label=worst,
        lipschitz=_lipschitz_term(outputs, new_outputs, loss),
        disagreement=_disagreement_term(outputs, new_outputs, loss),
        plug_in=mean_term(loss.expected_change(outputs, new_outputs), -bound, bound),
        error_plug_in=_error_plug_in_term(outputs, new_outputs, loss),
        num_samples=len(outputs),
    )


def mean_term(values: Tensor, low: float, high: float) -> AnchorTerm:
    """The mean of values ``[n]`` in ``[low, high]``, with their tally where that range is finite."""
    values = doubled(values).cpu()
    mean = float(values.mean())
    if not math.isfinite(high - low):
        return AnchorTerm(mean, reason="no interval: the values have no finite range")
    deviation = float(values.std(correction=1)) if len(values) > 1 else math.nan
    return AnchorTerm(mean, tally(values, low, high), deviation=deviation)


def _unavailable(reason: str) -> AnchorTerm:
    return AnchorTerm(math.nan, reason=reason)


def _lipschitz_term(outputs: Tensor, new_outputs: Tensor, loss: Loss) -> AnchorTerm:
    if not math.isfinite(loss.lipschitz):
        return _unavailable(f"{type(loss).__name__} has no finite Lipschitz constant in the outputs")
    norms = loss.change_norms(outputs, new_outputs)
    return mean_term(loss.lipschitz * norms, 0, loss.lipschitz * loss.output_diameter(outputs.shape[1]))


def _disagreement_term(outputs: Tensor, new_outputs: Tensor, loss: Loss) -> AnchorTerm:
    if not loss.classification:
        return _unavailable("disagreement is defined for classification only")
    return mean_term((outputs.argmax(dim=1) != new_outputs.argmax(dim=1)).to(outputs.dtype), 0, 1)


def _error_plug_in_term(outputs: Tensor, new_outputs: Tensor, loss: Loss) -> AnchorTerm:
    if not loss.classification:
        return _unavailable("an error rate is defined for classification only")
    return mean_term(ZeroOne().expected_change(outputs, new_outputs), 0, 1)
