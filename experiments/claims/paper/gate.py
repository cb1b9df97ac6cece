"""Claims about the deployment gate that its printed numbers decide by arithmetic (``app:domainnet-gate``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from trace.stats.metrics import auprc, auroc

from ...analysis.paper import GATE, GATE_CANDIDATES, GATE_HARMFUL_SHARE, GATE_RHO, GateRow
from ..ledger import Finding, Records, claim, first_case

HARMFUL = round(GATE_HARMFUL_SHARE * GATE_CANDIDATES)
"""At tau = 0.13."""

ORDERS = {0.13: "P" * 10 + "NNP" + "N" * 7, 0.23: "PPPNP" + "N" * 15}
"""Candidates from the highest score of -MSP to the lowest, P where harmful, that give the printed areas at each tau."""

MOVING = ("model change",)
"""Terms that differ between candidates: the gaps are left out (``app:gate-scores``), the distances nearly constant."""

Rows = Sequence[GateRow]


@claim(
    "tab:gate-tau-main",
    "-MSP has rank correlation -0.874 with harm and AUROC 0.980 for harmful updates.",
    published="rho = -0.874, AUROC = 0.980 at tau = 0.13",
)
def msp_orientation(_: Records, rho: float = GATE_RHO["msp"], area: float = 0.980) -> Finding:
    """The smallest rank correlation with harm that the AUROC allows for a score of one orientation."""
    least = least_correlation(area, HARMFUL, GATE_CANDIDATES)
    return first_case(
        f"an AUROC of {area:.3f} with {HARMFUL} harmful of {GATE_CANDIDATES} needs rho >= {least:.2f}",
        0,
        (rho >= least, "reproduced", "One orientation of the score gives both numbers."),
        (
            True,
            "contradicts itself",
            "The two numbers need opposite signs of the score: with the sign that gives this AUROC, rho is +0.874.",
        ),
    )


@claim(
    "tab:gate-tau-app",
    "AUROC and AUPRC of the threshold sweep come from 20 candidates, 55% harmful at tau = 0.13.",
    published="0.980 and 0.986 (tau = 0.13), 0.984 and 0.950 (tau = 0.23) for -MSP",
)
def areas_fit_the_candidates(_: Records, rows: Rows = GATE, orders: Mapping[float, str] = ORDERS) -> Finding:
    """An order of 20 candidates for each threshold, and the areas it gives."""
    swept = [(orders[row.tau], (row.auroc_msp, row.auprc_msp)) for row in rows if row.tau in orders]
    return first_case(
        "; ".join(_description(order) for order, _ in swept),
        0,
        (
            all(abs(a - b) <= 0.0005 for order, areas in swept for a, b in zip(areas_of(order), areas, strict=True)),
            "reproduced",
            "97 of 99 pairs and 63 of 64 pairs in the right order give exactly the printed areas.",
        ),
        (True, "not reproduced", "These orders of the candidates do not give the printed areas."),
    )


@claim(
    "tab:gate-tau-main",
    "TRACE robustly outperforms the MSP baseline in classifying harmful updates.",
    published="rho 0.944 against -0.874, AUROC 1.000 against 0.980",
)
def trace_outperforms_msp(_: Records, rows: Rows = GATE, rho: Mapping[str, float] = GATE_RHO) -> Finding:
    """Ties over the thresholds, the lead in pairs of candidates, and Fisher's intervals of |rho|."""
    pairs = HARMFUL * (GATE_CANDIDATES - HARMFUL)
    leads = [row.auroc_trace - row.auroc_msp for row in rows]
    ties = sum(lead == 0 for lead in leads)
    ours, theirs = (fisher_interval(abs(rho[name]), GATE_CANDIDATES) for name in ("trace", "msp"))
    return first_case(
        (
            f"tied at {ties} of {len(rows)} thresholds, lead of {round(max(leads) * pairs)} in {pairs} pairs at the "
            f"best; 95% of |rho| {ours[0]:.2f} to {ours[1]:.2f} against {theirs[0]:.2f} to {theirs[1]:.2f}"
        ),
        0,
        (
            min(leads) > 0 and ours[0] > theirs[1],
            "reproduced",
            "TRACE leads at every threshold and its interval lies above.",
        ),
        (max(leads) <= 0, "not reproduced", "TRACE leads at no threshold."),
        (
            True,
            "partly",
            "The lead is one threshold wide and a few pairs of candidates high, and the intervals of |rho| overlap.",
        ),
    )


@claim(
    "sec:conclusion",
    "The gate shows that the decomposition of the bound is the foundation of ranking candidate models.",
    published="the gate is effectively the output distance (app:domainnet-gate)",
)
def gate_tests_the_decomposition(_: Records, moving: Sequence[str] = MOVING) -> Finding:
    """How many of the bound's four terms can take part in the ranking, by the paper's own account."""
    return first_case(
        f"{len(moving)} of 4 terms differs between candidates: {', '.join(moving)}",
        0,
        (len(moving) > 1, "reproduced", "More than one term of the decomposition ranks the candidates."),
        (
            True,
            "contradicts itself",
            "With constant distances and no gaps the score is the output distance, so the gate tests no decomposition.",
        ),
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
