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
from .ledger import STABLE, Finding, claim, grade, needs, present

PUBLISHED = ("blobs_shift", "moons_warp")
"""The paper's own worlds."""
CALIBRATED = "development candidates, which c_h needs,"
"""What a grid lacks whose proxies are undefined."""
PAIRS = "pairs of the evaluated grid"
TRAVELLING = "pairs of the evaluated grid whose labels travel"
INVARIANT = f"pairs with invariant labels beside {CALIBRATED}"
ROWS = "rows of the published table"


def _rank_claim(world: str, score: str, title: str) -> None:
    published = RANK_POWER[world, score]

    @claim(
        "app:synth-details",
        f"Spearman's rho of TRACE-Proxy ({title}) with |Delta R|",
        published=f"{published:.3f}",
        name=f"rank_{world}_{score}",
    )
    @needs("synthetic", travelling_pairs, TRAVELLING)
    def judge(frame: DataFrame) -> Finding:
        own = dict(by_setting(frame[frame["world"] == world], score, ["model"]))
        parts = present(own, f"pairs of {world} beside {CALIBRATED}")
        found = {model: rank_correlation(part, score) for model, part in parts.items()}
        lowest = min(f.estimate for f in found.values())
        others = ", ".join(f"{model} {_rho(part, 'output_distance'):.3f}" for model, part in parts.items())
        return Finding(
            measured="; ".join(f"{model} {interval(f)}" for model, f in found.items()) + _seeds(*parts.values()),
            runs=sum(map(len, parts.values())),
            verdict=grade(lowest >= published - 0.02, lowest > 0.5),
            why=f"Model change alone ranks as follows on the same pairs: {others}.",
        )


def _seeds(*parts: DataFrame) -> str:
    """Over how many seeds the intervals are."""
    return f" ({len({seed for part in parts for seed in part['seed']})} seeds)"


def _rho(frame: DataFrame, score: str) -> float:
    return rank_correlation(frame, score).estimate


for _world, _score, _title in (
    ("blobs_shift", "proxy_ot", "Blobs, OT"),
    ("blobs_shift", "proxy_mmd", "Blobs, MMD"),
    ("moons_warp", "proxy_ot", "Moons, OT"),
    ("moons_warp", "proxy_mmd", "Moons, MMD"),
):
    _rank_claim(_world, _score, _title)


@claim("sec:experiments", "The score keeps a strong monotonic association across all settings", published="rho > 0.75")
@needs("synthetic", evaluated_pairs, PAIRS)
def monotone_everywhere(frame: DataFrame) -> Finding:
    parts = by_setting(frame, "proxy_ot", SETTING)
    rhos = present({name: _rho(part, "proxy_ot") for name, part in parts}, f"pairs beside {CALIBRATED}")
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
@needs("synthetic", evaluated_pairs, PAIRS)
def covariate_shift_is_kept(frame: DataFrame) -> Finding:
    blobs = frame.query("world == 'blobs_shift' and model == 'logistic' and severity == 1")
    kept, moved = (
        present(blobs[blobs["variant"] == v], "Blobs with invariant labels")
        for v in ("labels invariant", "labels travel")
    )
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
@needs("synthetic", lambda records: evaluated_pairs(records).query("variant == 'labels invariant'"), INVARIANT)
def ranks_under_true_covariate_shift(frame: DataFrame) -> Finding:
    parts = by_setting(frame, "proxy_ot", ["world", "model"])
    found = present({name: rank_correlation(part, "proxy_ot") for name, part in parts}, INVARIANT)
    lows = [f.lower > 0.75 for f in found.values()]
    largest = frame["abs_risk_change"].median()
    return Finding(
        measured="; ".join(f"{name} {interval(f, '{:.2f}')}" for name, f in found.items()) + _seeds(frame),
        runs=len(frame),
        verdict=grade(all(lows), any(f.lower > 0.3 for f in found.values())),
        why=f"Every point's label comes from the source's P(y|x); the median |Delta R| is then {largest:.2g}.",
    )


@claim("abstract", "TRACE diagnostics are valid: the bound holds", published="valid")
@needs("synthetic", evaluated_pairs, PAIRS)
def bound_is_valid(frame: DataFrame) -> Finding:
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


def _severity_claim(name: str, label: str, statement: str, published: str, column: str) -> None:
    @claim(label, statement, published=published, name=name)
    @needs("synthetic", travelling_pairs, TRAVELLING)
    def judge(frame: DataFrame) -> Finding:
        parts = frame[frame["world"].isin(PUBLISHED)].groupby(["world", "model"], sort=False)
        curves = {key: part.groupby("severity")[column].mean().tolist() for key, part in parts}
        rises = [sum(b > a for a, b in pairwise(means)) for means in present(curves, " or ".join(PUBLISHED)).values()]
        grows = [up == len(means) - 1 for up, means in zip(rises, curves.values(), strict=True)]
        return Finding(
            measured="; ".join(
                f"{world}, {model}: {up} of {len(means) - 1} steps up, {means[0]:.3g} to {means[-1]:.3g}"
                for up, ((world, model), means) in zip(rises, curves.items(), strict=True)
            ),
            runs=len(frame),
            verdict=grade(all(grows), any(grows)),
            why="Means over all pairs of a severity, from the mildest to the strongest.",
        )


