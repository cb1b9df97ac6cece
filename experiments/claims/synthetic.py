"""What is measured for the claims about the synthetic worlds (`app:synth-details`, `tab:combined-excerpt-app`, MMD)."""

from __future__ import annotations

import functools

from pandas import DataFrame

from trace.stats.metrics import spearman

from ..analysis.cells import interval
from ..analysis.paper import EXCERPT
from ..analysis.summary import covers, mean_interval, over_units, rank_correlation
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
from .ledger import LackingError, Measurement, measure, present

PUBLISHED = ("blobs_shift", "moons_warp")
"""The paper's own worlds; all others are ours."""
CALIBRATED = "development candidates, which c_h needs,"
"""What a grid lacks whose proxies are undefined."""
PAIRS = "pairs of the evaluated grid"
TRAVELLING = "pairs of the evaluated grid whose labels travel"
ROWS = "rows of the published table"

short = functools.partial(interval, form="{:.2f}")


def _seeds(frame: DataFrame) -> str:
    """Over how many seeds the intervals are."""
    return f" ({frame['seed'].nunique()} seeds)"


def _rho(frame: DataFrame, score: str) -> float:
    return spearman(frame[score], frame["abs_risk_change"]).value


@measure(travelling_pairs, TRAVELLING)
def rank_power(frame: DataFrame, world: str, score: str) -> Measurement:
    own = dict(by_setting(frame[frame["world"] == world], score, ["model"]))
    parts = present(own, f"pairs of {world} beside {CALIBRATED}")
    found = {model: rank_correlation(part, score) for model, part in parts.items()}
    others = ", ".join(f"{model} {_rho(part, 'output_distance'):.3f}" for model, part in parts.items())
    return Measurement(
        "; ".join(f"{model} {interval(f)}" for model, f in found.items()) + _seeds(frame),
        sum(map(len, parts.values())),
        {"rho": found},
        f"Model change alone ranks as follows on the same pairs: {others}.",
    )


@measure(travelling_pairs, TRAVELLING)
def monotone_everywhere(frame: DataFrame, score: str) -> Measurement:
    """The paper's own worlds at every size of both samples, labels as its tables need them."""
    keys = ["world", "model", "n", "n_target"]
    parts = {
        key: part for key, part in frame[frame["world"].isin(PUBLISHED)].groupby(keys) if part[score].notna().all()
    }
    rhos = {key: rank_correlation(part, score) for key, part in present(parts, f"pairs beside {CALIBRATED}").items()}
    own = {world: {_listed(key): f for key, f in rhos.items() if key[0] == world} for world in PUBLISHED}
    ends = {world: sorted(f.estimate for f in found.values()) for world, found in own.items() if found}
    shown = [f"{w}: rho {e[0]:.2f} to {e[-1]:.2f} in {len(e)} settings of model and sizes" for w, e in ends.items()]
    return Measurement(
        "; ".join(shown) + _seeds(frame),
        sum(map(len, parts.values())),
        {"blobs": own["blobs_shift"], "moons": own["moons_warp"]},
    )


def _listed(key: tuple[object, ...]) -> str:
    return ", ".join(map(str, key))


@measure(evaluated_pairs, PAIRS)
def monotone_in_other_settings(frame: DataFrame, score: str) -> Measurement:
    """Other worlds, and other options or labels of the paper's."""
    others = frame[~(frame["world"].isin(PUBLISHED) & (frame["variant"] == "labels travel"))]
    parts = present(dict(by_setting(others, score, SETTING)), f"pairs of other settings beside {CALIBRATED}")
    rhos = {name: rank_correlation(part, score) for name, part in parts.items()}
    return Measurement(
        "; ".join(f"{name} {short(f)}" for name, f in rhos.items()) + _seeds(frame),
        sum(map(len, parts.values())),
        {"rho": rhos},
    )


@measure(evaluated_pairs, PAIRS)
def covariate_shift_is_kept(frame: DataFrame) -> Measurement:
    blobs = frame.query("world == 'blobs_shift' and model == 'logistic' and severity == 1")
    kept, moved = (
        present(blobs[blobs["variant"] == v], "Blobs with invariant labels")["abs_risk_change"]
        for v in ("labels invariant", "labels travel")
    )
    return Measurement(
        f"median |Delta R| {kept.median():.2g} with P(y|x) kept, {moved.median():.2g} with labels that travel",
        len(kept) + len(moved),
        {"kept": float(kept.median()), "travelling": float(moved.median())},
    )


