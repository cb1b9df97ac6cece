"""What the printed numbers of the deployment gate say by arithmetic (``app:domainnet-gate``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from trace.stats.metrics import auprc, auroc

from ...analysis.paper import GATE, GATE_CANDIDATES, GATE_HARMFUL_SHARE, GATE_RHO, GateRow
from ..ledger import Measurement, arithmetic

HARMFUL = round(GATE_HARMFUL_SHARE * GATE_CANDIDATES)
"""At tau = 0.13."""

ORDERS = {0.13: "P" * 10 + "NNP" + "N" * 7, 0.23: "PPPNP" + "N" * 15}
"""Candidates from the highest score of -MSP to the lowest, P where harmful, that give the printed areas at each tau."""

MOVING = ("model change",)
"""Terms that differ between candidates: the gaps are left out (``app:gate-scores``), the distances nearly constant."""

Rows = Sequence[GateRow]


@arithmetic
def msp_orientation(rho: float = GATE_RHO["msp"], area: float = 0.980) -> Measurement:
    """The smallest rank correlation with harm that the AUROC allows for a score of one orientation."""
    least = least_correlation(area, HARMFUL, GATE_CANDIDATES)
    return Measurement(
        f"an AUROC of {area:.3f} with {HARMFUL} harmful of {GATE_CANDIDATES} needs rho >= {least:.2f}",
        0,
        {"rho above the least": rho - least},
    )


@arithmetic
def areas_fit_the_candidates(rows: Rows = GATE, orders: Mapping[float, str] = ORDERS) -> Measurement:
    """An order of 20 candidates for each threshold, and the areas it gives."""
    swept = [(orders[row.tau], (row.auroc_msp, row.auprc_msp)) for row in rows if row.tau in orders]
    errors = {
        f"{name} of {order}": abs(a - b)
        for order, areas in swept
        for name, a, b in zip(("AUROC", "AUPRC"), areas_of(order), areas, strict=True)
    }
    return Measurement("; ".join(_description(order) for order, _ in swept), 0, {"error": errors})


@arithmetic
def trace_outperforms_msp(rows: Rows = GATE, rho: Mapping[str, float] = GATE_RHO) -> Measurement:
    """Ties over the thresholds, the lead in pairs of candidates, and Fisher's intervals of |rho|."""
    pairs = HARMFUL * (GATE_CANDIDATES - HARMFUL)
    leads = {f"{row.tau:g}": row.auroc_trace - row.auroc_msp for row in rows}
    ties = sum(lead == 0 for lead in leads.values())
    ours, theirs = (fisher_interval(abs(rho[name]), GATE_CANDIDATES) for name in ("trace", "msp"))
    return Measurement(
        f"tied at {ties} of {len(rows)} thresholds, lead of {round(max(leads.values()) * pairs)} in {pairs} pairs at "
        f"the best; 95% of |rho| {ours[0]:.2f} to {ours[1]:.2f} against {theirs[0]:.2f} to {theirs[1]:.2f}",
        0,
        {"lead": leads, "gap of |rho|": ours[0] - theirs[1]},
    )


@arithmetic
def gate_tests_the_decomposition(moving: Sequence[str] = MOVING) -> Measurement:
    """How many of the bound's four terms can take part in the ranking, by the paper's own account."""
    return Measurement(
        f"{len(moving)} of 4 terms differs between candidates: {', '.join(moving)}", 0, {"terms": len(moving)}
    )


def least_correlation(area: float, harmful: int, candidates: int) -> float:
    """Smallest Spearman correlation of a score with harm, given its AUROC for the most harmful ones.

    Within each class the order may be the reverse of harm; between the classes the area fixes the sum of ranks.
    """
    harmless, ranks = candidates - harmful, range(1, candidates + 1)
    offset, total = harmful * (harmful + 1) // 2, candidates * (candidates + 1) // 2
    harm = [*range(harmless, 0, -1), *range(candidates, harmless, -1)]
    least = math.inf
    for low in itertools.combinations(ranks, harmless):
        if abs((total - sum(low) - offset) / (harmful * harmless) - area) <= 0.0005:
            score = [*low, *sorted(set(ranks) - set(low))]
            squares = sum((a - b) ** 2 for a, b in zip(score, harm, strict=True))
            least = min(least, 1 - 6 * squares / (candidates * (candidates**2 - 1)))
    return least


def areas_of(order: str) -> tuple[float, float]:
    """AUROC and AUPRC of candidates from the highest score to the lowest, P where harmful."""
    harmful, score = [letter == "P" for letter in order], [-float(place) for place in range(len(order))]
    return auroc(score, harmful).value, auprc(score, harmful).value


def _description(order: str) -> str:
    area, precision = areas_of(order)
    harmful, pairs = order.count("P"), order.count("P") * order.count("N")
    return f"{harmful} harmful, {round(area * pairs)} of {pairs} pairs right: {area:.3f} and {precision:.3f}"


def fisher_interval(rho: float, n: int) -> tuple[float, float]:
    """Approximate 95% interval of a correlation of n points, by Fisher's transformation."""
    half = 1.96 / math.sqrt(n - 3)
    return math.tanh(math.atanh(rho) - half), math.tanh(math.atanh(rho) + half)
