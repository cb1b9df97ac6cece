"""Ridge regression under a mean shift: the orders of every term of the bound, in closed form and on samples.

Table `ridge-scaling`, figure `slopes` and the claims of ``sec:theoretical_example`` and ``app:ridge_derivation``.

    python -m experiments run ridge                  # 132 runs, about 1 minute on one core
    python -m experiments run ridge config=smoke     # 2 runs, seconds
    python -m experiments run ridge config=paper     # 360 runs, larger samples, about 45 minutes on one core

The closed forms hold for infinite data. The finite part fits both models to samples and runs the whole diagnostic.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Generator

from trace import Diagnostic

from .engine.config import added
from .engine.errors import UserError
from .engine.records import significant
from .engine.run import Context
from .pairs.settings import SettingsConfig
from .regression import forms as forms
from .regression.forms import Array, Problem, log_log_slope
from .regression.samples import LOSSES, diagnose_fits, monte_carlo_errors, refit_curves

SMALL, LARGE = (0.0, 0.1), (10.0, math.inf)
"""Shift sizes that count as small and as large, in standard deviations of an input."""

DIGITS = 7
"""Significant digits of stored numbers."""

TAILS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9)
"""Shares ``1 - q`` at which the gradient quantile is stored, to see whether it settles."""


def _log_grid() -> list[float]:
    """Five shift sizes a decade from 1e-3 to 1e2."""
    return [float(f"{10 ** (k / 5):.4g}") for k in range(-15, 11)]


@dataclass(frozen=True)
class Config(SettingsConfig):
    profile: str = "cpu"
    """Name of the variant."""
    seed: int = 0
    """Of all draws: Monte Carlo checks and samples."""
    part: str = "both"
    """closed, finite, or both."""
    lam: float = 1.0
    """Weight lambda of the penalty on |w|^2."""
    dim: int = 10
    """Number of inputs d, at least 2."""
    angle: float = 45.0
    """Between mu and w*, in degrees."""
    sigma: float = 0.5
    """Standard deviation of the label noise, beside |w*| = 1."""
    shifts: list[float] = field(default_factory=_log_grid)
    """Sizes |mu| of the curves, in standard deviations of an input, ascending."""
    num_draws: int = 10_000
    """Monte Carlo draws behind each check of a closed form."""
    n: int = 300
    """Samples that each model is fitted to."""
    n_val: int = 200
    """Held-out samples of source and of target."""
    n_test: int = 5_000
    """Labelled anchor samples for the true risk change."""
    sample_shifts: list[float] = field(default_factory=lambda: [0.01, 0.1, 1.0, 10.0])
    """Sizes |mu| at which the whole diagnostic is computed."""
    distance: str = "wasserstein1"
    """What the theorem needs; sinkhorn is the published proxy, in squared units."""
    loss: str = added("squared")
    """Of the diagnostic on samples: squared, or huber; the fits are the same."""

    def __post_init__(self) -> None:
        if self.part not in ("closed", "finite", "both"):
            raise UserError(f"ridge: part must be closed, finite or both, got {self.part!r}")
        if self.loss not in LOSSES:
            raise UserError(f"ridge: loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")
        if self.dim < 2 or self.sigma <= 0 or self.lam < 0:
            raise UserError(f"ridge needs dim >= 2, sigma > 0 and lam >= 0, got {self.dim}, {self.sigma}, {self.lam}")
        if not 0 < self.q < 1:
            raise UserError(
                f"ridge: q must lie between 0 and 1, got {self.q}: Gaussian gradients have no largest value"
            )
        for name, sizes in (("shifts", self.shifts), ("sample_shifts", self.sample_shifts)):
            if not sizes or min(sizes) <= 0:
                raise UserError(f"ridge: {name} must be positive sizes |mu|, at least one, as slopes are in log |mu|; "
                                f"got {sizes}")  # fmt: skip


def check(config: Config) -> None:
    """Refuse numbers out of range."""
    config.settings()


def run(config: Config, context: Context) -> dict[str, Any]:
    """Closed forms over all shifts with their orders and Monte Carlo checks, then the same questions on samples."""
    problem = Problem(config.lam, config.dim, config.angle, config.sigma)
    metrics: dict[str, Any] = {}
    if config.part != "finite":
        metrics["closed"] = closed_part(problem, config)
    if config.part != "closed":
        metrics["finite"] = finite_part(problem, config)
    return significant(metrics, DIGITS)


def closed_part(problem: Problem, config: Config) -> dict[str, Any]:
    """Curves ``[k]``, orders in both regimes, the limit of Delta R, and the largest standardised Monte Carlo errors."""
    m = np.array(config.shifts)
    curves = forms.curves(problem, m, config.q)
    ratio = {"tightness": curves["bound"] / np.abs(curves["risk_change"])} if curves["risk_change"].all() else {}
    rng = np.random.default_rng(config.seed)
    return {
        "shifts": m,
        "curves": curves,
        "slopes": slopes(m, {**curves, **ratio}),
        "risk_change_limit": forms.risk_change_limit(problem),
        "quantiles": [[tail, forms.source_sensitivity(problem, 1 - tail)] for tail in TAILS],
        "monte_carlo_errors": monte_carlo_errors(problem, m, q=config.q, num_draws=config.num_draws, rng=rng),
    }


def finite_part(problem: Problem, config: Config) -> dict[str, Any]:
    """Risk change of fitted models against the shift, and the whole diagnostic at some shifts."""
    refits = refit_curves(problem, config.shifts, n=config.n, generator=Generator().manual_seed(config.seed))
    settings = config.settings()
    rows = []
    for k, m in enumerate(config.sample_shifts):
        generator = Generator().manual_seed(1000 * (config.seed + 1) + k)
        sizes = {"n": config.n, "n_val": config.n_val, "n_test": config.n_test}
        found = diagnose_fits(problem, m, **sizes, loss=config.loss, settings=settings, generator=generator)
        rows.append(diagnostic_row(m, found))
    return {
        "shifts": config.shifts,
        "refits": refits,
        "slopes": slopes(np.array(config.shifts), {name: np.array(curve) for name, curve in refits.items()}),
        "diagnostics": rows,
        "diagnostic_slope": log_log_slope(
            np.array(config.sample_shifts),
            np.array([row["risk_change"] for row in rows]),
            within=(0.0, math.inf),
        ),
    }


def diagnostic_row(m: float, found: Diagnostic) -> dict[str, Any]:
    """The terms of one diagnostic in the transport form, in units of the loss."""
    e = found.evidence
    return {
        "shift": m,
        "risk_change": found.risk_change,
        "risk_change_error": math.nan if e.risk_change is None else e.risk_change.standard_error,
        "bound_core": found.bound_core(),
        "bound_full": found.bound_full(),
        "tightness": found.tightness(),
        "holds": abs(found.risk_change) <= found.bound_core(),
        **found.core_terms(),
        **found.remainders(),
        "transport": e.shift.transport.value,
        "lipschitz_loss": e.lipschitz,
        "loss_bound": e.loss_bound,
        "reasons": found.reasons,
    }


def slopes(m: Array, curves: dict[str, Array]) -> dict[str, dict[str, list[float]]]:
    """``[estimate, lower, upper, points]`` of the log-log slope of each curve, for small and for large shifts."""
    return {
        regime: {name: list(log_log_slope(m, curve, within=within)) for name, curve in curves.items()}
        for regime, within in (("small", SMALL), ("large", LARGE))
    }


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("ridge")
