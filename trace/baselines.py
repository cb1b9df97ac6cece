"""Label-free scores that a gate is compared with; `BASELINES` has the direction in which each predicts harm.

One more entry there is one more score of the gate's experiment and tables. All read logits ``[n, C]`` as given, without
clipping, and compute in float64: confidences near 1 must stay distinct.
Scores of one model on one set of inputs are comparable with scores of another model on the same inputs.
"""

import math
from collections.abc import Callable
from operator import pos
from typing import Any

import ot
import torch
from sklearn.isotonic import IsotonicRegression
from torch import Tensor

from .checks import check_labels, check_logits, check_paired, check_positive, check_samples, check_vector
from .diagnostic import Values
from .hardware import doubled, wide
from .scores import Score


def msp(logits: Tensor) -> float:
    """Mean maximum softmax probability ``mean_i max_k p_ik`` of logits ``[n, C]`` (Hendrycks and Gimpel, 2017).

    In ``[1/C, 1]``, lower is harm.

    >>> msp(torch.zeros(3, 4))
    0.25
    """
    return float(_probabilities(logits).amax(dim=1).mean())


def entropy(logits: Tensor) -> float:
    """Mean predictive entropy ``mean_i -sum_k p_ik log p_ik`` of logits ``[n, C]``, in nats.

    In ``[0, log C]``, higher is harm.

    >>> round(entropy(torch.zeros(3, 4)), 4)
    1.3863
    """
    return -float(_negative_entropy(_probabilities(logits)).mean())


def energy(logits: Tensor, *, temperature: float = 1.0) -> float:
    """Mean free energy ``mean_i -T log sum_k exp(z_ik / T)`` of logits ``[n, C]`` (Liu et al., 2020).

    Higher is harm. A constant added to all logits lowers it by that constant, though no prediction changes.

    >>> round(energy(torch.zeros(3, 4)), 4)
    -1.3863
    """
    check_positive(temperature, "temperature")
    z = doubled(check_logits(logits, "logits").detach())
    return -temperature * float(torch.logsumexp(z / temperature, dim=1).mean())


def atc(calibration_logits: Tensor, calibration_labels: Tensor, logits: Tensor) -> float:
    """Average Thresholded Confidence (Garg et al., 2022), here the negative entropy: the error predicted on ``logits``.

    A threshold t is set so that the fraction of calibration points with a confidence below t equals the error there,
    and the value is the fraction of ``logits`` below t. Among the calibration confidences and infinity, t is the one
    whose fraction is nearest to the error, the lowest of these in a tie. So a calibration set without errors puts t at
    its least confidence, and one without a correct prediction predicts an error of 1.

    Args:
        calibration_logits: ``[m, C]``, labelled data from where the model was trained.
        calibration_labels: class indices ``[m]``.
        logits: ``[n, C]`` of the same model.

    Returns:
        A fraction, higher is harm.

    Raises:
        ValueError: for invalid logits or labels, or logits that differ in classes.

    >>> calibration = torch.tensor([[3.0, 0.0], [2.0, 0.0], [1.0, 0.0], [0.5, 0.0]])
    >>> atc(calibration, torch.tensor([0, 0, 0, 1]), torch.tensor([[0.9, 0.0], [5.0, 0.0]]))
    0.5
    """
    known = _negative_entropy(_probabilities(calibration_logits, "calibration_logits")).sort().values
    new = _negative_entropy(_probabilities(logits))
    check_samples(calibration_logits, logits, "calibration_logits", "logits")
    check_labels(calibration_labels, "calibration_labels", length=len(known), num_classes=logits.shape[1])
    num_wrong = (calibration_logits.argmax(dim=1) != calibration_labels.to(logits.device)).sum().item()
    thresholds = torch.cat([known, known.new_tensor([math.inf])])
    num_below = torch.searchsorted(known, thresholds)
    return float((new < thresholds[(num_below - num_wrong).abs().argmin()]).double().mean())


def doc(calibration_logits: Tensor, logits: Tensor) -> float:
    """Difference of Confidences (Guillory et al., 2021): mean MSP on ``calibration_logits`` minus that on ``logits``.

    Logits ``[m, C]`` and ``[n, C]`` of one model. In ``(-1, 1)``, higher is harm. Added to the calibration error it
    predicts the error on ``logits``.

    >>> round(doc(torch.tensor([[50.0, 0.0]]), torch.zeros(3, 2)), 4)
    0.5
    """
    known = _probabilities(calibration_logits, "calibration_logits").amax(dim=1)
    new = _probabilities(logits).amax(dim=1)
    check_samples(calibration_logits, logits, "calibration_logits", "logits")
    return float(known.mean() - new.mean())


