"""Losses that know their value per sample, their bound M and their Lipschitz constant in the outputs.

The two constants enter the diagnostic (``assump:bounded-loss``, ``assump:Lell``), so they belong to the loss and are
never passed beside it. Cross-entropy on logits clipped to ``[-B, B]`` reaches ``log(1 + (C - 1) exp(2B))``; the paper
writes ``B + log C``, which is smaller for every ``C >= 2`` and ``B > 0``. Both are offered, the true one by default.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from .checks import check_labels, check_logits, check_paired, check_positive, check_sample, check_vector

BoundConvention = Literal["true", "paper"]


class Loss(ABC):
    """A loss ``ell(z, y) >= 0`` of a model's outputs ``z`` ``[n, C]`` and targets ``y`` ``[n]``."""

    classification: bool

    @abstractmethod
    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of every sample, ``[n]``; differentiable in ``outputs``."""

    @abstractmethod
    def bound(self, num_outputs: int, convention: BoundConvention = "true") -> float:
        """M with ``0 <= ell <= M`` (``assump:bounded-loss``); infinity where there is none."""

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """L_ell in the Euclidean norm of the outputs (``assump:Lell``); infinity where there is none."""

    def composed_lipschitz(self, matrix: Tensor, *, log_probabilities: bool = False) -> float:
        """Lipschitz constant of ``u -> ell(M u + b, y)`` for any y and b, M ``[C, k]``; at most ``L_ell |M|``.

        ``log_probabilities``: of the log softmax of ``M u + b`` instead.
        """
        if log_probabilities:
            matrix = math.sqrt(len(matrix)) * (matrix - matrix.mean(dim=0))
        return self.lipschitz * float(torch.linalg.matrix_norm(matrix, ord=2))

    def extreme_targets(self, num_outputs: int) -> list[float]:
        """Targets of which one has the largest gradient: all classes; empty where targets have no bound."""
        return [float(c) for c in range(num_outputs)]

    @abstractmethod
    def change_range(self, outputs: Tensor, new_outputs: Tensor) -> tuple[Tensor, Tensor]:
        """``min_y`` and ``max_y`` of ``ell(z~, y) - ell(z, y)`` of every sample, ``[n]`` each: none leads further."""

    def worst_label_change(self, outputs: Tensor, new_outputs: Tensor) -> Tensor:
        """``max_y |ell(z~, y) - ell(z, y)|`` of every sample, ``[n]``: no label can move the loss further."""
        least, most = self.change_range(outputs, new_outputs)
        return torch.maximum(most, -least)

    @abstractmethod
    def expected_change(self, outputs: Tensor, new_outputs: Tensor) -> Tensor:
        """``E_{y ~ Q(.|x)}[ell(z~, y) - ell(z, y)]`` of every sample, ``[n]``: y from the first model's prediction."""

    def clip(self, outputs: Tensor) -> Tensor:
        """The outputs as the loss sees them."""
        return outputs

    def change_norms(self, outputs: Tensor, new_outputs: Tensor) -> Tensor:
        """``|z~ - z|`` of every sample between clipped outputs, ``[n]``: times L_ell at least the loss's change."""
        return torch.linalg.vector_norm(self.clip(new_outputs) - self.clip(outputs), dim=1)

    def output_diameter(self, num_outputs: int) -> float:
        """Largest Euclidean distance between two clipped outputs; infinity where nothing is clipped."""
        return math.inf


