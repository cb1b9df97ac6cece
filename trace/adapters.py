"""Models of other libraries as functions of tensors, for `trace.diagnose`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from .estimators.lipschitz import NoGradientError

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid, "identity": nn.Identity,
}  # fmt: skip


class FromSklearn(nn.Module):
    """Inputs ``[n, d]`` to outputs ``[n, C]`` of a fitted scikit-learn estimator; see `from_sklearn`."""

    def __init__(self, estimator: Any, network: nn.Module | None) -> None:
        super().__init__()
        self.estimator, self.network = estimator, network
        labels = estimator.classes_ if _classifies(estimator) else None
        self.classes: tuple[str, ...] | None = None if labels is None else tuple(map(_named, labels))
        """Names by output; None for regression."""
        names = getattr(estimator, "feature_names_in_", None)
        self.columns: tuple[str, ...] | None = None if names is None else tuple(map(str, names))
        """Names of the columns of the inputs, where it was fitted on a table."""

    @property
    def differentiable(self) -> bool:
        return self.network is not None

    def forward(self, x: Tensor) -> Tensor:
        if self.network is not None:
            return self.network(x.double()).to(x.dtype)
        if x.requires_grad:
            raise NoGradientError(
                f"{_name(self.estimator)} gives no gradients: sensitivities need a linear model or a perceptron"
            )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            outputs = _outputs(self.estimator, x.detach().cpu().double().numpy())
        return torch.from_numpy(np.ascontiguousarray(outputs)).to(x)


def _named(label: Any) -> str:
    """A class as labels name it: 1.0 is 1."""
    return str(int(label)) if isinstance(label, float | np.floating) and float(label).is_integer() else str(label)


def from_sklearn(estimator: Any) -> FromSklearn:
    """A fitted scikit-learn estimator as a model for `trace.diagnose`.

    Classifiers give ``log p(c | x)``, or ``decision_function`` where they have no probabilities (``[-f/2, f/2]`` for a
    binary margin f); regressors give ``[n, 1]``. Labels in samples are positions in ``estimator.classes_``.

    Logistic regression, least squares, ridge and perceptrons, alone or behind a StandardScaler, become exact torch
    networks in float64, so that sensitivities exist. Others are run as they are and have no gradients.

    Raises:
        ValueError: for an estimator that is not fitted, or has several outputs per row.

    >>> from sklearn.linear_model import LogisticRegression
    >>> model = from_sklearn(LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 0, 1]))
    >>> model(torch.tensor([[3.0]])).exp().sum().item()
    1.0
    """
    if not any(hasattr(estimator, name) for name in ("predict_proba", "decision_function", "predict")):
        raise ValueError(f"{_name(estimator)} has no predict: pass a scikit-learn classifier or regressor")
    if not hasattr(estimator, "n_features_in_"):
        raise ValueError(f"{_name(estimator)} is not fitted: call fit first")
    if _classifies(estimator) and isinstance(estimator.classes_, list):
        raise ValueError(f"{_name(estimator)} has several outputs per row: diagnose one output at a time")
    layers = _layers(estimator)
    return FromSklearn(estimator, None if layers is None else nn.Sequential(*layers).double())


def _classifies(estimator: Any) -> bool:
    return hasattr(estimator, "classes_")


def _name(estimator: Any) -> str:
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return f"scikit-learn's {type(last).__name__}"


def _outputs(estimator: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not _classifies(estimator):
        return np.asarray(estimator.predict(x), dtype=np.float64).reshape(len(x), -1)
    if hasattr(estimator, "predict_proba"):
        p = np.asarray(estimator.predict_proba(x), dtype=np.float64)
        return np.log(np.maximum(p, np.finfo(np.float32).tiny))
    f = np.asarray(estimator.decision_function(x), dtype=np.float64)
    return np.stack([-f / 2, f / 2], axis=1) if f.ndim == 1 else f


def _layers(estimator: Any) -> list[nn.Module] | None:
    """The estimator as torch layers; None where it is of another kind."""
    kind = type(estimator)  # a subclass may compute something else
    if kind is Pipeline and len(estimator.steps) == 2 and type(estimator.steps[0][1]) is StandardScaler:
        last = _layers(estimator.steps[1][1])
        return None if last is None else [_scaling(estimator.steps[0][1]), *last]
    if kind is LogisticRegression and (len(estimator.classes_) == 2 or estimator.solver != "liblinear"):
        return _classifier(_linear(estimator.coef_.T, estimator.intercept_))
    if kind in (LinearRegression, Ridge) and np.ndim(estimator.intercept_) == 0:
        return [_linear(np.reshape(estimator.coef_, (-1, 1)), np.reshape(estimator.intercept_, 1))]
    if kind in (MLPClassifier, MLPRegressor):
        return _perceptron(estimator)
    return None


def _perceptron(estimator: Any) -> list[nn.Module] | None:
    linear = [_linear(w, b) for w, b in zip(estimator.coefs_, estimator.intercepts_, strict=True)]
    hidden = [layer for each in linear[:-1] for layer in (each, _ACTIVATIONS[estimator.activation]())]
    if estimator.out_activation_ == "identity":
        return [*hidden, linear[-1]] if estimator.n_outputs_ == 1 else None
    if estimator.out_activation_ == "logistic" and len(estimator.classes_) != 2:
        return None  # several labels per row
    return [*hidden, *_classifier(linear[-1])]


def _scaling(scaler: StandardScaler) -> nn.Module:
    d = scaler.n_features_in_
    mean = scaler.mean_ if scaler.with_mean else np.zeros(d)
    scale = scaler.scale_ if scaler.with_std else np.ones(d)
    return _Scaling(torch.as_tensor(mean, dtype=torch.float64), torch.as_tensor(scale, dtype=torch.float64))


class _Scaling(nn.Module):
    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def _classifier(linear: nn.Linear) -> list[nn.Module]:
    """``log p``; a single output f is the margin of the second class: ``log softmax([0, f])``."""
    if linear.out_features == 1:
        w, b = linear.weight.detach(), linear.bias.detach()
        linear = _linear(torch.cat([torch.zeros_like(w), w]).T.numpy(), torch.cat([torch.zeros_like(b), b]).numpy())
    return [linear, nn.LogSoftmax(dim=1)]


def _linear(weights: Any, bias: Any) -> nn.Linear:
    """``x @ weights + bias`` with weights ``[in, out]``."""
    w = torch.as_tensor(np.asarray(weights), dtype=torch.float64).T.contiguous()
    layer = nn.Linear(w.shape[1], w.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(w)
        layer.bias.copy_(torch.as_tensor(np.asarray(bias), dtype=torch.float64))
    return layer