def invariant_pairs(records: list[Record]) -> DataFrame:
    """Pairs in which every point's label comes from the source's P(y|x)."""
    return evaluated_pairs(records).query("variant == 'labels invariant'")


@measure(invariant_pairs, f"pairs with invariant labels beside {CALIBRATED}")
def ranks_under_true_covariate_shift(frame: DataFrame, score: str, own_worlds: bool) -> Measurement:
    own = frame[frame["world"].isin(PUBLISHED) != own_worlds]
    parts = dict(by_setting(own, score, ["world", "model"]))
    found = {name: rank_correlation(part, score) for name, part in parts.items()}
    return Measurement(
        "; ".join(f"{name} {short(f)}" for name, f in found.items()) + _seeds(frame),
        len(present(own, f"such pairs beside {CALIBRATED}")),
        {"rho": present(found, f"such pairs beside {CALIBRATED}")},
        f"The median |Delta R| is {own['abs_risk_change'].median():.2g}.",
    )


@measure(evaluated_pairs, PAIRS)
def bound_is_valid(frame: DataFrame, bound: str) -> Measurement:
    held, ratio = covers(frame, bound)
    alone, alone_ratio = covers(frame, "model_change")
    return Measurement(
        f"{100 * held:.2f}% of pairs",
        len(frame),
        {"share": held},
        f"The bound is {ratio:.0f} times |Delta R| in the median; model change alone holds in {100 * alone:.1f}% "
        f"of pairs at {alone_ratio:.0f} times.",
    )


@measure(travelling_pairs, TRAVELLING)
def grows_with_severity(frame: DataFrame, column: str) -> Measurement:
    """Steps of the mean from each severity to the next, paired by seed, and from the mildest to the strongest."""
    parts = frame[frame["world"].isin(PUBLISHED)].groupby(["world", "model"], sort=False)
    steps, rises, shown = {}, {}, []
    for (world, model), part in parts:
        curve = part.groupby(["seed", "severity"])[column].mean().unstack()
        means, up = curve.mean(), 0
        for i in range(1, curve.shape[1]):
            step = mean_interval(curve.iloc[:, i] - curve.iloc[:, i - 1])
            steps[f"{world}, {model}, to {curve.columns[i]:g}"] = step
            up += step.lower > 0
        rises[f"{world}, {model}"] = mean_interval(curve.iloc[:, -1] - curve.iloc[:, 0])
        shown.append(
            f"{world}, {model}: {up} of {curve.shape[1] - 1} steps up, {means.iloc[0]:.3g} to {means.iloc[-1]:.3g}"
        )
    down = sum(step.upper < 0 for step in present(steps, " or ".join(PUBLISHED)).values())
    return Measurement("; ".join(shown) + _seeds(frame), len(frame), {"steps down": down, "rise": rises})


@measure(published_pairs, ROWS)
def excerpt_size(frame: DataFrame, row: int, column: str, squared: bool = False) -> Measurement:
    """A size of the printed table, with the model and in the reading that fit the table best."""
    printed = EXCERPT[row]
    model = "logistic" if printed.world == "blobs_shift" else "mlp"
    part = present(excerpt_part(frame, printed, model), ROWS)
    size = mean_interval(excerpt_terms(part, squared=squared)[column])
    reading = "Squared output distance" if squared else "As the text defines it"
    factor = max(size.estimate / getattr(printed, column), getattr(printed, column) / size.estimate)
    return Measurement(
        f"{interval(size, '{:.3g}')}{_seeds(part)}",
        len(part),
        {"size": size},
        f"{reading}: the mean is within a factor of {factor:.2f} of the printed value.",
    )


@measure(lambda records: travelling_pairs(records).query("world == 'blobs_shift'"), TRAVELLING)
def model_change_dominates_when_mild(frame: DataFrame) -> Measurement:
    """Model change as a share of the bound, seed by seed, at the mildest and the strongest shift."""
    means = frame.groupby(["severity", "seed"])[["model_change", "bound_ot"]].mean()
    shares = (means["model_change"] / means["bound_ot"]).unstack()
    mild, strong = (mean_interval(shares.loc[end]) for end in (shares.index.min(), shares.index.max()))
    below = shares.index[shares.mean(axis=1) < 0.5]
    at = f"the shift penalty overtakes at severity {below[0]:g}" if len(below) else "it dominates at all severities"
    return Measurement(
        f"{short(mild)} of the bound at severity {shares.index.min():g}, {short(strong)} at {shares.index.max():g}",
        len(frame),
        {"mild": mild, "strong": strong},
        f"Without the table's 1/n, {at}.",
    )