@dataclass(frozen=True)
class ClippedCrossEntropy(Loss):
    """Softmax cross-entropy of logits clipped to ``[-B, B]``.

    ``M = log(1 + (C - 1) e^{2B})``, ``L_ell = sqrt(2)`` since the gradient is ``softmax(z) - e_y`` and clipping is a
    projection.

    >>> loss = ClippedCrossEntropy()
    >>> round(loss.bound(10), 4), round(loss.bound(10, "paper"), 4)
    (22.1972, 12.3026)
    """

    clip_at: float = 10.0
    classification = True
    lipschitz = math.sqrt(2.0)

    def __post_init__(self) -> None:
        check_positive(self.clip_at, "clip_at")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        _check_classification(outputs, targets)
        return F.cross_entropy(self.clip(outputs), targets.long(), reduction="none")

    def bound(self, num_outputs: int, convention: BoundConvention = "true") -> float:
        if convention == "paper":
            return self.clip_at + math.log(num_outputs)
        _check_convention(convention)
        return 2 * self.clip_at + math.log(num_outputs - 1 + math.exp(-2 * self.clip_at))

    def composed_lipschitz(self, matrix: Tensor, *, log_probabilities: bool = False) -> float:
        """The longest of the rows of M and of the differences between two of them.

        The gradient in the outputs is ``D (p - e_y)``, where D drops what is clipped. In p it is a mean of those at
        ``p = e_k``, which are ``e_k - e_y``, ``e_k``, ``-e_y`` or 0. Of log-probabilities ``z - log sum exp z`` the
        gradient in z is ``e_k - e_y``, or for one that is clipped ``e_k - p``, again a mean of such: rows alone do not
        count, so that constants in z are ignored as by the loss without a clip.
        """
        differences = float(torch.cdist(matrix, matrix, compute_mode="donot_use_mm_for_euclid_dist").max())
        rows = 0.0 if log_probabilities else float(torch.linalg.vector_norm(matrix, dim=1).max())
        return max(differences, rows)

    def clip(self, outputs: Tensor) -> Tensor:
        return outputs.clamp(-self.clip_at, self.clip_at)

    def change_norms(self, outputs: Tensor, new_outputs: Tensor) -> Tensor:
        return centred_change_norms(self.clip(new_outputs) - self.clip(outputs))

    def output_diameter(self, num_outputs: int) -> float:
        return 2 * self.clip_at * math.sqrt(num_outputs)

    def change_range(self, outputs: Tensor, new_outputs: Tensor) -> tuple[Tensor, Tensor]:
        check_paired(outputs, new_outputs)
        change = self._all_labels(new_outputs) - self._all_labels(outputs)
        return change.amin(dim=1), change.amax(dim=1)

    def expected_change(self, outputs: Tensor, new_outputs: Tensor) -> Tensor:
        check_paired(outputs, new_outputs)
        losses = self._all_labels(outputs)
        return (torch.exp(-losses) * (self._all_labels(new_outputs) - losses)).sum(dim=1)

    def _all_labels(self, outputs: Tensor) -> Tensor:
        return -F.log_softmax(self.clip(outputs), dim=1)


@dataclass(frozen=True)
class ZeroOne(Loss):
    """Classification error ``1[argmax z != y]``: bounded by 1, not Lipschitz in the logits, no useful gradient."""

    classification = True
    lipschitz = math.inf

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        _check_classification(outputs, targets)
        return (outputs.argmax(dim=1) != targets).to(outputs.dtype)

    def bound(self, num_outputs: int, convention: BoundConvention = "true") -> float:
        _check_convention(convention)
        return 1.0

    def change_range(self, outputs: Tensor, new_outputs: Tensor) -> tuple[Tensor, Tensor]:
        check_paired(outputs, new_outputs)
        differ = (outputs.argmax(dim=1) != new_outputs.argmax(dim=1)).to(outputs.dtype)
        return -differ, differ

    def expected_change(self, outputs: Tensor, new_outputs: Tensor) -> Tensor:
        check_paired(outputs, new_outputs)
        p = outputs.softmax(dim=1)
        before, after = outputs.argmax(dim=1, keepdim=True), new_outputs.argmax(dim=1, keepdim=True)
        return (p.gather(1, before) - p.gather(1, after)).squeeze(1)


