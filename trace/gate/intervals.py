"""Gate scores with intervals, from a diagnostic's record.

Each score of `trace.scores` is increasing in its parts, so the ends of their intervals, put into its formula, give the
score's ends. The parts share the failure probability by a union bound.

A record is what `Diagnostic.as_dict` gives, or what JSON gives back of it, where null stands for a number that is not
finite. Every interval takes the samples as independent of both models. Those of means, shares and quantiles are
confidence sequences: with probability ``1 - delta`` each holds alone after every row at once, so rows may be added and
the gate asked again. Those of the two distances are asymptotic and hold for one look.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from ..checks import check_level
from ..diagnostic import Diagnostic
from ..estimators.labelled import Slices, slices_of_record, tail_interval, worst_slice
from ..scores import GATE_SCORES
from ..stats.betting import Tally, confidence_sequence, first_rank, sequence_ranks, tally_of_record
from .labelling import Labelling, LabellingState

Record = Mapping[str, Any]
SampleName = Literal["anchor", "target"]
_SAMPLES: tuple[SampleName, SampleName] = ("anchor", "target")


class PartInterval(NamedTuple):
    """One measured number, its interval, and the sample that decides how wide that is."""

    value: float
    lower: float
    upper: float
    sample: SampleName
    size: int
    note: str = ""
    """Why the value is NaN, why an end is missing, or what was taken for granted."""
    least: int = 1
    """Fewest samples that give a finite interval."""
    open_below: bool = False
    """The lower end is the least possible value, and more samples would not raise it."""
    thinned: bool = False
    """Not all samples entered, and more would not either."""
    rows: Tally | None = None
    """Of a mean: what a forecast of the samples that would decide goes by."""
    spent: float = math.nan
    """The failure probability of that mean's interval."""
    which: str = ""
    """Which samples more are needed of, where not any will do."""
    most: str = ""
    """The slice with the largest lower end."""


class ScoreInterval(NamedTuple):
    """A score's value and the interval of what it would be on infinitely many samples."""

    value: float
    lower: float
    upper: float
    widest: PartInterval
    """The part that limits the width most, or that is missing."""
    open_below: bool
    """The lower end would not rise with more samples."""
    sizes: dict[SampleName, int]
    """The smallest sample of each kind that entered."""
    on_training: str
    """Why a part was not measured on held-out rows of the anchor, so that no interval holds; empty otherwise."""
    on_target_training: str
    """The same of the target's."""
    alone: bool
    """The score is one part."""
    reason: str
    """Why the value is NaN or an end is infinite; empty otherwise."""
    notes: tuple[str, ...]
    """What the interval takes for granted."""
    labels: LabellingState | None = None
    """Where labels were told one by one: how far they got."""


def labelling_interval(labelling: Labelling, limit: float, *, delta: float = 0.05) -> ScoreInterval:
    """``Delta R`` by the labels that a labelling was told, with an interval that fails with probability ``delta``.

    It holds after every label, whatever limit and confidence the labels were asked for with; ``limit`` is what it is
    compared with.
    """
    state = labelling.judged(limit=limit, confidence=1 - delta).state
    rows = len(labelling.outputs)
    note = (
        f"the labels speak of the {rows} rows at hand, not of what they were drawn from"
        if state.scope == "file"
        else "the labelled rows count as independent of both models"
    )
    part = PartInterval(state.estimate, state.lower, state.upper, "anchor", state.spent)
    return ScoreInterval(
        part.value,
        part.lower,
        part.upper,
        part,
        open_below=False,
        sizes={"anchor": rows},
        on_training="",
        on_target_training="",
        alone=True,
        reason="",
        notes=(note,),
        labels=state,
    )


