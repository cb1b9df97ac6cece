"""The numbers that the paper prints, under the paper's own labels."""

from typing import NamedTuple

NEAR = 1.5
"""Factor within which a published size counts as met."""


def near(value: float, published: float) -> bool:
    """Whether a size above 0 is met within a factor of `NEAR`.

    >>> near(1.0, 1.4), near(1.0, 1.6), near(0.0, 1.0)
    (True, False, False)
    """
    return value / NEAR <= published <= value * NEAR


class ExcerptRow(NamedTuple):
    """A row of ``tab:combined-excerpt-app``."""

    world: str
    severity: float
    n: int
    risk_change: float
    bound_ot: float
    bound_mmd: float
    emp_shift_ot: float
    emp_shift_mmd: float
    model_change: float
    gap_source: float
    gap_target: float


EXCERPT = (
    ExcerptRow("blobs_shift", 0.25, 1000, 0.0470, 1.73, 1.73, 0.0008, 0.0042, 1.7240, 0.0033, 0.0034),
    ExcerptRow("blobs_shift", 0.25, 2000, 0.0468, 2.09, 2.10, 0.0003, 0.0018, 2.0648, 0.0148, 0.0147),
    ExcerptRow("blobs_shift", 1.00, 2000, 0.7097, 32.72, 32.72, 0.0047, 0.0084, 32.6832, 0.0148, 0.0147),
    ExcerptRow("moons_warp", 0.00, 1000, 0.0166, 0.57, 0.50, 0.0628, 0.0000, 0.5004, 0.0016, 0.0013),
    ExcerptRow("moons_warp", 0.25, 2000, 0.0115, 0.81, 1.01, 0.3175, 0.5174, 0.4815, 0.0113, 0.0026),
    ExcerptRow("moons_warp", 1.00, 2000, 0.0490, 6.41, 5.94, 3.3639, 2.8969, 3.0276, 0.0125, 0.0017),
    ExcerptRow("moons_warp", 2.00, 2000, 0.3302, 21.54, 17.73, 9.5040, 5.6925, 12.0233, 0.0133, 0.0019),
)

RANK_POWER = {
    ("blobs_shift", "proxy_ot"): 0.984,
    ("blobs_shift", "proxy_mmd"): 0.984,
    ("moons_warp", "proxy_ot"): 0.818,
    ("moons_warp", "proxy_mmd"): 0.758,
}
"""Spearman's rho of TRACE-Proxy with |Delta R| (``app:synth-details``)."""


class ActiveRow(NamedTuple):
    """A row of ``tab:trace-domainnet-combined-app``; |Delta R| in percentage points of top-1 error."""

    policy: str
    round: int
    labeled: int
    distance: float
    output_distance: float
    proxy: float
    risk_change: float
    ratio: float


ACTIVE = (
    ActiveRow("w1min", 1, 50, 0.0182, 42.23, 42.74, 5.82, 7.34),
    ActiveRow("w1min", 2, 100, 0.0051, 48.94, 49.11, 8.71, 5.64),
    ActiveRow("w1min", 3, 150, 0.0043, 47.02, 47.17, 6.76, 6.98),
    ActiveRow("w1min", 4, 200, 0.0036, 45.42, 45.55, 5.71, 7.98),
    ActiveRow("w1min", 5, 250, 0.0034, 44.68, 44.79, 5.11, 8.76),
    ActiveRow("mmdmin", 1, 50, 0.1772, 27.77, 39.73, 3.35, 11.86),
    ActiveRow("mmdmin", 2, 100, 0.1287, 39.09, 51.09, 3.69, 13.85),
    ActiveRow("mmdmin", 3, 150, 0.1062, 54.95, 65.85, 2.21, 29.80),
    ActiveRow("mmdmin", 4, 200, 0.0994, 53.49, 65.45, 4.40, 14.88),
    ActiveRow("mmdmin", 5, 250, 0.0984, 66.56, 79.89, 4.48, 17.83),
)


class GateRow(NamedTuple):
    """A row of ``tab:gate-tau-app``."""

    tau: float
    auroc_trace: float
    auprc_trace: float
    auroc_msp: float
    auprc_msp: float


GATE_TAU = 0.13
"""The threshold of harm in the paper's main text (``tab:gate-tau-main``)."""

GATE = (
    GateRow(0.10, 1.000, 1.000, 1.000, 1.000),
    GateRow(GATE_TAU, 1.000, 1.000, 0.980, 0.986),
    GateRow(0.23, 0.984, 0.950, 0.984, 0.950),
)

GATE_RHO = {"trace": 0.944, "msp": -0.874}
"""Spearman's rho with harm (``tab:gate-tau-main``)."""

GATE_CANDIDATES = 20
GATE_HARMFUL_SHARE = 0.55
"""At `GATE_TAU`."""