@dataclass(frozen=True)
class _RegressionLoss(Loss):
    """A convex function of the residual. With ``limit`` b, outputs are clipped to ``[-b, b]``, where targets must lie.

    ``ell(z~, y) - ell(z, y)`` is monotone in y, so its least and largest values over ``|y| <= b`` are at -b and b.
    """

    limit: float | None = None
    classification = False

    def __post_init__(self) -> None:
        if self.limit is not None:
            check_positive(self.limit, "limit")

    @abstractmethod
    def _of_residual(self, residual: Tensor) -> Tensor: ...

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        z = _single_output(outputs)
        check_vector(targets, "targets", length=len(z))
        if self.limit is not None and bool((targets.abs() > self.limit).any()):
            reach = float(targets.abs().max())
            raise ValueError(f"targets reach {reach:g}, beyond limit={self.limit:g}: raise limit or rescale them")
        return self._of_residual(self.clip(z) - targets)

    def clip(self, outputs: Tensor) -> Tensor:
        return outputs if self.limit is None else outputs.clamp(-self.limit, self.limit)

    def output_diameter(self, num_outputs: int) -> float:
        return math.inf if self.limit is None else 2 * self.limit

    def bound(self, num_outputs: int, convention: BoundConvention = "true") -> float:
        _check_convention(convention)
        if self.limit is None:
            return math.inf
        return float(self._of_residual(torch.tensor(2 * self.limit, dtype=torch.float64)))

    def extreme_targets(self, num_outputs: int) -> list[float]:
        """Both ends of ``[-b, b]``: the slope of a convex function is largest at an end."""
        return [] if self.limit is None else [-self.limit, self.limit]

    def change_range(self, outputs: Tensor, new_outputs: Tensor) -> tuple[Tensor, Tensor]:
        if self.limit is None:
            raise ValueError(
                f"{type(self).__name__} without a limit has no worst label: set limit to bound the targets"
            )
        check_paired(outputs, new_outputs)
        z, z_new = self.clip(_single_output(outputs)), self.clip(_single_output(new_outputs))
        first, second = (self._of_residual(z_new - y) - self._of_residual(z - y) for y in (-self.limit, self.limit))
        return torch.minimum(first, second), torch.maximum(first, second)

    def expected_change(self, outputs: Tensor, new_outputs: Tensor) -> Tensor:
        check_paired(outputs, new_outputs)
        return self._of_residual(self.clip(_single_output(new_outputs)) - self.clip(_single_output(outputs)))


@dataclass(frozen=True)
class SquaredError(_RegressionLoss):
    """``(z - y)^2``. With a limit b: ``M = 4 b^2``, ``L_ell = 4 b``; without one both are infinite."""

    def _of_residual(self, residual: Tensor) -> Tensor:
        return residual.square()

    @property
    def lipschitz(self) -> float:
        return math.inf if self.limit is None else 4 * self.limit


@dataclass(frozen=True)
class Huber(_RegressionLoss):
    """``r^2 / 2`` for ``|r| <= delta``, else ``delta (|r| - delta / 2)``; ``L_ell = delta``, or 2b if less."""

    delta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.delta, "delta")

    def _of_residual(self, residual: Tensor) -> Tensor:
        return F.huber_loss(residual, torch.zeros_like(residual), reduction="none", delta=self.delta)

    @property
    def lipschitz(self) -> float:
        return self.delta if self.limit is None else min(self.delta, 2 * self.limit)


def centred_change(change: Tensor) -> Tensor:
    """``v - mean(v)`` over the outputs of ``change [n, C, ...]``, if a loss ignores constants; v for ``C = 1``."""
    return change - change.mean(dim=1, keepdim=True) if change.shape[1] > 1 else change


def centred_change_norms(change: Tensor) -> Tensor:
    """``|v - mean(v)|`` of every row of ``change [n, C]``; ``|v|`` for ``C = 1``."""
    return torch.linalg.vector_norm(centred_change(change), dim=1)


def _check_classification(outputs: Tensor, targets: Tensor) -> None:
    check_logits(outputs, "outputs")
    check_labels(targets, "targets", length=len(outputs), num_classes=outputs.shape[1])


def _single_output(outputs: Tensor) -> Tensor:
    check_sample(outputs, "outputs")
    if outputs.shape[1] != 1:
        raise ValueError(
            f"outputs has shape {list(outputs.shape)}, regression losses need [n, 1]: diagnose one output at a time"
        )
    return outputs.squeeze(1)


def _check_convention(convention: str) -> None:
    if convention not in ("true", "paper"):
        raise ValueError(f"convention must be 'true' or 'paper', got {convention!r}")