def score_interval(diagnostic: Diagnostic | Record, score: str, *, delta: float = 0.05) -> ScoreInterval:
    """A score of `GATE_SCORES` with an interval that fails with probability at most ``delta``.

    ``diagnostic`` is a `Diagnostic`, or its record as `as_dict` or a JSON file gives it.

    Raises:
        ValueError: for an unknown score, a level outside (0, 1), or a record that lacks what the score needs.
    """
    if score not in GATE_SCORES:
        raise ValueError(f"score {score!r} is not known: use one of {', '.join(GATE_SCORES)}")
    check_level(delta, "delta")
    names, formula = GATE_SCORES[score].parts, GATE_SCORES[score].formula
    record = diagnostic.estimates() if isinstance(diagnostic, Diagnostic) else diagnostic
    uncertain = [name for name in names if name in _PARTS and name not in _GIVEN]
    found = {name: _PARTS[name](record, delta / len(uncertain)) for name in names if name in _PARTS}
    constants = {name: number(record, "settings", name) for name in names if name not in _PARTS}

    def at(end: str, fixed: str = "") -> float:
        ends = {name: getattr(p, "value" if name == fixed else end) for name, p in found.items()}
        return float(formula({**constants, **ends}))

    value, lower, upper = (at(end) for end in ("value", "lower", "upper"))
    missing = [name for name, p in found.items() if math.isnan(p.value)]
    endless = [name for name, p in found.items() if math.isinf(p.upper)]
    said = missing or endless
    widest = (said or [min(uncertain, key=lambda name: at("upper", name) - at("lower", name))])[0]
    used = {kind: [p.size for p in found.values() if p.sample == kind] for kind in _SAMPLES}
    sizes = {kind: min(rows) for kind, rows in used.items() if rows}
    notes = [p.note for name, p in found.items() if p.note and name not in said]
    if "target" in sizes:
        notes.append("the target inputs count as independent of both models")
    return ScoreInterval(
        value,
        lower,
        upper,
        found[widest],
        open_below=any(p.open_below for p in found.values()),
        sizes=sizes,
        on_training=_not_held_out(record, "anchor", found),
        on_target_training=_not_held_out(record, "target", found),
        alone=len(names) == 1,
        reason="; ".join(f"{name}: {found[name].note}" for name in said),
        notes=tuple(notes),
    )


def _not_held_out(record: Record, kind: SampleName, parts: Mapping[str, PartInterval]) -> str:
    reasons = entry(record, "reasons")
    return str(reasons[kind]) if kind in reasons and not _HELD_OUT[kind].isdisjoint(parts) else ""


def entry(record: Record, *path: str) -> Any:
    """``record[path[0]][path[1]]...``; None where something on the way is None."""
    found: Any = record
    for key in path:
        if found is None:
            return None
        if not isinstance(found, Mapping) or key not in found:
            raise ValueError(f"the diagnostic's record has no {'.'.join(path)}: make it again with this version")
        found = found[key]
    return found


def number(record: Record, *path: str) -> float:
    """The same as a float; NaN for None."""
    found = entry(record, *path)
    if isinstance(found, bool) or not isinstance(found, int | float | None):
        raise ValueError(f"the diagnostic's record has {'.'.join(path)} = {found!r}, no number: make it again")
    return math.nan if found is None else float(found)


def count(record: Record, *path: str) -> int:
    """The same as a whole number; 0 for None."""
    found = number(record, *path)
    return 0 if math.isnan(found) else int(found)


def mean(value: float, rows: Tally, sample: SampleName, delta: float, which: str = "") -> PartInterval:
    """A mean and its confidence sequence."""
    ends = confidence_sequence(rows, delta)
    return PartInterval(value, ends.lower, ends.upper, sample, rows.n, rows=rows, spent=delta, which=which)


def tally_at(record: Record, *path: str) -> Tally | None:
    """The tally that is kept there, if any."""
    found = entry(record, *path)
    return None if found is None else tally_of_record(found)


