"""What the paper says about its synthetic worlds (`app:synth-details`, `tab:combined-excerpt-app`, the MMD variant)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from pandas import DataFrame

from trace.stats.metrics import spearman

from ..analysis.cells import interval
from ..analysis.paper import EXCERPT, NEAR, RANK_POWER, near
from ..analysis.summary import covers, rank_correlation
from ..analysis.synthetic import (
    SETTING,
    by_setting,
    evaluated_pairs,
    excerpt_part,
    excerpt_terms,
    plain_pairs,
    published_pairs,
    travelling_pairs,
)
from ..engine.records import Record
from .ledger import STABLE, Claim, Finding, claim, grade, needs, unfinished

PUBLISHED = ("blobs_shift", "moons_warp")
"""The paper's own worlds."""
CALIBRATED = "development candidates, which c_h needs,"
"""What a grid lacks whose proxies are undefined."""
NO_PAIRS = unfinished("synthetic", "pairs of the evaluated grid")
NO_EXCERPT = unfinished("synthetic", "rows of the published table")
NO_GRID = unfinished("synthetic", "pairs of the evaluated grid whose labels travel")


def _rank_claim(world: str, score: str, title: str) -> Claim:
    published = RANK_POWER[world, score]

    @claim(
        "app:synth-details",
        f"Spearman's rho of TRACE-Proxy ({title}) with |Delta R|",
        published=f"{published:.3f}",
        name=f"rank_{world}_{score}",
    )
    @needs("synthetic")
    def judge(records: list[Record]) -> Finding:
        frame = travelling_pairs(records)
        parts = dict(by_setting(frame[frame["world"] == world], score, ["model"]))
        if not parts:
            return unfinished("synthetic", f"pairs of {world} beside {CALIBRATED}")
        found = {model: rank_correlation(part, score) for model, part in parts.items()}
        lowest = min(f.estimate for f in found.values())
        others = ", ".join(f"{model} {_rho(part, 'output_distance'):.3f}" for model, part in parts.items())
        return Finding(
            measured="; ".join(f"{model} {interval(f)}" for model, f in found.items()) + _seeds(*parts.values()),
            runs=sum(map(len, parts.values())),
            verdict=grade(lowest >= published - 0.02, lowest > 0.5),
            why=f"Model change alone ranks as follows on the same pairs: {others}.",
        )

    return judge


def _seeds(*parts: DataFrame) -> str:
    """Over how many seeds the intervals are."""
    return f" ({len({seed for part in parts for seed in part['seed']})} seeds)"


def _rho(frame: DataFrame, score: str) -> float:
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
    frame = evaluated_pairs(records)
    rhos = {name: _rho(part, "proxy_ot") for name, part in by_setting(frame, "proxy_ot", SETTING)}
    if not rhos:
        return unfinished("synthetic", f"pairs beside {CALIBRATED}")
    strong = [name for name, rho in rhos.items() if rho > 0.75]
    weakest = min(rhos, key=lambda name: rhos[name])
    return Finding(
        measured=f"{len(strong)} of {len(rhos)} settings above 0.75; lowest {rhos[weakest]:.2f}",
        runs=len(frame),
        verdict=grade(len(strong) == len(rhos), bool(strong)),
        why=f"The weakest setting is {weakest}; table rank-power has them all.",
    )


@claim(
    "app:anchor-and-deltaR",
    "P(y|x) is the same on source and target in the experiments",
    published="assumed throughout",
)
@needs("synthetic")
def covariate_shift_is_kept(records: list[Record]) -> Finding:
    frame = evaluated_pairs(records).query("world == 'blobs_shift' and model == 'logistic' and severity == 1")
    kept, moved = (frame[frame["variant"] == v] for v in ("labels invariant", "labels travel"))
    if kept.empty or moved.empty:
        return unfinished("synthetic", "Blobs with invariant labels")
    a, b = (part["abs_risk_change"].median() for part in (kept, moved))
    published = EXCERPT[2].risk_change
    return Finding(
        measured=f"median |Delta R| {a:.2g} with P(y|x) kept, {b:.2g} with labels that travel",
        runs=len(kept) + len(moved),
        verdict="reproduced"
        if near(a, published)
        else "contradicts itself"
        if near(b, published)
        else "not reproduced",
        why=f"Printed is {published} for Blobs at tr=1; where labels travel with the points, P(y|x) changes.",
    )


