"""What the paper says about its synthetic worlds (`app:synth-details`), judged by the records of `synthetic`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..analysis.cells import interval
from ..analysis.frame import Frame, evaluated, groups, size, synthetic_frame, where
from ..analysis.paper import EXCERPT, RANK_POWER, near
from ..analysis.synthetic import covers, rank_correlation
from ..engine.records import Record
from .ledger import Claim, Finding, Verdict, claim, graded, needs, unfinished

PUBLISHED = ("blobs_shift", "moons_warp")
"""The paper's own worlds."""
CALIBRATED = "development candidates, which c_h needs,"
"""What a grid lacks whose proxies are undefined."""


def travelling(records: list[Record], **values: str) -> Frame:
    """The evaluated pairs whose labels moved with the points, as the published sizes need."""
    return where(evaluated(synthetic_frame(records)), variant="labels travel", **values)


def defined(frame: Frame, *scores: str) -> bool:
    """Whether there are pairs, and all of them have these scores."""
    return size(frame) > 0 and not any(np.isnan(frame[score]).any() for score in scores)


def _missing(what: str) -> Finding:
    return unfinished("synthetic", what)


def _rank_claim(world: str, score: str, title: str) -> Claim:
    published = RANK_POWER[world, score]

    @claim(
        "app:synth-details",
        f"Spearman's rho of TRACE-Proxy ({title}) with |Delta R|",
        published=f"{published:.3f}",
        name=f"rank_{world}_{score}",
    )
    @needs("synthetic")
    def judged(records: list[Record]) -> Finding:
        parts = {model: travelling(records, world=world, model=model)
                 for (model,) in groups(travelling(records, world=world), "model")}  # fmt: skip
        parts = {model: part for model, part in parts.items() if defined(part, score)}
        if not parts:
            return _missing(f"pairs of {world} beside {CALIBRATED}")
        found = {model: rank_correlation(part, score) for model, part in parts.items()}
        lowest = min(f.estimate for f in found.values())
        verdict = graded(lowest >= published - 0.02, lowest > 0.5)
        shown = "; ".join(f"{model} {interval(f)}" for model, f in found.items()) + _seeds(*parts.values())
        others = ", ".join(f"{model} {_rho(part, 'output_distance'):.3f}" for model, part in parts.items())
        why = f"Model change alone ranks as follows on the same pairs: {others}."
        return Finding(shown, sum(size(p) for p in parts.values()), verdict, why)

    return judged


def _seeds(*parts: Frame) -> str:
    """Over how many seeds the intervals are."""
    return f" ({len({seed for part in parts for seed in groups(part, 'seed')})} seeds)"


def _rho(frame: Frame, score: str) -> float:
    return rank_correlation(frame, score).estimate


RANKS = [
    _rank_claim("blobs_shift", "proxy_ot", "Blobs, OT"),
    _rank_claim("blobs_shift", "proxy_mmd", "Blobs, MMD"),
    _rank_claim("moons_warp", "proxy_ot", "Moons, OT"),
    _rank_claim("moons_warp", "proxy_mmd", "Moons, MMD"),
]


@claim("sec:experiments", "The score keeps a strong monotonic association across all settings", published="rho > 0.75")
@needs("synthetic")
def monotone_everywhere(records: list[Record]) -> Finding:
    frame = evaluated(synthetic_frame(records))
    rhos = {}
    for world, model, variant in groups(frame, "world", "model", "variant"):
        part = where(frame, world=world, model=model, variant=variant)
        if defined(part, "proxy_ot"):
            rhos[f"{world}, {model}, {variant}"] = rank_correlation(part, "proxy_ot").estimate
    if not rhos:
        return _missing(f"pairs beside {CALIBRATED}")
    strong = [name for name, rho in rhos.items() if rho > 0.75]
    weakest = min(rhos, key=lambda name: rhos[name])
    verdict = graded(len(strong) == len(rhos), bool(strong))
    measured = f"{len(strong)} of {len(rhos)} settings above 0.75; lowest {rhos[weakest]:.2f}"
    return Finding(measured, size(frame), verdict, f"The weakest setting is {weakest}; table rank-power has them all.")