@measure(lambda records: published_pairs(records).query("world == 'moons_warp' and n == 2000"), ROWS)
def benign_shift_leaves_the_model(frame: DataFrame) -> Measurement:
    """Means of both terms at alpha = 0.25 over those at 0."""
    before, after = (present(frame[frame["severity"] == s], ROWS).groupby("seed") for s in (0.0, 0.25))
    ratios = {}
    for name, column in {"model change": "model_change", "shift term": "emp_shift_ot"}.items():
        ends = before[column].mean(), after[column].mean()
        ratios[name] = over_units(lambda low, high: high.mean() / low.mean(), ends[0].index, columns=ends)
    return Measurement(
        ", ".join(f"{name} x{short(ratio)}" for name, ratio in ratios.items()) + _seeds(frame),
        int(before.size().sum() + after.size().sum()),
        dict(ratios),
    )


@measure(evaluated_pairs, PAIRS)
def gaps_do_not_rank(frame: DataFrame) -> Measurement:
    without = frame.assign(without_gaps=frame["bound_ot"] - frame["gaps"])
    found = {_listed(key): rank_correlation(part, "bound_ot", "without_gaps") for key, part in without.groupby(SETTING)}
    ends = sorted(f.estimate for f in found.values())
    return Measurement(
        f"rho of the bound with and without gaps: {ends[0]:.3f} to {ends[-1]:.3f}",
        len(frame),
        {"rho": found},
        "Spearman between the two orders, in each setting.",
    )


@measure(plain_pairs, TRAVELLING)
def shift_term_helps(frame: DataFrame, score: str, own_worlds: bool) -> Measurement:
    """rho of the score minus that of model change alone, seed by seed."""
    own = present(frame[frame["world"].isin(PUBLISHED) != own_worlds], "such pairs")
    parts = present(dict(by_setting(own, score, ["world", "model"])), f"pairs whose labels travel beside {CALIBRATED}")
    gains = {}
    for name, part in parts.items():
        seeds = [_rho(rows, score) - _rho(rows, "output_distance") for _, rows in part.groupby("seed")]
        gains[name] = mean_interval(seeds)
    return Measurement(
        "; ".join(f"{name} {interval(gain, '{:+.3f}')}" for name, gain in gains.items()) + _seeds(own),
        len(own),
        {"gain": gains},
        "rho of the score minus rho of model change alone, seed by seed.",
    )


@measure(plain_pairs, TRAVELLING)
def mmd_is_more_stable(frame: DataFrame) -> Measurement:
    """Spread over seeds (standard deviation over mean) in each setting: of the distances, of the norm, of the terms."""
    settings = frame.groupby(["world", "model", "severity", "n", "n_target", "weight_decay"])
    columns = ["distance", "mmd", "rkhs_norm", "sensitivity_target", "emp_shift_ot", "emp_shift_mmd"]
    found = settings[columns]
    spread = present((found.std() / found.mean()).where(found.mean() > 0).dropna(), TRAVELLING)
    pairs = {"distance": ("mmd", "distance"), "term": ("emp_shift_mmd", "emp_shift_ot")}
    shares = {name: float((spread[a] < spread[b]).mean()) for name, (a, b) in pairs.items()}
    medians = spread.median()
    return Measurement(
        f"smaller spread over seeds in {100 * shares['distance']:.0f}% (MMD against OT distance) and "
        f"{100 * shares['term']:.0f}% (shift terms) of {len(spread)} settings",
        len(frame),
        dict(shares),
        f"Median spreads: MMD {medians['mmd']:.2f}, OT distance {medians['distance']:.2f}, RKHS norm "
        f"{medians['rkhs_norm']:.2f}, gradient quantile {medians['sensitivity_target']:.2f}; the norm, not the MMD, "
        "makes the term vary.",
    )


@measure(lambda records: published_pairs(records).query("world == 'blobs_shift' and model == 'logistic'"), ROWS)
def blobs_sinkhorn_is_w1(frame: DataFrame) -> Measurement:
    present(frame.columns.intersection(["wasserstein1"]), ROWS)
    moved = frame[frame["severity"] > 0]
    ratios, squares = (
        (moved["transport"] / moved["wasserstein1"] ** power).groupby(moved["severity"]).mean() for power in (1, 2)
    )
    return Measurement(
        "divergence / W1: " + ", ".join(f"{r:.2f} at severity {s:g}" for s, r in ratios.items()),
        len(frame),
        {"ratio": {f"{s:g}": float(r) for s, r in ratios.items()}},
        f"Divided by the square of W1 it is {squares.min():.2f} to {squares.max():.2f}.",
    )