for _row in (
    ("bound_grows", "tab:combined-excerpt-app", "The bound grows with severity", "monotonic", "bound_ot"),
    ("emp_shift_grows", "sec:experiments", "The Empirical Shift term grows", "grows", "emp_shift_ot"),
    ("transport_grows", "app:synth-details", "The OT distance grows", "increases", "distance"),
    ("mmd_grows", "app:synth-details", "RBF-MMD grows with severity", "increases", "mmd"),
    ("risk_grows", "app:synth-details", "|Delta R| grows", "0.047 to 0.71; 0.017 to 0.33", "abs_risk_change"),
):
    _severity_claim(*_row)


def _size_claim(index: int, column: str, squared: bool, statement: str) -> None:
    """Whether a published size is met within a factor, in the reading and with the model that fit the table best."""
    row = EXCERPT[index]
    published, model = getattr(row, column), "logistic" if row.world == "blobs_shift" else "mlp"

    @claim(
        "tab:combined-excerpt-app",
        statement,
        published=f"{published:g}",
        name=f"excerpt_{row.world}_{row.severity:g}_{row.n}_{column}".replace(".", ""),
    )
    @needs("synthetic", lambda records: excerpt_part(published_pairs(records), row, model), ROWS)
    def judge(part: DataFrame) -> Finding:
        ours = excerpt_terms(part, squared=squared)[column]
        factor = max(ours.mean() / published, published / ours.mean())
        reading = "Squared output distance" if squared else "As the text defines it"
        return Finding(
            measured=f"{ours.mean():.3g} (seeds {ours.min():.3g} to {ours.max():.3g})",
            runs=len(part),
            verdict=grade(factor <= NEAR, factor <= 3),
            why=f"{reading}: within a factor of {factor:.2f} of the printed value.",
        )


for _index, _column, _squared, _statement in (
    (0, "risk_change", False, "Blobs, tr=0.25, n=1000: |Delta R|"),
    (2, "risk_change", False, "Blobs, tr=1.0, n=2000: |Delta R|"),
    (2, "model_change", True, "Blobs, tr=1.0, n=2000: ModelChange"),
    (4, "risk_change", False, "Moons, alpha=0.25: the risk change is minimal"),
    (6, "risk_change", False, "Moons, alpha=2: the risk degrades significantly"),
    (6, "bound_ot", False, "Moons, alpha=2: the diagnostic"),
    (6, "model_change", False, "Moons, alpha=2: ModelChange spikes"),
    (6, "emp_shift_ot", False, "Moons, alpha=2: EmpShift"),
):
    _size_claim(_index, _column, _squared, _statement)


@claim(
    "app:synth-details",
    "Blobs: ModelChange dominates at mild severities, both terms grow under stronger shifts",
    published="ModelChange > 99% in all rows",
)
@needs("synthetic", lambda records: travelling_pairs(records).query("world == 'blobs_shift'"), TRAVELLING)
def model_change_dominates_when_mild(frame: DataFrame) -> Finding:
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
@needs("synthetic", lambda records: published_pairs(records).query("world == 'moons_warp' and n == 2000"), ROWS)
def benign_shift_leaves_the_model(frame: DataFrame) -> Finding:
    before, after = (present(frame[frame["severity"] == s], ROWS) for s in (0.0, 0.25))
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
@needs("synthetic", evaluated_pairs, PAIRS)
def gaps_do_not_rank(frame: DataFrame) -> Finding:
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
@needs("synthetic", plain_pairs, TRAVELLING)
def shift_term_helps(frame: DataFrame) -> Finding:
    parts = present(
        list(by_setting(frame, "proxy_ot", ["world", "model"])), f"pairs whose labels travel beside {CALIBRATED}"
    )
    gains = {name: _rho(part, "proxy_ot") - _rho(part, "output_distance") for name, part in parts}
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
@needs("synthetic", plain_pairs, TRAVELLING)
def mmd_is_more_stable(frame: DataFrame) -> Finding:
    settings = frame.groupby(["world", "model", "severity", "n", "n_target", "weight_decay"])
    terms = settings[["emp_shift_ot", "emp_shift_mmd"]]
    variation = present((terms.std() / terms.mean()).where(terms.mean() > 0).dropna(), TRAVELLING)
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
@needs(
    "synthetic", lambda records: published_pairs(records).query("world == 'blobs_shift' and model == 'logistic'"), ROWS
)
def blobs_sinkhorn_is_w1(frame: DataFrame) -> Finding:
    present(frame.columns.intersection(["wasserstein1"]), ROWS)
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
@needs("synthetic", plain_pairs, TRAVELLING)
def mmd_is_more_conservative(frame: DataFrame) -> Finding:
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
