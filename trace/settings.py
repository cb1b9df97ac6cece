"""Every number that decides a diagnostic, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .checks import check_count, check_level, check_positive
from .estimators.kernels import KernelName, check_kernel
from .estimators.sinkhorn import TOL
from .losses import BoundConvention


@dataclass(frozen=True)
class Settings:
    """Every number that decides a diagnostic; the defaults are the paper's (``app:common-impl``) where it gives one."""

    q: float = 0.99
    """Level of the gradient quantile."""
    delta: float = 0.05
    eta: float = 0.05
    """Failure probabilities of the sampling and of the validation statements."""
    c_h: float = 1.0
    """Representation scale between feature distance and input distance."""
    distance: Literal["sinkhorn", "wasserstein1"] = "sinkhorn"
    """The published proxy (squared units), or the distance the theorem needs."""
    epsilon: float = 0.1
    num_iters: int = 200
    tol: float = TOL
    """By how much Sinkhorn's marginals may be off in total; ``num_iters`` are the most sweeps towards that."""
    kernel: KernelName = "rbf"
    bandwidth: float | None = None
    """Of the kernel; the median heuristic if absent."""
    mmd_samples: int = 20_000
    """Most rows of either sample in the quadratic MMD; of more, this many at even strides."""
    loss_bound: BoundConvention = "true"
    """M of the remainders: the loss's true bound, or the smaller one that the paper states."""
    remainders: Literal["corrected", "paper"] = "corrected"
    """"corrected": the events share ``delta + eta`` and both samples' W1 errors count. "paper": as printed."""
    w1_constant: float = 1.0
    """C_X = C_X~ of the W1 remainder. Unknown in practice; 1 is a convention, not an estimate."""
    mmd_constant: float | None = None
    """C_kappa of the MMD remainder; the explicit inequality for bounded kernels if absent."""
    batch_size: int = 1024
    input_diameter: float | None = None
    """Largest Euclidean distance between two possible inputs, where it is known: with it, and certified constants, the
    two-term bounds hold without further assumptions."""

    def __post_init__(self) -> None:
        for name in ("q", "delta", "eta"):
            check_level(getattr(self, name), name)
        for name in ("c_h", "epsilon", "tol", "w1_constant"):
            check_positive(getattr(self, name), name)
        if self.input_diameter is not None:
            check_positive(self.input_diameter, "input_diameter")
        for name in ("num_iters", "batch_size", "mmd_samples"):
            check_count(getattr(self, name), name)
        if self.mmd_samples < 2:
            raise ValueError("mmd_samples must be at least 2, got 1: an MMD compares pairs of rows")
        check_kernel(self.kernel, self.bandwidth)
        if self.mmd_constant is not None and not 0 <= self.mmd_constant < math.inf:
            raise ValueError(f"mmd_constant must be finite and at least 0, got {self.mmd_constant}")
        for name, allowed in (
            ("distance", ("sinkhorn", "wasserstein1")),
            ("loss_bound", ("true", "paper")),
            ("remainders", ("corrected", "paper")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.remainders == "corrected":
            check_level(self.delta + self.eta, "delta + eta")
