"""Closed forms of ridge regression under a mean shift (``sec:theoretical_example``, ``app:ridge_derivation``).

Source ``x ~ N(0, I_d)``, target ``x ~ N(mu, I_d)``, labels ``y = w*.x + eps`` with ``eps ~ N(0, sigma^2)`` on both;
Q and Q~ minimise the population risk plus ``lam |w|^2`` on source and target. Everything but ``E|x|`` happens in the
plane of w* and mu, so vectors are given by their two coordinates there: ``w* = signal e_1``, ``mu = m (cos, sin)`` of
the angle between them. All functions take the shift sizes ``m = |mu| [k]`` at once and are exact up to rounding.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Array = NDArray[np.float64]


class Problem(NamedTuple):
    """What stays the same while the shift grows."""

    lam: float
    """Weight lambda of the penalty."""
    dim: int
    """Number of inputs d, at least 2."""
    angle: float
    """Between mu and w*, in degrees."""
    sigma: float
    """Standard deviation of the label noise, above 0."""
    signal: float = 1.0
    """``|w*|``."""

    @property
    def direction(self) -> Array:
        """``mu / |mu|`` ``[2]``; the cosine is exactly 0 at 90 degrees."""
        return np.array([math.sin(math.radians(90.0 - self.angle)), math.sin(math.radians(self.angle))])

    @property
    def true_weights(self) -> Array:
        """``w*`` ``[2]``."""
        return np.array([self.signal, 0.0])

    @property
    def overlap(self) -> float:
        """``mu.w* / |mu|``."""
        return float(self.direction @ self.true_weights)


def source_weights(p: Problem) -> Array:
    """``w_Q = w* / (1 + lam)`` ``[2]`` (``eq:w_q_sol``)."""
    return p.true_weights / (1 + p.lam)


def weight_change(p: Problem, m: Array) -> Array:
    """``Delta w = lam (mu.w*) mu / ((1 + lam) (1 + lam + m^2))`` ``[k, 2]``, by Sherman and Morrison."""
    size = p.lam * p.overlap * m**2 / ((1 + p.lam) * (1 + p.lam + m**2))
    return size[:, None] * p.direction


def target_weights(p: Problem, m: Array) -> Array:
    """``w_Q~ = ((1 + lam) I + mu mu^T)^-1 (I + mu mu^T) w*`` ``[k, 2]`` (``eq:w_q_tilde_sol``)."""
    return source_weights(p) + weight_change(p, m)


def norm(vectors: Array) -> Array:
    """Euclidean length of every row, ``[k]`` from ``[k, 2]``."""
    return np.hypot(vectors[..., 0], vectors[..., 1])


def folded_normal_mean(mean: Array, deviation: Array) -> Array:
    """``E|z|`` for ``z ~ N(mean, deviation^2)``; 0 where both are 0."""
    ratio = mean / np.where(deviation > 0, deviation, 1.0)
    standard = math.sqrt(2 / math.pi) * np.exp(-(ratio**2) / 2) + ratio * special.erf(ratio / math.sqrt(2))
    return deviation * standard


def model_change(p: Problem, m: Array) -> Array:
    """``E|Delta w.x|`` on the target ``[k]`` (``eqn:staility_penalty`` without L_ell): ``Delta w.x`` is Gaussian."""
    change = weight_change(p, m)
    return folded_normal_mean(m * (change @ p.direction), norm(change))


def mean_norm(p: Problem, m: Array) -> Array:
    """``E|x|`` on the target ``[k]``, the mean of a noncentral chi.

    ``sqrt(2) Gamma((d + 1) / 2) / Gamma(d / 2) 1F1(-1/2; d/2; -m^2 / 2)``, with scipy's 1F1.

    Raises:
        ValueError: where 1F1 overflows, which it does for d of about 1000.
    """
    half = p.dim / 2
    scale = math.sqrt(2) * math.exp(math.lgamma(half + 0.5) - math.lgamma(half))
    found: Array = scale * special.hyp1f1(-0.5, half, -(m**2) / 2)
    if not np.isfinite(found).all():
        raise ValueError(f"E|x| overflows in {p.dim} dimensions: use fewer")
    return found


def model_change_bound(p: Problem, m: Array) -> Array:
    """``|Delta w| E|x|`` ``[k]``: the bound of Cauchy and Schwarz on `model_change`."""
    return norm(weight_change(p, m)) * mean_norm(p, m)


def cosp(p: Problem, m: Array) -> Array:
    """``|R_P~(Q~) - R_P(Q~)| = (mu.(w~ - w*))^2`` ``[k]`` (``lem:trace-decomp``).

    It is ``(lam (mu.w*) / (1 + lam + m^2))^2``, which falls again beyond ``m^2 = 1 + lam``.
    """
    return np.square(p.lam * p.overlap * m / (1 + p.lam + m**2))


def risk_change(p: Problem, m: Array) -> Array:
    """``Delta R = |w~ - w*|^2 - |w - w*|^2`` ``[k]``, signed: negative is better on the source.

    With ``Delta w`` inserted, ``-lam^2 (mu.w*)^2 (2 (1 + lam) + m^2) / ((1 + lam)^2 (1 + lam + m^2)^2)``.
    """
    top = (p.lam * p.overlap * m) ** 2 * (2 * (1 + p.lam) + m**2)
    return -top / ((1 + p.lam) * (1 + p.lam + m**2)) ** 2


def risk_change_limit(p: Problem) -> float:
    """``Delta R`` for ``m -> infinity``: ``-(lam |w*| cos / (1 + lam))^2``."""
    return -((p.lam * p.overlap / (1 + p.lam)) ** 2)


def loss_slope(p: Problem, weights: Array, means: Array, q: float) -> Array:
    """q-quantile of ``|d ell / dz| = 2 |w.x - y|`` ``[k]`` for ``x ~ N(mean, I)``.

    The residual is Gaussian, so its square is a noncentral chi-square with one degree of freedom.

    Args:
        weights, means: ``[k, 2]``.
    """
    error = weights - p.true_weights
    deviation = np.sqrt(norm(error) ** 2 + p.sigma**2)
    offset = np.abs((error * means).sum(axis=-1))
    return 2 * deviation * np.sqrt(special.chndtrix(q, 1.0, (offset / deviation) ** 2))


def source_sensitivity(p: Problem, q: float) -> float:
    """``L_x^(q)(Q)``: q-quantile of ``|grad_x (w.x - y)^2| = 2 |w.x - y| |w|`` on the source, where the anchor lies."""
    w = source_weights(p)[None]
    return float((loss_slope(p, w, np.zeros_like(w), q) * norm(w))[0])


def target_sensitivity(p: Problem, m: Array, q: float) -> Array:
    """``L_x^(q)(Q~)`` ``[k]``, on the target. The supremum is infinite: Gaussian inputs have no largest residual."""
    w = target_weights(p, m)
    return loss_slope(p, w, m[:, None] * p.direction, q) * norm(w)


def curves(p: Problem, m: Array, q: float) -> dict[str, Array]:
    """Every quantity of the example against ``m [k]``.

    ``W_1 = m``: moving every point by mu costs m, and no coupling of two laws beats the distance of their means. L_ell
    does not exist either; in its place stands the q-quantile of `loss_slope` on the target, the larger of both models.

    ``bound = (L_x(Q) + L_x(Q~)) m + L_ell E|Delta w.x|`` is the core of ``cor:practical-trace`` without gaps.
    """
    w, w_new, means = np.tile(source_weights(p), (len(m), 1)), target_weights(p, m), m[:, None] * p.direction
    L_ell = np.maximum(loss_slope(p, w, means, q), loss_slope(p, w_new, means, q))
    L_new = target_sensitivity(p, m, q)
    change = model_change(p, m)
    return {
        "shift_penalty": L_new * m,
        "weight_change": norm(weight_change(p, m)),
        "model_change": change,
        "model_change_bound": model_change_bound(p, m),
        "mean_norm": mean_norm(p, m),
        "cosp": cosp(p, m),
        "risk_change": risk_change(p, m),
        "loss_slope": L_ell,
        "bound": (source_sensitivity(p, q) + L_new) * m + L_ell * change,
    }


class Slope(NamedTuple):
    """Least-squares slope of log y in log x, with its interval; NaN where y is 0 or fewer than 3 points are in."""

    estimate: float
    lower: float
    upper: float
    num_points: int


def log_log_slope(x: Array, y: Array, *, within: tuple[float, float], level: float = 0.95) -> Slope:
    """Order of ``|y|`` in x over ``within[0] <= x <= within[1]``; Student's interval shows the bend of the curve.

    >>> m = np.logspace(-2, 0, 5)
    >>> round(log_log_slope(m, 3 * m**2, within=(0.01, 0.5)).estimate, 9)
    2.0
    """
    chosen = (within[0] <= x) & (x <= within[1]) & (y != 0)
    count = int(chosen.sum())
    if count < 3:
        return Slope(math.nan, math.nan, math.nan, count)
    fit = stats.linregress(np.log(x[chosen]), np.log(np.abs(y[chosen])))
    error = np.nan_to_num(fit.stderr)  # scipy has NaN for a constant, which fits exactly
    reach = float(stats.t.ppf((1 + level) / 2, count - 2) * error)
    return Slope(float(fit.slope), float(fit.slope) - reach, float(fit.slope) + reach, count)