@claim("sec:experiments", "The score ranks updates under covariate shift", published="rho 0.76 to 0.98")
@needs("synthetic")
def ranks_under_true_covariate_shift(records: list[Record]) -> Finding:
    frame = evaluated_pairs(records).query("variant == 'labels invariant'")
    parts = by_setting(frame, "proxy_ot", ["world", "model"])
    found = {name: rank_correlation(part, "proxy_ot") for name, part in parts}
    if not found:
        return unfinished("synthetic", f"pairs with invariant labels beside {CALIBRATED}")
    lows = [f.lower > 0.75 for f in found.values()]
    largest = frame["abs_risk_change"].median()
    return Finding(
        measured="; ".join(f"{name} {interval(f, '{:.2f}')}" for name, f in found.items()) + _seeds(frame),
        runs=len(frame),
        verdict=grade(all(lows), any(f.lower > 0.3 for f in found.values())),
        why=f"Every point's label comes from the source's P(y|x); the median |Delta R| is then {largest:.2g}.",
    )


@claim("abstract", "TRACE diagnostics are valid: the bound holds", published="valid")
@needs("synthetic")
def bound_is_valid(records: list[Record]) -> Finding:
    frame = evaluated_pairs(records)
    if frame.empty:
        return NO_PAIRS
    held, ratio = covers(frame, "bound_ot")
    alone, alone_ratio = covers(frame, "model_change")
    return Finding(
        measured=f"{100 * held:.2f}% of pairs",
        runs=len(frame),
        verdict=grade(held == 1, held > 0.95),
        why=(
            f"The bound is {ratio:.0f} times |Delta R| in the median; model change alone holds in {100 * alone:.1f}% "
            f"of pairs at {alone_ratio:.0f} times."
        ),
    )


def _severity_claim(name: str, label: str, statement: str, published: str, column: str) -> Claim:
    @needs("synthetic")
    def judge(records: list[Record]) -> Finding:
        frame = travelling_pairs(records)
        grows, shown = [], []
        for (world, model), part in frame[frame["world"].isin(PUBLISHED)].groupby(["world", "model"], sort=False):
            means = part.groupby("severity")[column].mean().tolist()
            up = sum(b > a for a, b in pairwise(means))
            grows.append(up == len(means) - 1)
            shown.append(f"{world}, {model}: {up} of {len(means) - 1} steps up, {means[0]:.3g} to {means[-1]:.3g}")
        if not shown:
            return unfinished("synthetic", " or ".join(PUBLISHED))
        return Finding(
            measured="; ".join(shown),
            runs=len(frame),
            verdict=grade(all(grows), any(grows)),
            why="Means over all pairs of a severity, from the mildest to the strongest.",
        )

    return claim(label, statement, published=published, name=name)(judge)


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


def excerpt_row(records: list[Record], index: int) -> DataFrame:
    """Our pairs of a published row, with the model that the paper's sizes fit."""
    model = "logistic" if EXCERPT[index].world == "blobs_shift" else "mlp"
    return excerpt_part(published_pairs(records), EXCERPT[index], model)


def _size_claim(index: int, column: str, *, squared: bool, statement: str) -> Claim:
    """Whether a published size is met within a factor, in the reading that fits the table best."""
    row = EXCERPT[index]
    published = getattr(row, column)

    @needs("synthetic")
    def judge(records: list[Record]) -> Finding:
        part = excerpt_row(records, index)
        if part.empty:
            return NO_EXCERPT
        ours = excerpt_terms(part, squared=squared)[column]
        factor = max(ours.mean() / published, published / ours.mean())
        reading = "squared output distance" if squared else "as the text defines it"
        return Finding(
            measured=f"{ours.mean():.3g} (seeds {ours.min():.3g} to {ours.max():.3g})",
            runs=len(part),
            verdict=grade(factor <= NEAR, factor <= 3),
            why=f"{reading.capitalize()}: within a factor of {factor:.2f} of the printed value.",
        )

    name = f"excerpt_{row.world}_{row.severity:g}_{row.n}_{column}".replace(".", "")
    return claim("tab:combined-excerpt-app", statement, published=f"{published:g}", name=name)(judge)