def anchor_mean(term: str, record: Record, delta: float) -> PartInterval:
    """An anchor term."""
    value, n = number(record, "anchor", term, "value"), count(record, "anchor", "num_samples")
    why = str(entry(record, "anchor", term, "reason"))
    if (rows := tally_at(record, "anchor", term, "tally")) is None:
        return PartInterval(value, -math.inf, math.inf, "anchor", n, why or "the record keeps no tally of the values")
    return mean(value, rows, "anchor", delta)


def training_distance(record: Record, _delta: float) -> PartInterval:
    """M_l2 on the target's training sample, as the corollary has it: given, as it says nothing about other rows."""
    value, n = number(record, "output_distance", "value"), count(record, "output_distance", "num_samples")
    note = "the model change is that of the target's training rows, taken as given"
    return PartInterval(value, value, value, "target", n, note)


def held_out_distance(record: Record, delta: float) -> PartInterval:
    """M_l2 on held-out target rows, a mean of distances."""
    if entry(record, "held_out_distance") is None:
        return _missing(record, "held_out_distance", "target")
    value, n = number(record, "held_out_distance", "value"), count(record, "held_out_distance", "num_samples")
    if (rows := tally_at(record, "held_out_distance", "tally")) is None:
        return PartInterval(value, 0.0, math.inf, "target", n, "no interval: the outputs have no finite range")
    return mean(value, rows, "target", delta)


def labelled_mean(term: str, record: Record, delta: float) -> PartInterval:
    """The change of the anchor's risk or error that labels show."""
    if entry(record, "labelled") is None:
        return _missing(record, "labelled", "anchor")
    value, n = number(record, "labelled", term, "value"), count(record, "labelled", "num_samples")
    if (rows := tally_at(record, "labelled", term, "tally")) is None:
        why = str(entry(record, "labelled", term, "reason"))
        return PartInterval(value, -math.inf, math.inf, "anchor", n, why)
    return mean(value, rows, "anchor", delta, "labelled")


def labelled_tail(record: Record, delta: float) -> PartInterval:
    """CVaR of the loss change that labels show."""
    if entry(record, "labelled") is None:
        return _missing(record, "labelled", "anchor")
    value, n = number(record, "labelled", "tail"), count(record, "labelled", "num_samples")
    if (rows := tally_at(record, "labelled", "risk", "tally")) is None:
        return PartInterval(value, -math.inf, math.inf, "anchor", n, "no interval: the loss is unbounded")
    ends = tail_interval(rows, delta)
    return PartInterval(value, ends.lower, ends.upper, "anchor", n, which="labelled")


def worst(kind: str, what: str, record: Record, delta: float, *, labelled: bool) -> PartInterval:
    """The worst class or group: its share of changed predictions, or with labels the rise of its error."""
    found: Slices | None = slices_of_record(kept) if (kept := entry(record, "slices").get(kind)) else None
    if found is None or not any(found.rows) or (labelled and not found.worse):
        lacks = (
            "needs labels on anchor rows that no model was trained on" if labelled else "predictions are not classes"
        )
        note = lacks if kind != "group" else f"needs groups (--group COLUMN){' and labels' if labelled else ''}"
        return PartInterval(math.nan, -math.inf, math.inf, "anchor", 0, note)
    ends = worst_slice(found, delta, labelled=labelled)
    absent = sum(n == 0 for n in found.rows)
    notes = (
        [f"{absent} of {len(found.rows)} {what}es have no row and are left out"] if absent and kind != "group" else []
    )
    return PartInterval(
        ends.value,
        ends.lower,
        ends.upper,
        "anchor",
        sum(found.rows),
        "; ".join(notes),
        rows=ends.tally,
        spent=delta / len(found.names),
        which=f"{what} {ends.least_known}",
        most=f"{what} {ends.least_harmed}",
    )


def lipschitz_loss(record: Record, _delta: float) -> PartInterval:
    """L_ell, a constant of the loss."""
    scale, n = number(record, "lipschitz_loss"), count(record, "output_distance", "num_samples")
    if not math.isfinite(scale):
        note = "the loss has no finite Lipschitz constant in the outputs"
        return PartInterval(math.nan, 0.0, math.inf, "target", n, note)
    return PartInterval(scale, scale, scale, "target", n)


