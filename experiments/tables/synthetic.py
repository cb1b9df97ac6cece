"""The tables of the synthetic worlds, from records: `combined-excerpt`, `rank-power`, `glance`, `coverage`."""

from pandas import DataFrame

from trace.scores import labels

from ..analysis.cells import MISSING, interval, interval_kind, spread
from ..analysis.paper import EXCERPT, RANK_POWER, ExcerptRow
from ..analysis.summary import covers, rank_correlation
from ..analysis.synthetic import SETTING, evaluated_pairs, excerpt_part, excerpt_terms, published_pairs
from ..engine.records import Record
from .table import Table, table

SCORES = {
    **labels("proxy_ot", "proxy_mmd", "trace_w", "trace_mmd", "bound_ot"),
    **labels("output_distance", "distance", "mmd", alone=True),
    **labels("anchor_disagreement", "anchor_worst_label"),
    "severity": "severity itself",
}
"""What is ranked against |Delta R|; the last is no score, but what the sweep turns."""

BOUNDS = {
    **labels("bound_ot", "bound_mmd", "bound_hybrid", "bound_full_ot", "bound_full_mmd"),
    **labels("bound_direct", "bound_difference", "bound_direct_certified", "bound_difference_certified"),
    **labels("model_change", "emp_shift_ot", "emp_shift_mmd", "gaps", alone=True),
    "anchor_worst_label": "anchor bound, as estimated",
    "anchor_upper": "anchor bound, upper end",
}


EXCERPT_TERMS = ("risk_change", "bound_ot", "bound_mmd", "emp_shift_ot", "emp_shift_mmd", "model_change")


@table("combined-excerpt", "synthetic")
def combined_excerpt(records: list[Record]) -> Table:
    """The published rows, and ours in both readings of the columns that the paper leaves open."""
    frame = published_pairs(records)
    rows = []
    for published in EXCERPT:
        models = {"logistic": "logistic", "mlp": "MLP"} if published.world == "blobs_shift" else {"mlp": "MLP"}
        rows += [_published(published)] + [
            _ours(published, excerpt_part(frame, published, model), f"ours, {name}{reading}", squared=bool(reading))
            for model, name in models.items()
            for reading in ("", ", squared, 1/n")
        ]
    terms = ["|Delta R|", "B OT", "B MMD", "EmpShift OT", "EmpShift MMD", "ModelChange", "G_Q / G_Q~"]
    return Table(
        caption=(
            "The paper's rows beside ours: mean (standard deviation) over seeds at the smallest weight decay. Plain: "
            "model change is L_ell times the mean output distance, gradients are those of single losses. 'squared, "
            "1/n': mean squared distance, shift terms over n, which fits the printed sizes. B is the sum without "
            "remainders."
        ),
        header=["world", "shift", "n", "row", *terms],
        rows=rows,
    )


def _published(row: ExcerptRow) -> list[str]:
    digits = {"bound_ot": 2, "bound_mmd": 2}
    cells = [f"{getattr(row, name):.{digits.get(name, 4)}f}" for name in EXCERPT_TERMS]
    gaps = f"{row.gap_source:.4f} / {row.gap_target:.4f}"
    return [row.world, f"{row.severity:g}", str(row.n), "paper", *cells, gaps]


def _ours(row: ExcerptRow, part: DataFrame, name: str, *, squared: bool) -> list[str]:
    head = [row.world, f"{row.severity:g}", str(row.n), name]
    if part.empty:
        return head + [MISSING] * 7
    terms = excerpt_terms(part, squared=squared)
    gaps = f"{part['gap_source'].mean():.4f} / {part['gap_target'].mean():.4f}"
    return [*head, *(spread(terms[column]) for column in EXCERPT_TERMS), gaps]


@table("rank-power", "synthetic")
def rank_power(records: list[Record]) -> Table:
    """One row per world, model, variant and score."""
    frame = evaluated_pairs(records)
    rows = [
        [
            *(world, model, variant, name, _rho(world, score, variant, "{:.3f}")),
            *(interval(rank_correlation(part, score)), str(len(part))),
        ]
        for (world, model, variant), part in frame.groupby(SETTING)
        for score, name in SCORES.items()
    ]
    return Table(
        caption=(
            "Spearman's rho of each score with |Delta R| (clipped cross-entropy) over all severities, sample sizes, "
            f"weight decays and seeds, with a {interval_kind(frame)}. c_h comes from candidates of another seed."
        ),
        header=["world", "model", "variant", "score", "paper", "ours", "pairs"],
        rows=rows,
    )


