"""Ridge regression on draws: Monte Carlo checks of the closed forms, and fits to finite samples.

The checks draw from source and target and know nothing of how a closed form was derived; the fits show what remains of
the population's orders when both models see samples.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator as NumpyGenerator
from torch import Generator, Tensor, nn
from torch.nn.utils import skip_init

from trace import Diagnostic, Sample, Settings, diagnose
from trace.losses import Huber, SquaredError

from . import forms as forms
from .forms import Array, Problem

ROUNDING = 1e-14
"""Added to every standard error, in units of order 1: a quantity that is exactly 0 has no spread of its own."""


LOSSES = {"squared": SquaredError, "huber": Huber}


class Draws(NamedTuple):
    """Base draws that all shifts share: ``[N, 2]`` in the plane of w* and mu, ``[N]`` each of the others."""

    plane: Array
    rest: Array
    """Squared length outside the plane."""
    noise: Array


def monte_carlo_errors(p: Problem, shifts: Array, *, q: float, num_draws: int, rng: NumpyGenerator) -> dict[str, float]:
    """Largest ``|estimate - closed form| / standard error`` over the shifts ``[k]``, for each closed form.

    The weights are checked by their normal equations ``E[(w.x - y) x] + lam w = 0``, a quantile by how many draws lie
    below it.
    """
    base = rng.standard_normal((num_draws, p.dim))
    draws = Draws(base[:, :2], np.square(base[:, 2:]).sum(axis=1), p.sigma * rng.standard_normal(num_draws))
    curves, w_new = forms.curves(p, shifts, q), forms.target_weights(p, shifts)
    worst: dict[str, float] = {}
    for i, m in enumerate(shifts):
        exact = {name: float(curve[i]) for name, curve in curves.items()}
        for name, error in _errors_at(p, float(m), w_new[i], exact, q, draws).items():
            worst[name] = max(worst.get(name, 0.0), error)
    return worst


def _errors_at(p: Problem, m: float, w_new: Array, exact: dict[str, float], q: float, draws: Draws) -> dict[str, float]:
    plane, rest, noise = draws
    w, moved = forms.source_weights(p), plane + m * p.direction
    residual, residual_new = (plane @ (v - p.true_weights) - noise for v in (w, w_new))
    on_target = moved @ (w_new - p.true_weights) - noise
    L_Q, L_new = forms.source_sensitivity(p, q), exact["shift_penalty"] / m
    return {
        "source_weights": max(_standardised(residual * plane[:, j] + p.lam * w[j], 0.0) for j in (0, 1)),
        "target_weights": max(_standardised(on_target * moved[:, j] + p.lam * w_new[j], 0.0) for j in (0, 1)),
        "model_change": _standardised(np.abs(moved @ (w_new - w)), exact["model_change"]),
        "mean_norm": _standardised(np.sqrt(np.square(moved).sum(axis=1) + rest), exact["mean_norm"]),
        "cosp": _standardised(on_target**2 - residual_new**2, exact["cosp"]),
        "risk_change": _standardised(residual_new**2 - residual**2, exact["risk_change"]),
        "source_sensitivity": _level_error(2 * np.abs(residual) * np.linalg.norm(w), L_Q, q),
        "target_sensitivity": _level_error(2 * np.abs(on_target) * np.linalg.norm(w_new), L_new, q),
    }


def _standardised(sample: Array, expected: float) -> float:
    return float(abs(sample.mean() - expected) / (sample.std() / math.sqrt(len(sample)) + ROUNDING))


def _level_error(sample: Array, quantile: float, q: float) -> float:
    """How far the share of draws below an exact q-quantile is from q, in binomial standard errors."""
    return float(abs((sample <= quantile).mean() - q) / math.sqrt(q * (1 - q) / len(sample)))


class World:
    """Source and target samples of a problem, with one generator for all draws."""

    def __init__(self, p: Problem, generator: Generator) -> None:
        self.problem, self.generator = p, generator
        self.true_weights, self.direction = (
            torch.cat([torch.from_numpy(v), torch.zeros(p.dim - 2, dtype=torch.float64)])
            for v in (p.true_weights, p.direction)
        )

    def draw(self, n: int) -> tuple[Tensor, Tensor]:
        """Base inputs ``[n, d]`` and label noise ``[n]``."""
        x = torch.randn(n, self.problem.dim, generator=self.generator, dtype=torch.float64)
        return x, self.problem.sigma * torch.randn(n, generator=self.generator, dtype=torch.float64)

    def sample(self, draw: tuple[Tensor, Tensor], m: float = 0.0) -> Sample:
        """A draw moved by mu, labelled by the same law everywhere."""
        x = draw[0] + m * self.direction
        return Sample(x, x @ self.true_weights + draw[1])

    def fit(self, sample: Sample) -> Tensor:
        """``(X^T X / n + lam I)^-1 X^T y / n`` ``[d]``."""
        x, n = sample.x, len(sample.x)
        assert sample.y is not None
        moment = x.T @ x / n + self.problem.lam * torch.eye(x.shape[1], dtype=x.dtype)
        return torch.linalg.solve(moment, x.T @ sample.y / n)

    def risk_change(self, w: Tensor, w_new: Tensor) -> float:
        """``Delta R = (w~ - w).(w~ + w - 2 w*)``: the population risk of two fits, signed."""
        return float((w_new - w) @ (w_new + w - 2 * self.true_weights))


def refit_curves(p: Problem, shifts: list[float], *, n: int, generator: Generator) -> dict[str, list[float]]:
    """Signed risk change of models fitted to n draws each, against the shift.

    ``fresh``: source and target samples are drawn apart. ``shared``: the target is the source sample moved by mu, so
    that nothing but the shift separates the two fits.
    """
    world = World(p, generator)
    source, target = world.draw(n), world.draw(n)
    w = world.fit(world.sample(source))
    return {
        name: [world.risk_change(w, world.fit(world.sample(draw, m))) for m in shifts]
        for name, draw in (("fresh", target), ("shared", source))
    }


def linear(w: Tensor) -> nn.Linear:
    """``x -> w.x`` as ``[n, 1]``."""
    model = skip_init(nn.Linear, len(w), 1, bias=False, dtype=w.dtype)
    model.weight.data.copy_(w[None])
    return model


def diagnose_fits(
    p: Problem, m: float, *, n: int, n_val: int, n_test: int, loss: str, settings: Settings, generator: Generator
) -> Diagnostic:
    """The full diagnostic of two fits with held-out splits and an anchor test sample, on a loss of `LOSSES`.

    Without a limit the losses have no M, and model change or remainders are undefined. The limit is
    the smallest that covers all targets of these samples; outputs are clipped to it as well. A warning about the RKHS
    norm is silenced: only the MMD forms use that norm, and this experiment reports the transport form.
    """
    world = World(p, generator)
    source, source_val, anchor = (world.sample(world.draw(size)) for size in (n, n_val, n_test))
    target, target_val = (world.sample(world.draw(size), m) for size in (n, n_val))
    samples = (source, source_val, anchor, target, target_val)
    limit = max(float(sample.y.abs().max()) for sample in samples if sample.y is not None)
    w, w_new = world.fit(source), world.fit(target)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the ridge chosen by cross-validation", category=RuntimeWarning)
        return diagnose(
            linear(w),
            linear(w_new),
            source,
            target,
            source_val=source_val,
            target_val=target_val,
            anchor_test=anchor,
            loss=LOSSES[loss](limit=limit),
            settings=settings,
            generator=generator,
        )