SIZES = [
    _size_claim(0, "risk_change", squared=False, statement="Blobs, tr=0.25, n=1000: |Delta R|"),
    _size_claim(2, "risk_change", squared=False, statement="Blobs, tr=1.0, n=2000: |Delta R|"),
    _size_claim(2, "model_change", squared=True, statement="Blobs, tr=1.0, n=2000: ModelChange"),
    _size_claim(4, "risk_change", squared=False, statement="Moons, alpha=0.25: the risk change is minimal"),
    _size_claim(6, "risk_change", squared=False, statement="Moons, alpha=2: the risk degrades significantly"),
    _size_claim(6, "bound_ot", squared=False, statement="Moons, alpha=2: the diagnostic"),
    _size_claim(6, "model_change", squared=False, statement="Moons, alpha=2: ModelChange spikes"),
    _size_claim(6, "emp_shift_ot", squared=False, statement="Moons, alpha=2: EmpShift"),
]


@claim(
    "app:synth-details",
    "Blobs: ModelChange dominates at mild severities, both terms grow under stronger shifts",
    published="ModelChange > 99% in all rows",
)
@needs("synthetic")
def model_change_dominates_when_mild(records: list[Record]) -> Finding:
    frame = travelling_pairs(records).query("world == 'blobs_shift'")
    if frame.empty:
        return NO_GRID
    means = frame.groupby("severity")[["model_change", "bound_ot"]].mean()
    shares = means["model_change"] / means["bound_ot"]
    crossings = shares.index[shares < 0.5]
    mild = shares.iloc[0] > 0.5
    at = (
        f"the shift penalty overtakes at severity {crossings[0]:g}"
        if len(crossings)
        else "it dominates at all severities"
    )
    ends = shares.iloc[[0, -1]].items()
    return Finding(
        measured=", ".join(f"{100 * share:.0f}% of the bound at severity {severity:g}" for severity, share in ends),
        runs=len(frame),
        verdict=grade(mild and len(crossings) > 0, mild),
        why=f"Without the table's 1/n, {at}.",
    )


@claim(
    "app:synth-details",
    "Moons, alpha=0.25: ModelChange stays where it was at alpha=0 while EmpShift rises",
    published="0.50 to 0.48; 0.06 to 0.32",
)
@needs("synthetic")
def benign_shift_leaves_the_model(records: list[Record]) -> Finding:
    frame = published_pairs(records).query("world == 'moons_warp' and n == 2000")
    before, after = (frame[frame["severity"] == s] for s in (0.0, 0.25))
    if before.empty or after.empty:
        return NO_EXCERPT
    change = after["model_change"].mean() / before["model_change"].mean()
    rise = after["emp_shift_ot"].mean() / before["emp_shift_ot"].mean()
    stable, rises = abs(change - 1) < STABLE, rise > 1 + STABLE
    return Finding(
        measured=f"ModelChange x{change:.2f}, EmpShift x{rise:.2f}",
        runs=len(before) + len(after),
        verdict=grade(stable and rises, stable or rises),
        why="ModelChange moves as well, so a benign shift raises both terms."
        if not stable
        else "Only the shift term answers.",
    )


@claim("app:gate-scores", "Leaving out the generalisation gaps does not change the ranking", published="no effect")
@needs("synthetic")
def gaps_do_not_rank(records: list[Record]) -> Finding:
    frame = evaluated_pairs(records)
    if frame.empty:
        return NO_PAIRS
    parts = [part for _, part in frame.groupby(SETTING)]
    agreements = [spearman(part["bound_ot"], part["bound_ot"] - part["gaps"]).value for part in parts]
    return Finding(
        measured=f"rho of the bound with and without gaps: {min(agreements):.3f} to {max(agreements):.3f}",
        runs=len(frame),
        verdict=grade(min(agreements) > 0.99, min(agreements) > 0.9),
        why="Spearman between the two orders; the lowest setting decides.",
    )


