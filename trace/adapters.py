"""Models of other libraries as functions of tensors, for `trace.diagnose`."""

import warnings
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn.utils import skip_init

from .estimators.gradient_quantile import NoGradientError

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "logistic": nn.Sigmoid,
    "identity": nn.Identity,
}


class FromSklearn(nn.Module):
    """Inputs ``[n, d]`` to outputs ``[n, C]`` of a fitted scikit-learn estimator; see `from_sklearn`.

    Where there is a ``network`` it computes the same, with gradients.
    """

    def __init__(self, estimator: Any, network: nn.Module | None) -> None:
        super().__init__()
        self.estimator, self.network = estimator, network
        labels = estimator.classes_ if _classifies(estimator) else None
        self.classes: tuple[str, ...] | None = None if labels is None else tuple(map(_named, labels))
        """Names by output; None for regression."""
        names = getattr(estimator, "feature_names_in_", None)
        self.columns: tuple[str, ...] | None = None if names is None else tuple(map(str, names))
        """Names of the columns of the inputs, where it was fitted on a table."""

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
        ValueError: for an estimator that is not fitted, has several outputs per row, or margins of pairs of classes.

    >>> from sklearn.linear_model import LogisticRegression
    >>> model = from_sklearn(LogisticRegression().fit([[0.0], [1.0], [2.0]], [0, 0, 1]))
    >>> model(torch.tensor([[3.0]])).exp().sum().item()
    1.0
    """
    if not any(hasattr(estimator, name) for name in ("predict_proba", "decision_function", "predict")):
        raise ValueError(f"{_name(estimator)} has no predict: pass a scikit-learn classifier or regressor")
    if not hasattr(estimator, "n_features_in_"):
        raise ValueError(f"{_name(estimator)} is not fitted: call fit first")
    if _multiple(estimator):
        raise _several(estimator)
    pairs = getattr(_last(estimator), "decision_function_shape", "ovr") == "ovo"
    if pairs and _classifies(estimator) and not hasattr(estimator, "predict_proba") and len(estimator.classes_) > 2:
        raise ValueError(
            f"{_name(estimator)} gives margins between pairs of classes: fit it with decision_function_shape='ovr'"
        )
    layers = _layers(estimator)
    return FromSklearn(estimator, None if layers is None else nn.Sequential(*layers).double())


def _classifies(estimator: Any) -> bool:
    return hasattr(estimator, "classes_")


def _last(estimator: Any) -> Any:
    """What predicts at the end of pipelines and searches."""
    if isinstance(estimator, Pipeline):
        return _last(estimator.steps[-1][1])
    return _last(estimator.best_estimator_) if hasattr(estimator, "best_estimator_") else estimator


def _name(estimator: Any) -> str:
    return f"scikit-learn's {type(_last(estimator)).__name__}"


def _multiple(estimator: Any) -> bool:
    """Whether it was fitted on several targets, or several labels, per row."""
    last = _last(estimator)
    if _classifies(estimator):
        several_labels = getattr(last, "out_activation_", "") == "logistic" and last.n_outputs_ > 1
        return isinstance(estimator.classes_, list) or several_labels or getattr(last, "multilabel_", False)
    coefficients: Any = getattr(last, "coef_", None)
    return getattr(last, "n_outputs_", 1) > 1 or (np.ndim(coefficients) == 2 and len(coefficients) > 1)


def _several(estimator: Any) -> ValueError:
    return ValueError(f"{_name(estimator)} has several outputs per row: diagnose one output at a time")


def _outputs(estimator: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if not _classifies(estimator):
        predicted = np.asarray(estimator.predict(x), dtype=np.float64).reshape(len(x), -1)
        if predicted.shape[1] != 1:
            raise _several(estimator)
        return predicted
    classes = len(estimator.classes_)
    if hasattr(estimator, "predict_proba"):
        p = np.asarray(estimator.predict_proba(x), dtype=np.float64)
        if p.shape != (len(x), classes):
            raise _several(estimator)
        return np.log(np.maximum(p, np.finfo(np.float32).tiny))
    f = np.asarray(estimator.decision_function(x), dtype=np.float64)
    if f.shape != ((len(x),) if classes == 2 else (len(x), classes)):
        raise ValueError(
            f"{_name(estimator)} gives margins {list(f.shape)} for {len(x)} rows and {classes} classes: "
            "pass a classifier with one score per class and row"
        )
    return np.stack([-f / 2, f / 2], axis=1) if classes == 2 else f


def _layers(estimator: Any) -> list[nn.Module] | None:
    """The estimator as torch layers; None where it is of another kind."""
    kind = type(estimator)  # a subclass may compute something else
    if kind is Pipeline and len(estimator.steps) == 2 and type(estimator.steps[0][1]) is StandardScaler:
        last = _layers(estimator.steps[1][1])
        return None if last is None else [_Scaling(estimator.steps[0][1]), *last]
    if kind is LogisticRegression and (len(estimator.classes_) == 2 or estimator.solver != "liblinear"):
        return _classifier(_linear(estimator.coef_.T, estimator.intercept_))
    if kind in (LinearRegression, Ridge):
        return [_linear(np.reshape(estimator.coef_, (-1, 1)), np.reshape(estimator.intercept_, 1))]
    if kind in (MLPClassifier, MLPRegressor):
        return _perceptron(estimator)
    return None


def _perceptron(estimator: Any) -> list[nn.Module] | None:
    if estimator.out_activation_ not in ("identity", "logistic", "softmax"):
        return None
    linear = [_linear(w, b) for w, b in zip(estimator.coefs_, estimator.intercepts_, strict=True)]
    hidden = [layer for each in linear[:-1] for layer in (each, _ACTIVATIONS[estimator.activation]())]
    return [*hidden, linear[-1]] if estimator.out_activation_ == "identity" else [*hidden, *_classifier(linear[-1])]


class _Scaling(nn.Module):
    """``(x - mean) / scale`` as a StandardScaler has them; either may be absent there."""

    def __init__(self, scaler: StandardScaler) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.as_tensor(scaler.mean_ if scaler.with_mean else 0.0, dtype=torch.float64))
        self.scale = nn.Buffer(torch.as_tensor(scaler.scale_ if scaler.with_std else 1.0, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.scale


def _classifier(linear: nn.Linear) -> list[nn.Module]:
    """``log p``; a single output f is the margin of the second class: ``log softmax([0, f])``."""
    if linear.out_features == 1:
        w, b = linear.weight.detach(), linear.bias.detach()
        linear = _linear(torch.cat([torch.zeros_like(w), w]).T.numpy(), torch.cat([torch.zeros_like(b), b]).numpy())
    return [linear, nn.LogSoftmax(dim=1)]


def _linear(weights: Any, bias: Any) -> nn.Linear:
    """``x @ weights + bias`` with weights ``[in, out]``; draws no random numbers."""
    w = torch.as_tensor(np.asarray(weights), dtype=torch.float64).T.contiguous()
    layer = skip_init(nn.Linear, w.shape[1], w.shape[0], dtype=torch.float64)
    layer.load_state_dict({"weight": w, "bias": torch.as_tensor(np.asarray(bias), dtype=torch.float64)})
    return layer
