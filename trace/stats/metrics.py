"""How well a score ranks or separates candidates (``app:metrics``).

Scores are oriented so that higher predicts more harm. What is undefined is NaN with a reason.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Values = ArrayLike | Tensor
"""A vector ``[n]``: array, sequence or tensor."""

Array = NDArray[np.float64]


class Metric(NamedTuple):
    """A number, or NaN and why."""

    value: float
    reason: str = ""


def spearman(score: Values, target: Values) -> Metric:
    """Spearman's rank correlation of a score ``[n]`` with a target ``[n]``, ties at their mean rank (``app:metrics``).

    NaN for fewer than 3 points, or where either is constant.

    >>> round(spearman([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 40.0, 30.0]).value, 4)
    0.8
    """
    from scipy.stats import spearmanr

    x, y = vectors({"score": score, "target": target})
    if len(x) < 3:
        return Metric(math.nan, f"a rank correlation needs at least 3 points, got {len(x)}")
    for values, name in ((x, "score"), (y, "target")):
        if (values == values[0]).all():
            return Metric(math.nan, f"{name} is constant")
    return Metric(float(spearmanr(x, y).statistic))


def auroc(score: Values, harmful: Values) -> Metric:
    """Area under the ROC curve of a score ``[n]`` for the label ``harmful [n]``, True or 1 where harm was done.

    NaN where all labels are equal.

    >>> auroc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]).value
    0.75
    """
    x, y = _labelled(score, harmful)
    from sklearn.metrics import roc_auc_score

    return _one_class(y) or Metric(float(roc_auc_score(y, x)))


def auprc(score: Values, harmful: Values) -> Metric:
    """Average precision of a score ``[n]`` for the label ``harmful [n]``: the area under precision against recall.

    A score without information gets about the fraction of harmful candidates. NaN where all labels are equal.

    >>> round(auprc([0.1, 0.4, 0.35, 0.8], [False, False, True, True]).value, 4)
    0.8333
    """
    x, y = _labelled(score, harmful)
    from sklearn.metrics import average_precision_score

    return _one_class(y) or Metric(float(average_precision_score(y, x)))


def _labelled(score: Values, harmful: Values) -> tuple[Array, Array]:
    x, y = vectors({"score": score, "harmful": harmful})
    if not np.isin(y, (0, 1)).all():
        raise ValueError("harmful must hold True and False (or 1 and 0): compare the risk change with a tolerance")
    return x, y


def _one_class(harmful: Array) -> Metric | None:
    num_harmful = int(harmful.sum())
    if 0 < num_harmful < len(harmful):
        return None
    return Metric(math.nan, f"one class only: {num_harmful} of {len(harmful)} are harmful")


def vectors(named: dict[str, Values], *, min_rows: int = 0) -> list[Array]:
    """Finite vectors ``[n]`` of one length."""
    found = []
    for name, x in named.items():
        try:
            values = np.asarray(on_cpu(x), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must hold real numbers: convert it to a list of floats") from error
        if values.ndim != 1:
            raise ValueError(f"{name} must have shape [n], got {list(values.shape)}: flatten it to one value per row")
        if not np.isfinite(values).all():
            bad = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ValueError(f"{name} holds NaN or infinity (first at {bad}): leave out the rows without a value")
        found.append(values)
    lengths = [len(x) for x in found]
    if len(set(lengths)) != 1 or lengths[0] < min_rows:
        described = ", ".join(f"{name} has {length}" for name, length in zip(named, lengths, strict=True))
        raise ValueError(f"one value per row is needed: {described or 'no columns were given'}")
    return found


def on_cpu(x: Values) -> ArrayLike:
    """A tensor as an array; anything else as it is."""
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x
