"""Label-free scores that a gate is compared with, each with the direction in which it predicts harm.

All read logits ``[n, C]`` as given, without clipping, and compute in float64: confidences near 1 must stay distinct.
Scores of one model on one set of inputs are comparable with scores of another model on the same inputs.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import ot
import torch
from torch import Tensor

from .checks import check_labels, check_logits, check_paired, check_positive, check_samples, check_vector

Orientation = Literal["higher_is_harm", "lower_is_harm"]
Confidence = Literal["negative_entropy", "max_confidence"]


class Score(NamedTuple):
    """A score and how to read it."""

    value: float
    """As its authors define it."""
    orientation: Orientation

    @property
    def harm(self) -> float:
        """The value with its sign set so that higher predicts more harm."""
        return self.value if self.orientation == "higher_is_harm" else -self.value


def msp(logits: Tensor) -> Score:
    """Mean maximum softmax probability ``mean_i max_k p_ik`` of logits ``[n, C]`` (Hendrycks and Gimpel, 2017).

    In ``[1/C, 1]``, lower is harm.

    >>> msp(torch.zeros(3, 4))
    Score(value=0.25, orientation='lower_is_harm')
    """
    return Score(float(_max_confidence(_probabilities(logits)).mean()), "lower_is_harm")


def entropy(logits: Tensor) -> Score:
    """Mean predictive entropy ``mean_i -sum_k p_ik log p_ik`` of logits ``[n, C]``, in nats.

    In ``[0, log C]``, higher is harm.

    >>> round(entropy(torch.zeros(3, 4)).value, 4)
    1.3863
    """
    return Score(-float(_negative_entropy(_probabilities(logits)).mean()), "higher_is_harm")


def energy(logits: Tensor, *, temperature: float = 1.0) -> Score:
    """Mean free energy ``mean_i -T log sum_k exp(z_ik / T)`` of logits ``[n, C]`` (Liu et al., 2020).

    Higher is harm. A constant added to all logits lowers it by that constant, though no prediction changes.

    >>> round(energy(torch.zeros(3, 4)).value, 4)
    -1.3863
    """
    check_positive(temperature, "temperature")
    z = check_logits(logits, "logits").detach().double()
    return Score(-temperature * float(torch.logsumexp(z / temperature, dim=1).mean()), "higher_is_harm")


def atc(
    calibration_logits: Tensor, calibration_labels: Tensor, logits: Tensor, *, score: Confidence = "negative_entropy"
) -> Score:
    """Average Thresholded Confidence (Garg et al., 2022): the error predicted on ``logits``.

    A threshold t is set so that the fraction of calibration points with a confidence below t equals the error there,
    and the value is the fraction of ``logits`` below t. Among the calibration confidences and infinity, t is the one
    whose fraction is nearest to the error, the lowest of these in a tie. So a calibration set without errors puts t at
    its least confidence, and one without a correct prediction predicts an error of 1.

    Args:
        calibration_logits: ``[m, C]``, labelled data from where the model was trained.
        calibration_labels: class indices ``[m]``.
        logits: ``[n, C]`` of the same model.
        score: "negative_entropy" ``sum_k p_k log p_k`` or "max_confidence" ``max_k p_k``.

    Returns:
        A fraction, higher is harm.

    Raises:
        ValueError: for invalid logits or labels, logits that differ in classes, or an unknown score.

    >>> calibration = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
    >>> atc(calibration, torch.tensor([0, 0, 0, 1]), torch.tensor([[0.9, 0.0], [5.0, 0.0]])).value
    0.5
    """
    confidences = {"negative_entropy": _negative_entropy, "max_confidence": _max_confidence}
    if score not in confidences:
        raise ValueError(f"score must be one of {', '.join(confidences)}, got {score!r}")
    confidence = confidences[score]
    known = confidence(_probabilities(calibration_logits, "calibration_logits")).sort().values
    new = confidence(_probabilities(logits))
    check_samples(calibration_logits, logits, "calibration_logits", "logits")
    check_labels(calibration_labels, "calibration_labels", length=len(known), num_classes=logits.shape[1])
    num_wrong = (calibration_logits.argmax(dim=1) != calibration_labels.to(logits.device)).sum()
    thresholds = torch.cat([known, known.new_tensor([math.inf])])
    num_below = torch.searchsorted(known, thresholds)
    threshold = thresholds[(num_below - num_wrong).abs().argmin()]
    return Score(_fraction(new < threshold), "higher_is_harm")


def doc(calibration_logits: Tensor, logits: Tensor) -> Score:
    """Difference of Confidences (Guillory et al., 2021): mean MSP on ``calibration_logits`` minus that on ``logits``.

    Logits ``[m, C]`` and ``[n, C]`` of one model. In ``(-1, 1)``, higher is harm. Added to the calibration error it
    predicts the error on ``logits``.

    >>> round(doc(torch.tensor([[50.0, 0.0]]), torch.zeros(3, 2)).value, 4)
    0.5
    """
    known = _max_confidence(_probabilities(calibration_logits, "calibration_logits"))
    new = _max_confidence(_probabilities(logits))
    check_samples(calibration_logits, logits, "calibration_logits", "logits")
    return Score(float(known.mean() - new.mean()), "higher_is_harm")


def disagreement(logits: Tensor, new_logits: Tensor) -> Score:
    """Fraction of inputs on which two models predict different classes (Jiang et al., 2022).

    Logits ``[n, C]`` of both models on the same inputs, from either domain. In ``[0, 1]``, higher is harm. On the
    anchor's inputs no change in 0-1 risk is larger.

    >>> disagreement(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])).value
    0.5
    """
    check_paired(logits, new_logits, "logits", "new_logits")
    check_logits(logits, "logits")
    return Score(_fraction(logits.argmax(dim=1) != new_logits.argmax(dim=1)), "higher_is_harm")


def cot(logits: Tensor, label_marginal: Tensor, *, num_iters: int = 10_000_000) -> Score:
    """Confidence Optimal Transport (Lu et al., 2023): the error predicted on ``logits``.

    Exact transport from the predicted probabilities ``p_i`` to one-hot labels with a given marginal. The cost is half
    the L1 distance, which to a one-hot label ``e_k`` is the L-infinity distance too: both are ``1 - p_ik``, the error
    expected if the label is k. So the cost matrix is ``[n, C]``. The value is never below ``1 - MSP``, the error that
    the confidence alone predicts, and equals it where the predicted classes already have that marginal.

    Args:
        logits: ``[n, C]``.
        label_marginal: nonnegative class weights ``[C]``, normalised here; usually those of the training labels.
        num_iters: most iterations of POT's network simplex, in float64 on the CPU.

    Returns:
        A predicted error in ``[0, 1]``, higher is harm.

    Raises:
        ValueError: for invalid logits or weights, or a solver that did not finish.

    >>> round(cot(torch.tensor([[50.0, 0.0], [50.0, 0.0]]), torch.tensor([0.5, 0.5])).value, 4)
    0.5
    """
    p = _probabilities(logits).cpu().numpy()
    n, num_classes = p.shape
    if not isinstance(label_marginal, Tensor) or label_marginal.shape != (num_classes,):
        raise ValueError(f"label_marginal must be a torch tensor of shape [{num_classes}]: pass one weight per class")
    marginal = check_vector(label_marginal, "label_marginal").detach().cpu().double().numpy()
    if (marginal < 0).any() or not marginal.sum() > 0:
        raise ValueError("label_marginal must be nonnegative with a positive sum: pass class frequencies")
    present = marginal > 0
    weights = marginal[present] / marginal.sum()
    uniform = torch.full((n,), 1 / n, dtype=torch.float64).numpy()
    value, log = ot.emd2(uniform, weights, 1 - p[:, present], numItermax=num_iters, log=True)
    if log["warning"] is not None:
        raise ValueError(f"num_iters={num_iters} did not suffice for {n} inputs: raise it")
    return Score(float(value), "higher_is_harm")


def mano(logits: Tensor, *, p: float = 4.0, threshold: float = 5.0) -> Score:
    """MaNo (Xie et al., 2024): ``(mean_ik q_ik^p)^(1/p)`` of normalised logits q ``[n, C]``.

    With ``Phi = mean_ik -log softmax(z_i)_k``, which is ``log C`` plus the mean divergence of the predictions from
    uniform, the normalisation is the softmax if ``Phi > threshold``. Else it is ``v - min_k v`` divided by its sum,
    with ``v = 1 + z + z^2 / 2``; a row whose v is constant becomes uniform. More than ``exp(threshold)`` classes always
    take the softmax. Two classes below the threshold make every row one-hot, and the score is then a constant.

    Args:
        logits: ``[n, C]``; the second branch is not invariant to a constant added to them.
        p: order of the norm, above 1.
        threshold: the authors' eta.

    Returns:
        A value in ``(0, C^(-1/p)]``, lower is harm.

    Raises:
        ValueError: for invalid logits, p or threshold.

    >>> round(mano(torch.tensor([[30.0, 0.0, 0.0]])).value, 4)
    0.7598
    """
    if not (math.isfinite(p) and p > 1):
        raise ValueError(f"p must be finite and above 1, got {p}: at 1 the score is 1 / C for all logits")
    check_positive(threshold, "threshold")
    z = check_logits(logits, "logits").detach().double()
    log_probabilities = z.log_softmax(dim=1)
    if float(-log_probabilities.mean()) > threshold:
        q = log_probabilities.exp()
    else:
        v = 1 + z + z.square() / 2
        v = v - v.amin(dim=1, keepdim=True)
        total = v.sum(dim=1, keepdim=True)
        q = torch.where(total > 0, v / total, 1 / z.shape[1])
    return Score(float(q.pow(p).mean() ** (1 / p)), "lower_is_harm")


def _probabilities(logits: Tensor, name: str = "logits") -> Tensor:
    return check_logits(logits, name).detach().double().softmax(dim=1)


def _max_confidence(probabilities: Tensor) -> Tensor:
    return probabilities.amax(dim=1)


def _negative_entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(probabilities)
    return -terms.sum(dim=1)


def _fraction(mask: Tensor) -> float:
    return float(mask.double().mean())