@measure(plain_pairs, TRAVELLING)
def mmd_is_more_conservative(frame: DataFrame) -> Measurement:
    share = float((frame["bound_mmd"] > frame["bound_ot"]).mean())
    ratios = covers(frame, "bound_mmd")[1], covers(frame, "bound_ot")[1]
    return Measurement(
        f"larger in {100 * share:.0f}% of pairs; median tightness {ratios[0]:.0f} against {ratios[1]:.0f} (OT)",
        len(frame),
        {"share": share},
        "Core bounds of both forms on the same pairs.",
    )


def with_columns(frame: DataFrame, *columns: str) -> DataFrame:
    """The pairs that have some columns; records from before one was measured do not."""
    if lacking := [name for name in columns if name not in frame]:
        raise LackingError(f"column {' or '.join(lacking)}")
    return present(frame.dropna(subset=list(columns)), f"pairs with {' and '.join(columns)}")


@measure(evaluated_pairs, PAIRS)
def conditioning_event(frame: DataFrame) -> Measurement:
    """Whether the 0.99-quantile of gradients is at least the largest one over held-out rows and all labels."""
    sides = ("source", "target")
    own = with_columns(frame, *(f"largest_gradient_{side}" for side in sides))
    excess = {side: own[f"largest_gradient_{side}"] / own[f"sensitivity_{side}"] for side in sides}
    held = float(((excess["source"] <= 1) & (excess["target"] <= 1)).mean())
    medians = ", ".join(f"{ratio.median():.2f} ({side})" for side, ratio in excess.items())
    return Measurement(
        f"{100 * held:.1f}% of pairs",
        len(own),
        {"share": held},
        f"The largest gradient is {medians} times the quantile in the median; L_x is at least that.",
    )


@measure(evaluated_pairs, PAIRS)
def inequality(frame: DataFrame, left: str, factors: list[str], plus: str = "") -> Measurement:
    """Share of pairs in which a step of the proof holds by itself, with the estimates that the diagnostic has."""
    own = with_columns(frame, left, *factors, *([plus] if plus else []))
    right = own[factors].prod(axis=1) + (own[plus] if plus else 0.0)
    holds = own[left] <= right
    worst = holds.groupby([own["world"], own["model"], own["severity"]]).mean()
    world, model, severity = worst.idxmin()
    ratio = (own[left] / right)[right > 0]
    return Measurement(
        f"{100 * holds.mean():.1f}% of pairs",
        len(own),
        {"share": float(holds.mean())},
        f"Fewest, {100 * worst.min():.0f}%, on {world} ({model}) at severity {severity:g}; the left side is "
        f"{ratio.median():.2g} of the right one in the median, at most {ratio.max():.2g}.",
    )


@measure(evaluated_pairs, PAIRS)
def two_term_bound(frame: DataFrame) -> Measurement:
    own = with_columns(frame, "bound_direct")
    held, loose = covers(own, "bound_direct")
    ratio = float((own["bound_direct"] / own["bound_full_ot"]).median())
    return Measurement(
        f"holds in {100 * held:.2f}% of pairs; {ratio:.2f} of the corollary's in the median",
        len(own),
        {"share": held, "ratio": ratio},
        f"It is {loose:.0f} times |Delta R| in the median.",
    )


@measure(evaluated_pairs, PAIRS)
def clipping_keeps_accuracy(frame: DataFrame) -> Measurement:
    own = with_columns(frame, "clip_changed")
    return Measurement(
        f"changes {100 * own['clip_changed'].mean():.2g}% of Q~'s predictions on the anchor, at most "
        f"{100 * own['clip_changed'].max():.2g}% of a pair's",
        len(own),
        {"changed": float(own["clip_changed"].max())},
    )


@measure(travelling_pairs, TRAVELLING)
def weight_decay_smooths(frame: DataFrame) -> Measurement:
    """The gradient quantile of Q at the largest weight decay over that at the smallest, seed by seed."""
    ratios, shown = {}, []
    for (world, model), part in frame[frame["world"].isin(PUBLISHED)].groupby(["world", "model"], sort=False):
        means = part.groupby(["seed", "weight_decay"])["sensitivity_source"].mean().unstack()
        name, ends = f"{world}, {model}", means.columns[[0, -1]]
        ratios[name] = mean_interval(means.iloc[:, -1] / means.iloc[:, 0])
        shown.append(f"{name} x{short(ratios[name])} from {ends[0]:g} to {ends[1]:g}")
    return Measurement("; ".join(shown) + _seeds(frame), len(frame), {"ratio": present(ratios, TRAVELLING)})