def _rho(world: str, score: str, variant: str, form: str) -> str:
    """The published rank correlation, which is that of labels that travel."""
    published = RANK_POWER.get((world, score)) if variant == "labels travel" else None
    return form.format(published) if published else ""


@table("glance", "synthetic")
def glance(records: list[Record]) -> Table:
    """One line a setting: how proxy and rivals rank |Delta R|, how tight the bound is, how often harm is done."""
    frame = evaluated_pairs(records)
    rivals = ("output_distance", "severity", "anchor_worst_label")
    rows = []
    for (world, model, variant), part in frame.groupby(SETTING):
        held, ratio = covers(part, "bound_ot")
        proxy = interval(rank_correlation(part, "proxy_ot"), "{:.2f}")
        rhos = [f"{rank_correlation(part, name).estimate:.2f}" for name in rivals]
        harm = f"{100 * (part['risk_change'] > 0).mean():.0f}%"
        bound = f"{100 * held:.0f}%, {ratio:.0f}"
        rows.append([world, model, variant, _rho(world, "proxy_ot", variant, "{:.2f}"), proxy, *rhos, bound, harm])
    scores = ["TRACE-Proxy, paper", "TRACE-Proxy, ours", *(SCORES[name] for name in rivals)]
    return Table(
        caption=(
            f"Spearman's rho with |Delta R| ({interval_kind(frame)}), how often the OT bound holds with its median "
            "ratio to |Delta R|, and the share of updates that raise the anchor's risk."
        ),
        header=["world", "model", "variant", *scores, "bound holds, ratio", "harmful"],
        rows=rows,
    )


@table("coverage", "synthetic")
def coverage(records: list[Record]) -> Table:
    """How often each bound, and each of its terms alone, is at least |Delta R|, and how loosely."""
    rows = []
    for setting, part in evaluated_pairs(records).groupby(SETTING):
        for bound, name in BOUNDS.items():
            if bound not in part or (known := part.dropna(subset=[bound])).empty:
                continue
            held, ratio = covers(known, bound)
            check = CHECKS[bound](known) if bound in CHECKS else ""
            rows.append([*setting, name, f"{100 * held:.1f}%", f"{ratio:.3g}", check, str(len(known))])
    return Table(
        caption=(
            "Share of pairs with |Delta R| at most the bound, and the median of bound / |Delta R|. A bound that holds "
            "always and is far above 1 says little: compare with its terms alone and with the anchor bounds. "
            "Estimate: of the OT shift the median distance, its floor (the same between halves of the source, without "
            "any shift but with half the points, so a little high) and the share of pairs below it; of the MMD shift "
            "the share of pairs whose kernel ridge is on the edge of its grid, so that the norm depends on the grid; "
            "of the OT bounds the share of pairs where the event that they are conditioned on is known to fail, as a "
            "gradient that was seen, under some label, exceeds its quantile. The two-term bounds are on held-out "
            "target rows and the exact W1 of the inputs of small samples: conditional on the steepest slopes that "
            "were seen, or with certified constants on that W1."
        ),
        header=["world", "model", "variant", "bound", "holds", "median tightness", "estimate", "pairs"],
        rows=rows,
    )


def above_floor(frame: DataFrame) -> str:
    """The median OT distance beside what it is without any shift."""
    distance, floor = frame["distance"], frame["floor"]
    return f"{distance.median():.3g}, floor {floor.median():.3g}, below in {100 * (distance < floor).mean():.0f}%"


def at_edge(frame: DataFrame) -> str:
    """How often the grid of ridges ended before the best one."""
    return f"edge in {100 * frame['rkhs_at_edge'].mean():.1f}%"


def event_fails(frame: DataFrame) -> str:
    """How often the quantile of a model's gradients is below one that was seen."""
    if "largest_gradient_source" not in frame:
        return ""
    fails = [frame[f"largest_gradient_{side}"] > frame[f"sensitivity_{side}"] for side in ("source", "target")]
    return f"conditional, event fails in {100 * (fails[0] | fails[1]).mean():.0f}%"


def conditional(_frame: DataFrame) -> str:
    return "conditional"


CHECKS = {
    "emp_shift_ot": above_floor,
    "emp_shift_mmd": at_edge,
    **dict.fromkeys(("bound_ot", "bound_full_ot"), event_fails),
    **{name: conditional for name in BOUNDS if name.startswith(("bound_direct", "bound_difference"))},
}
"""What tells whether a term's estimate can be trusted."""
