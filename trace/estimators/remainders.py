"""Statistical remainders of the bound, and the probability they spend (``cor:practical-trace``).

The corollary promises ``1 - delta - eta`` but spends more: delta for the label noise, delta again for the empirical
Wasserstein distance, and eta for each of two validation sets, ``2 delta + 2 eta`` in all. `Budget.union` divides
``delta + eta`` among the four events so that the promise holds; `Budget.paper` keeps the printed formulas and says what
they really cost.
"""

import math
from typing import NamedTuple

from ..checks import check_level, check_positive
from ..stats.intervals import check_size, hoeffding_radius


class Budget(NamedTuple):
    """Failure probability of each event in the full bound."""

    label_noise: float
    population: float
    source_validation: float
    target_validation: float

    @property
    def total(self) -> float:
        """Probability that any of the events fails, at most."""
        return sum(self)

    @classmethod
    def union(cls, delta: float, eta: float) -> "Budget":
        """Shares that add up to ``delta + eta``."""
        check_level(delta, "delta")
        check_level(eta, "eta")
        check_level(delta + eta, "delta + eta")
        return cls(delta / 2, delta / 2, eta / 2, eta / 2)

    @classmethod
    def paper(cls, delta: float, eta: float) -> "Budget":
        """Shares as printed; they add up to ``2 (delta + eta)``."""
        return cls(check_level(delta, "delta"), delta, check_level(eta, "eta"), eta)


def label_noise_remainder(n: int, n_target: int, bound: float, delta: float) -> float:
    """``M sqrt(log(4 / delta) / (2 n)) + M sqrt(log(4 / delta) / (2 n~))`` (``lem:emp-shift-label``)."""
    return hoeffding_radius(n, delta / 2, bound) + hoeffding_radius(n_target, delta / 2, bound)


def validation_remainder(m: int, m_target: int, bound: float, eta_source: float, eta_target: float) -> float:
    """``M sqrt(log(2 / eta_1) / (2 m)) + M sqrt(log(2 / eta_2) / (2 m~))`` (``cor:practical-trace``)."""
    return hoeffding_radius(m, eta_source, bound) + hoeffding_radius(m_target, eta_target, bound)


def w1_remainder(n: int, dim: int, delta: float, constant: float) -> float:
    """``C (log(4 / delta) / n)^(1 / max(d, 2))``, the error of an empirical W1 in d dimensions (``eq:w1-triangle``).

    ``constant`` depends on the unknown distribution; it is an argument and has no default.
    """
    check_size(n, "n")
    check_size(dim, "dim")
    check_positive(constant, "constant")
    return constant * (math.log(4 / check_level(delta, "delta")) / n) ** (1 / max(dim, 2))


def w1_excess(n: int, m: int, diameter: float, delta: float) -> float:
    """``D sqrt((1 / n + 1 / m) log(1 / delta) / 2)``: how far W1 may exceed that of samples, for inputs of diameter D.

    A sample's W1 lies above on average: it is convex, so ``W1(P, P~) = W1(E P_n, E P~_m) <= E W1(P_n, P~_m)``. And one
    row moves it by at most D / n or D / m, so that it falls short of its mean by more than this with probability at
    most delta (McDiarmid, 1989). Neither the dimension nor an unknown constant enters, in contrast to `w1_remainder`.
    """
    check_size(n, "n")
    check_size(m, "m")
    check_positive(diameter, "diameter")
    return diameter * math.sqrt((1 / n + 1 / m) * math.log(1 / check_level(delta, "delta")) / 2)


def mmd_remainder(n: int, m: int, delta: float, constant: float | None = None, *, unbiased: bool = True) -> float:
    """How much the MMD may exceed its estimate, for a kernel bounded by 1 (``prop:mmd-core``), in units of MMD.

    With a ``constant``, the printed form ``C sqrt(log(2 / delta) / n)``. Without one, the explicit inequality of
    Gretton et al. (2012, theorem 7) for the biased estimate, of which the printed form is a summary:
    ``2 (n^-1/2 + m^-1/2) + sqrt(2 (n + m) log(2 / delta) / (n m))``. The square of the biased estimate exceeds that of
    the unbiased one by at most ``1 / n + 1 / m``, so for the latter (clipped at 0) ``sqrt(1 / n + 1 / m)`` is added.
    """
    check_size(n, "n")
    check_size(m, "m")
    log_term = math.log(2 / check_level(delta, "delta"))
    if constant is not None:
        return check_positive(constant, "constant") * math.sqrt(log_term / n)
    biased = 2 * (n**-0.5 + m**-0.5) + math.sqrt(2 * (n + m) * log_term / (n * m))
    return biased + (math.sqrt(1 / n + 1 / m) if unbiased else 0.0)