def gap(side: str, sample: SampleName, record: Record, delta: float) -> PartInterval:
    """A validation gap: the held-out risk is a mean of losses, the training risk is known."""
    if entry(record, "gaps", side) is None:
        return _missing(record, f"gap_{side}", sample)
    value, train = number(record, "gaps", side, "value"), number(record, "gaps", side, "train_risk")
    if (rows := tally_at(record, "gaps", side, "tally")) is None:
        n = count(record, "sizes", f"{side}_val")
        return PartInterval(value, 0.0, math.inf, sample, n, "no interval: the loss is unbounded")
    ends = confidence_sequence(rows, delta)
    lower, upper = max(0.0, ends.lower - train, train - ends.upper), max(ends.upper - train, train - ends.lower)
    return PartInterval(value, lower, upper, sample, rows.n)


def sensitivity(name: str, sample: SampleName, record: Record, delta: float) -> PartInterval:
    """A gradient quantile: the narrowest stored band whose failure probability is at most delta."""
    if (found := entry(record, name)) is None:
        return _missing(record, name, sample)
    value, n, q = float(found["value"]), int(found["num_samples"]), float(found["q"])
    if not (valid := [band for band in found["bands"] if band[0] <= delta]):
        note = f"no band of the gradient quantile fails as seldom as {delta:.2g}: lower the confidence"
        return PartInterval(value, 0.0, math.inf, sample, n, note)
    level, lower, upper = max(valid, key=lambda band: float(band[0]))
    if upper is None or math.isinf(upper):
        least = first_rank(lambda rows: rows > 0 and sequence_ranks(rows, q, level)[1] <= rows, 10**9)
        note = f"{n} samples do not bound the {q:g} quantile of gradient norms from above"
        return PartInterval(value, float(lower), math.inf, sample, n, note, least)
    return PartInterval(value, float(lower), float(upper), sample, n)


def transport(record: Record, delta: float) -> PartInterval:
    """The transport distance: normal, with its standard error, and from below less its bias.

    A divergence between samples lies above that between their distributions on average (it is convex in each), so the
    upper end needs no correction. From below the mean of both samples' floors is taken off: halves of a sample are
    biased at least as much as the whole. Without floors the lower end is 0.
    """
    found = entry(record, "transport")
    value, sizes = max(number(found, "value"), 0.0), [int(size) for size in found["sample_sizes"]]
    sample, n = _smaller(sizes)
    thinned = n < _whole(record, sample)
    notes = [_asymptotic("transport distance")]
    if thinned:
        notes.append(f"the transport distance compares {n} rows at a time, and more would not narrow its interval")
    error = found.get("standard_error")
    if error is None or math.isnan(error):
        note = f"no interval: the {record['settings']['distance']} distance has no standard error here"
        return PartInterval(value, 0.0, math.inf, sample, n, note)
    radius = _normal_quantile(delta) * error
    left_over = number(found, "value_error")
    upper = value + radius + (math.inf if math.isnan(left_over) else left_over)
    floors = [entry(record, name) for name in ("floor", "target_floor")]
    if any(floor is None for floor in floors):
        notes.append("no lower end of the transport distance without its floors: they need a generator and 4 rows each")
        return PartInterval(value, 0.0, upper, sample, n, "; ".join(notes), open_below=True, thinned=thinned)
    bias = sum(
        floor["value"] * max(1.0, floor["sample_sizes"][0] / size) for floor, size in zip(floors, sizes, strict=True)
    )
    lower = max(0.0, value - bias / 2 - radius)
    return PartInterval(value, lower, upper, sample, n, "; ".join(notes), thinned=thinned)