@claim(
    "app:anchor-and-deltaR",
    "P(y|x) is the same on source and target in the experiments",
    published="assumed throughout",
)
@needs("synthetic")
def covariate_shift_is_kept(records: list[Record]) -> Finding:
    frame = where(evaluated(synthetic_frame(records)), world="blobs_shift", model="logistic", severity=1.0)
    kept, moved = (where(frame, variant=v) for v in ("labels invariant", "labels travel"))
    if not size(kept) or not size(moved):
        return _missing("Blobs with invariant labels")
    a, b = (float(np.median(part["abs_risk_change"])) for part in (kept, moved))
    published = EXCERPT[2].risk_change
    verdict: Verdict = (
        "reproduced" if near(a, published) else "contradicts itself" if near(b, published) else "not reproduced"
    )
    measured = f"median |Delta R| {a:.2g} with P(y|x) kept, {b:.2g} with labels that travel"
    why = f"Printed is {published} for Blobs at tr=1; where labels travel with the points, P(y|x) changes."
    return Finding(measured, size(kept) + size(moved), verdict, why)


@claim("sec:experiments", "The score ranks updates under covariate shift", published="rho 0.76 to 0.98")
@needs("synthetic")
def ranks_under_true_covariate_shift(records: list[Record]) -> Finding:
    frame = where(evaluated(synthetic_frame(records)), variant="labels invariant")
    parts = {f"{world}, {model}": where(frame, world=world, model=model)
             for world, model in groups(frame, "world", "model")}  # fmt: skip
    found = {name: rank_correlation(part, "proxy_ot") for name, part in parts.items() if defined(part, "proxy_ot")}
    if not found:
        return _missing(f"pairs with invariant labels beside {CALIBRATED}")
    lows = [f.lower > 0.75 for f in found.values()]
    verdict = graded(all(lows), any(f.lower > 0.3 for f in found.values()))
    shown = "; ".join(f"{name} {interval(f, '{:.2f}')}" for name, f in found.items()) + _seeds(frame)
    largest = float(np.median(frame["abs_risk_change"]))
    why = f"Every point's label comes from the source's P(y|x); the median |Delta R| is then {largest:.2g}."
    return Finding(shown, size(frame), verdict, why)


@claim("abstract", "TRACE diagnostics are valid: the bound holds", published="valid")
@needs("synthetic")
def bound_is_valid(records: list[Record]) -> Finding:
    frame = evaluated(synthetic_frame(records))
    if not size(frame):
        return _missing("pairs of the evaluated grid")
    held, ratio = covers(frame, "bound_ot")
    alone, alone_ratio = covers(frame, "model_change")
    verdict = graded(held == 1, held > 0.95)
    why = (
        f"The bound is {ratio:.0f} times |Delta R| in the median; model change alone holds in {100 * alone:.1f}% "
        f"of pairs at {alone_ratio:.0f} times."
    )
    return Finding(f"{100 * held:.2f}% of pairs", size(frame), verdict, why)


def _severity_claim(name: str, label: str, statement: str, published: str, column: str) -> Claim:
    @needs("synthetic")
    def judged(records: list[Record]) -> Finding:
        frame = travelling(records)
        grows, shown = [], []
        for world, model in groups(frame, "world", "model"):
            if world in PUBLISHED:
                part = where(frame, world=world, model=model)
                means = [where(part, severity=s)[column].mean() for s in sorted(set(part["severity"].tolist()))]
                up = sum(b > a for a, b in pairwise(means))
                grows.append(up == len(means) - 1)
                shown.append(f"{world}, {model}: {up} of {len(means) - 1} steps up, {means[0]:.3g} to {means[-1]:.3g}")
        if not shown:
            return _missing(" or ".join(PUBLISHED))
        verdict = graded(all(grows), any(grows))
        return Finding(
            "; ".join(shown),
            size(frame),
            verdict,
            "Means over all pairs of a severity, from the mildest to the strongest.",
        )

    return claim(label, statement, published=published, name=name)(judged)


GROWTH = [
    _severity_claim(
        "bound_grows", "tab:combined-excerpt-app", "The bound grows with severity", "monotonic", "bound_ot"
    ),
    _severity_claim("emp_shift_grows", "sec:experiments", "The Empirical Shift term grows", "grows", "emp_shift_ot"),
    _severity_claim("transport_grows", "app:synth-details", "The OT distance grows", "increases", "distance"),
    _severity_claim("mmd_grows", "app:synth-details", "RBF-MMD grows with severity", "increases", "mmd"),
    _severity_claim(
        "risk_grows", "app:synth-details", "|Delta R| grows", "0.047 to 0.71; 0.017 to 0.33", "abs_risk_change"
    ),
]