def cbpe(calibration_logits: Tensor, calibration_labels: Tensor, logits: Tensor) -> float:
    """Confidence-Based Performance Estimation (Bialek et al., 2024): the error predicted on ``logits``.

    ``mean_i 1 - c_i`` over the calibrated probabilities c of the predicted classes. Every class has its own isotonic
    regression of ``1[y = k]`` on ``p_k``, on the calibration set, flat beyond its range. What these give is normalised
    over the classes, and uniform where it is zero for all of them. With two classes that is one regression, of the
    probability of either. The authors' package leaves out a calibration that does not help in cross-validation.

    Args:
        calibration_logits: ``[m, C]``, labelled data from where the model was trained.
        calibration_labels: class indices ``[m]``.
        logits: ``[n, C]`` of the same model.

    Returns:
        A predicted error in ``[0, 1]``, higher is harm.

    Raises:
        ValueError: for invalid logits or labels, or logits that differ in classes.

    >>> calibration = torch.tensor([[3.0, 0.0], [3.0, 0.0], [3.0, 0.0], [3.0, 0.0]])
    >>> cbpe(calibration, torch.tensor([0, 0, 0, 1]), torch.tensor([[3.0, 0.0]]))
    0.25
    """
    known, new = _probabilities(calibration_logits, "calibration_logits"), _probabilities(logits)
    check_samples(calibration_logits, logits, "calibration_logits", "logits")
    check_labels(calibration_labels, "calibration_labels", length=len(known), num_classes=logits.shape[1])
    of_class = torch.nn.functional.one_hot(calibration_labels.long(), logits.shape[1]).cpu().double().numpy()
    calibrated = torch.stack(
        [
            torch.from_numpy(IsotonicRegression(out_of_bounds="clip").fit(p, y).predict(q))
            for p, y, q in zip(known.T.cpu().numpy(), of_class.T, new.T.cpu().numpy(), strict=True)
        ],
        dim=1,
    )
    total = calibrated.sum(dim=1, keepdim=True)
    share = torch.where(total > 0, calibrated / total, 1 / logits.shape[1])
    return float(1 - share.gather(1, logits.argmax(dim=1, keepdim=True).cpu()).mean())


def disagreement(logits: Tensor, new_logits: Tensor) -> float:
    """Fraction of inputs on which two models predict different classes (Jiang et al., 2022).

    Logits ``[n, C]`` of both models on the same inputs, from either domain. In ``[0, 1]``, higher is harm. On the
    anchor's inputs no change in 0-1 risk is larger.

    >>> disagreement(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    0.5
    """
    check_paired(logits, new_logits, "logits", "new_logits")
    check_logits(logits, "logits")
    return float((logits.argmax(dim=1) != new_logits.argmax(dim=1)).to(wide(logits.device)).mean())


def cot(logits: Tensor, label_marginal: Tensor, *, num_iters: int = 10_000_000) -> float:
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

    >>> round(cot(torch.tensor([[50.0, 0.0], [50.0, 0.0]]), torch.tensor([0.5, 0.5])), 4)
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
    return float(value)


def mano(logits: Tensor, *, p: float = 4.0, threshold: float = 5.0) -> float:
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

    >>> round(mano(torch.tensor([[30.0, 0.0, 0.0]])), 4)
    0.7598
    """
    if not (math.isfinite(p) and p > 1):
        raise ValueError(f"p must be finite and above 1, got {p}: at 1 the score is 1 / C for all logits")
    check_positive(threshold, "threshold")
    z = doubled(check_logits(logits, "logits").detach())
    log_probabilities = z.log_softmax(dim=1)
    if float(-log_probabilities.mean()) > threshold:
        q = log_probabilities.exp()
    else:
        v = 1 + z + z.square() / 2
        v = v - v.amin(dim=1, keepdim=True)
        total = v.sum(dim=1, keepdim=True)
        q = torch.where(total > 0, v / total, 1 / z.shape[1])
    return float(q.pow(p).mean() ** (1 / p))


def _probabilities(logits: Tensor, name: str = "logits") -> Tensor:
    return doubled(check_logits(logits, name).detach()).softmax(dim=1)


def _negative_entropy(probabilities: Tensor) -> Tensor:
    terms: Tensor = torch.special.entr(probabilities)
    return -terms.sum(dim=1)


def _baseline(label: str, function: Callable[..., float], *parts: str, **about: Any) -> Score:
    return Score("baseline", label, parts=parts, formula=lambda v: function(*(v[part] for part in parts)), **about)


BASELINES: dict[str, Score] = {
    "disagreement_target": _baseline("disagreement on target", disagreement, "old_target", "target", units="share"),
    "negative_msp_source": _baseline("-MSP on source", msp, "source", units="share", sign=-1),
    "msp_source": _baseline("+MSP on source", pos, "negative_msp_source", units="share", sign=-1),
    "negative_msp_target": _baseline("-MSP on target", msp, "target", units="share", sign=-1),
    "msp_target": _baseline("+MSP on target", pos, "negative_msp_target", units="share", sign=-1),
    "entropy_source": _baseline("entropy on source", entropy, "source", units="nats"),
    "energy_source": _baseline("energy on source", energy, "source", units="logits"),
    "atc": _baseline("ATC", atc, "target", "target_labels", "source", units="error"),
    "doc": _baseline("DoC", doc, "target", "source", units="share"),
    "cot": _baseline("COT", cot, "source", "label_marginal", units="error"),
    "mano": _baseline("MaNo", mano, "source", units="norm", sign=-1),
}
"""What a gate is compared with. ``source`` and ``target`` are the update's logits on held-out inputs of both domains,
``old_target`` those of Q; ATC and DoC are calibrated on the labelled target and predict the source, COT takes the
source's label marginal. MSP has both signs, since the paper prints a rank correlation of the one and an area of the
other; any other score's opposite has the opposite rho and one minus the AUROC."""


def label_free(seen: Values) -> dict[str, float]:
    """The baselines of one update, from what the models say of held-out inputs; higher is harm in all.

    One that follows from another is left to whoever reads the record.
    """
    return {name: score.harm(seen) for name, score in BASELINES.items() if set(score.parts) <= set(seen)}