@claim(
    "app:synth-details",
    "Adding the shift term keeps the score monotone in |Delta R|",
    published="preserves rank ordering",
)
@needs("synthetic")
def shift_term_helps(records: list[Record]) -> Finding:
    frame = plain_pairs(records)
    parts = by_setting(frame, "proxy_ot", ["world", "model"])
    gains = {name: _rho(part, "proxy_ot") - _rho(part, "output_distance") for name, part in parts}
    if not gains:
        return unfinished("synthetic", f"pairs whose labels travel beside {CALIBRATED}")
    worse = [name for name, gain in gains.items() if gain < -0.01]
    return Finding(
        measured="; ".join(f"{name} {gain:+.3f}" for name, gain in gains.items()),
        runs=len(frame),
        verdict=grade(not worse, len(worse) < len(gains)),
        why=f"Model change alone ranks better in: {'; '.join(worse)}."
        if worse
        else "No world ranks worse with the shift term.",
    )


@claim("subsec:mmd_alternative_brief", "The MMD variant has lower variance and is more stable", published="often")
@needs("synthetic")
def mmd_is_more_stable(records: list[Record]) -> Finding:
    frame = plain_pairs(records)
    settings = frame.groupby(["world", "model", "severity", "n", "n_target", "weight_decay"])
    terms = settings[["emp_shift_ot", "emp_shift_mmd"]]
    variation = (terms.std() / terms.mean()).where(terms.mean() > 0).dropna()
    if variation.empty:
        return NO_GRID
    ratios = variation["emp_shift_mmd"] / variation["emp_shift_ot"]
    share = (variation["emp_shift_mmd"] < variation["emp_shift_ot"]).mean()
    return Finding(
        measured=f"smaller spread in {100 * share:.0f}% of {len(ratios)} settings; median ratio {ratios.median():.2g}",
        runs=len(frame),
        verdict=grade(share > 0.6, share > 0.4),
        why="Standard deviation over mean of the shift term, across seeds.",
    )


@claim(
    "app:common-impl",
    "On Blobs the debiased Sinkhorn divergence approximates the true W1",
    published="stable and accurate",
)
@needs("synthetic")
def blobs_sinkhorn_is_w1(records: list[Record]) -> Finding:
    frame = published_pairs(records).query("world == 'blobs_shift' and model == 'logistic'")
    if frame.empty or "wasserstein1" not in frame:
        return NO_EXCERPT
    moved = frame[frame["severity"] > 0]
    ratios, squares = (
        (moved["transport"] / moved["wasserstein1"] ** power).groupby(moved["severity"]).mean() for power in (1, 2)
    )
    good = (np.abs(ratios - 1) < STABLE).all()
    return Finding(
        measured="divergence / W1: " + ", ".join(f"{r:.2f} at severity {s:g}" for s, r in ratios.items()),
        runs=len(frame),
        verdict=grade(good, False),
        why=f"Divided by the square of W1 it is {squares.min():.2f} to {squares.max():.2f}.",
    )


@claim("subsec:mmd_alternative_brief", "The MMD bound can be more conservative", published="sometimes")
@needs("synthetic")
def mmd_is_more_conservative(records: list[Record]) -> Finding:
    frame = plain_pairs(records)
    if frame.empty:
        return NO_GRID
    share = (frame["bound_mmd"] > frame["bound_ot"]).mean()
    ratios = covers(frame, "bound_mmd")[1], covers(frame, "bound_ot")[1]
    return Finding(
        measured=(
            f"larger in {100 * share:.0f}% of pairs; median tightness {ratios[0]:.0f} against {ratios[1]:.0f} (OT)"
        ),
        runs=len(frame),
        verdict=grade(share > 0.05, False),
        why="Core bounds of both forms on the same pairs.",
    )
