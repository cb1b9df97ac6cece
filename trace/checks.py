"""Input checks: each failure is one ValueError that names the argument and the remedy."""

import math
from numbers import Integral

import torch
from torch import Tensor


def check_sample(x: Tensor, name: str, *, min_samples: int = 1) -> Tensor:
    """Return ``x`` if it is a finite float32/float64 matrix ``[n, d]`` with ``n >= min_samples``."""
    return _check_finite(_check_matrix(x, name, min_samples), name)


def _check_matrix(x: Tensor, name: str, min_samples: int) -> Tensor:
    _check_shape(x, name, "[n, d]", range(2, 3), "reshape it to one row per sample", min_samples)
    if x.shape[1] == 0:
        raise ValueError(f"{name} has no columns (shape {list(x.shape)}): pass at least one feature")
    return x


def check_inputs(x: Tensor, name: str) -> Tensor:
    """Return ``x`` if it is a finite, non-empty float32/float64 tensor ``[n, ...]`` of model inputs."""
    return _check_finite(_check_shape(x, name, "[n, ...]", range(2, 65), "reshape it to one row per sample", 1), name)


def check_vector(x: Tensor, name: str, *, length: int | None = None, min_samples: int = 1) -> Tensor:
    """Return ``x`` if it is a finite float32/float64 vector ``[n]``, of the given length if there is one."""
    _check_shape(x, name, "[n]", range(1, 2), "flatten it to one value per sample", min_samples)
    if length is not None and len(x) != length:
        raise ValueError(f"{name} has {len(x)} values for {length} samples: pass one value per sample")
    return _check_finite(x, name)


def _check_shape(x: Tensor, name: str, shape: str, dimensions: range, remedy: str, min_samples: int) -> Tensor:
    """``dimensions``: how many the tensor may have; torch knows no more than 64."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {type(x).__name__}: use torch.as_tensor({name})")
    if x.ndim not in dimensions:
        raise ValueError(f"{name} must have shape {shape}, got {list(x.shape)}: {remedy}")
    if x.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"{name} must be float32 or float64, got {x.dtype}: convert it with {name}.float()")
    if len(x) < min_samples:
        raise ValueError(f"{name} has {len(x)} samples, at least {min_samples} are needed: pass more data")
    return x


def _check_finite(x: Tensor, name: str) -> Tensor:
    if x.is_meta:
        raise ValueError(f"{name} is on the meta device and holds no data: load it on a real device")
    if bool(torch.isfinite(x.detach().sum())):  # NaN and infinity stay in a sum; it may overflow without them
        return x
    if not bool(torch.isfinite(x).all()):
        bad = int((~torch.isfinite(x)).reshape(len(x), -1).any(dim=1).nonzero()[0])
        raise ValueError(f"{name} holds NaN or infinity (first in row {bad}): drop or repair such rows")
    return x


def check_samples(
    x: Tensor,
    y: Tensor,
    name_x: str = "x",
    name_y: str = "y",
    *,
    min_samples: int = 1,
    remedy: str = "use one feature map",
) -> None:
    """Both samples valid, and alike in columns, dtype and device."""
    _check_matrix(x, name_x, min_samples)
    _check_matrix(y, name_y, min_samples)
    if x.shape[1:] != y.shape[1:]:
        raise ValueError(f"{name_x} and {name_y} differ in columns ({list(x.shape)} against {list(y.shape)}): {remedy}")
    if x.dtype != y.dtype:
        raise ValueError(f"{name_x} is {x.dtype} but {name_y} is {y.dtype}: convert one of them")
    if x.device != y.device:
        raise ValueError(f"{name_x} is on {x.device} but {name_y} is on {y.device}: move one with .to(device)")
    _check_finite(x, name_x)
    _check_finite(y, name_y)


def check_paired(outputs: Tensor, new_outputs: Tensor, name: str = "outputs", new_name: str = "new_outputs") -> None:
    """Two models' outputs on the same inputs: valid, in one space, equally many."""
    check_samples(outputs, new_outputs, name, new_name, remedy="the two models must have the same outputs")
    if len(outputs) != len(new_outputs):
        raise ValueError(
            f"{name} has {len(outputs)} rows but {new_name} has {len(new_outputs)}: run both models on the same inputs"
        )


def check_logits(logits: Tensor, name: str) -> Tensor:
    """Return ``logits`` if they are a valid sample ``[n, C]`` with at least two classes."""
    check_sample(logits, name)
    if logits.shape[1] < 2:
        raise ValueError(
            f"{name} has shape {list(logits.shape)}, one logit per class is needed: use [-f/2, f/2] for a margin f"
        )
    return logits


def check_labels(y: Tensor, name: str, *, length: int, num_classes: int) -> Tensor:
    """Return ``y`` if it holds one class index in ``[0, num_classes)`` per sample."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        kind = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(
            f"{name} must be an integer tensor of class indices, got {kind}: convert it with {name}.long()"
        )
    if y.shape != (length,):
        raise ValueError(f"{name} has shape {list(y.shape)} for {length} samples: pass one label per sample, shape [n]")
    if num_classes < 2:
        raise ValueError(
            f"{name} holds classes, but the model has one output: return [-f/2, f/2] for a margin f, or use squared "
            "error"
        )
    least, most = torch.stack(torch.aminmax(y)).tolist() if length else (0, 0)
    if least < 0 or most >= num_classes:
        raise ValueError(
            f"{name} holds labels {least} to {most}, but the model has {num_classes} outputs: "
            f"relabel to 0..{num_classes - 1} or check the model's last layer"
        )
    return y


def check_level(value: float, name: str) -> float:
    """Return ``value`` if it is a probability strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return value


def check_count(value: int, name: str) -> int:
    """Return ``value`` if it is a whole number of at least 1."""
    if not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
    return value


def check_positive(value: float, name: str) -> float:
    """Return ``value`` if it is finite and strictly positive."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and positive, got {value}")
    return value


def check_within_bound(losses: Tensor, bound: float, name: str) -> Tensor:
    """Return ``losses`` if they are finite and in ``[0, bound]``; the diagnostic's remainders are false otherwise."""
    check_vector(losses, name)
    slack = 1e-5 * max(1.0, bound) if math.isfinite(bound) else 0.0
    low, high = torch.stack(torch.aminmax(losses)).tolist()
    if low < -slack or high > bound + slack:
        raise ValueError(
            f"{name} lie in [{low:g}, {high:g}], outside [0, M = {bound:g}]: clip the outputs or fix loss.bound"
        )
    return losses