def mmd(record: Record, delta: float) -> PartInterval:
    """The MMD for the kernel with this bandwidth: its square is normal, with a standard error on the safe side."""
    found = entry(record, "mmd")
    most = int(entry(record, "settings", "mmd_samples"))
    sample, n = _smaller([min(_whole(record, name), most) for name in _SAMPLES])
    thinned = n < _whole(record, sample)
    radius = _normal_quantile(delta) * number(found, "standard_error")
    if math.isnan(radius):
        return PartInterval(
            float(found["value"]), 0.0, math.inf, sample, n, "no interval: the MMD has no standard error"
        )
    lower, upper = (math.sqrt(max(found["squared"] + side * radius, 0.0)) for side in (-1, 1))
    note = _asymptotic("MMD")
    if thinned:
        note += f"; {most} rows of a sample enter the MMD at most: raise mmd_samples to narrow its interval"
    return PartInterval(float(found["value"]), lower, upper, sample, n, note, thinned=thinned)


def rkhs_norm(record: Record, _delta: float) -> PartInterval:
    """B, as given."""
    if entry(record, "rkhs_norm") is None:
        return _missing(record, "rkhs_norm", "target")
    value = number(record, "rkhs_norm", "value")
    note = "no interval is known for the RKHS norm: it is taken as given"
    return PartInterval(value, value, value, "target", count(record, "rkhs_norm", "num_samples"), note)


def _missing(record: Record, name: str, sample: SampleName) -> PartInterval:
    why = str(entry(record, "reasons").get(name, "it was not measured"))
    return PartInterval(math.nan, -math.inf, math.inf, sample, 0, why)


def _smaller(sizes: list[int]) -> tuple[SampleName, int]:
    """The sample that limits a distance between two."""
    return ("anchor", sizes[0]) if sizes[0] <= sizes[1] else ("target", sizes[1])


def _whole(record: Record, sample: SampleName) -> int:
    """Rows of a sample that were handed in, whether or not all entered."""
    return int(entry(record, "sizes", "source" if sample == "anchor" else "target"))


def _asymptotic(what: str) -> str:
    return f"the interval of the {what} is asymptotic, a normal approximation, and promises nothing across reruns"


def _normal_quantile(delta: float) -> float:
    return NormalDist().inv_cdf(1 - delta / 2)


_PARTS: dict[str, Callable[[Record, float], PartInterval]] = {
    **{
        f"anchor_{term}": partial(anchor_mean, term)
        for term in ("disagreement", "worst_label", "lipschitz", "plug_in", "error_plug_in")
    },
    "class_disagreement": partial(worst, "predicted", "class", labelled=False),
    "group_disagreement": partial(worst, "group", "group", labelled=False),
    "error_change": partial(labelled_mean, "error"),
    "risk_change": partial(labelled_mean, "risk"),
    "recall_drop": partial(worst, "class", "class", labelled=True),
    "group_error_rise": partial(worst, "group", "group", labelled=True),
    "tail_loss_rise": labelled_tail,
    "output_distance": training_distance,
    "held_out_distance": held_out_distance,
    "lipschitz_loss": lipschitz_loss,
    "gap_source": partial(gap, "source", "anchor"),
    "gap_target": partial(gap, "target", "target"),
    "sensitivity_source": partial(sensitivity, "sensitivity_source", "anchor"),
    "sensitivity_target": partial(sensitivity, "sensitivity_target", "target"),
    "transport": transport,
    "mmd": mmd,
    "rkhs_norm": rkhs_norm,
}
"""What scores are made of, by the names in `trace.scores`; any other part is a number of the settings."""
_GIVEN = {"rkhs_norm", "lipschitz_loss", "output_distance"}
"""Parts without an interval, which spend nothing."""
_HELD_OUT: dict[SampleName, set[str]] = {
    "anchor": {
        *("gap_source", "sensitivity_source", "class_disagreement", "group_disagreement"),
        *(name for name in _PARTS if name.startswith("anchor_")),
    },
    "target": {"gap_target", "sensitivity_target", "rkhs_norm", "held_out_distance"},
}
"""Parts whose interval needs rows that no model was trained on, by the sample that they are of."""
