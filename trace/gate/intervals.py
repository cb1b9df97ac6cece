"""Gate scores with intervals, from a diagnostic's record.

Each score of `trace.scores` is increasing in its parts, so the ends of their intervals, put into its formula, give the
score's ends. The parts share the failure probability by a union bound.

A record is what `Diagnostic.as_dict` gives, or what JSON gives back of it, where null stands for a number that is not
finite. Every interval takes the samples as independent of both models, and holds alone with probability ``1 - delta``:
those of the two distances asymptotically, by normal approximation, the others for any number of samples.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from ..checks import check_level
from ..diagnostic import Diagnostic
from ..scores import GATE_SCORES
from ..stats.intervals import hoeffding_radius, mean_interval, proportion_interval

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


class ScoreInterval(NamedTuple):
    """A score's value and the interval of what it would be on infinitely many samples."""

    value: float
    lower: float
    upper: float
    sample: SampleName
    """Whose size limits the width most."""
    size: int
    least: int
    """Fewest samples of it that give a finite interval."""
    open_below: bool
    """The lower end would not rise with more samples."""
    thinned: bool
    """Not all samples entered the widest part, and more would not either."""
    sizes: dict[SampleName, int]
    """The smallest sample of each kind that entered."""
    on_training: bool
    """A part was measured on the anchor's training rows, for which no interval holds."""
    reason: str
    """Why the value is NaN or an end is infinite; empty otherwise."""
    notes: tuple[str, ...]
    """What the interval takes for granted."""


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
    record = diagnostic.as_dict() if isinstance(diagnostic, Diagnostic) else diagnostic
    uncertain = [name for name in names if name in _PARTS and name not in _GIVEN]
    found = {name: _PARTS[name](record, delta / len(uncertain)) for name in names if name in _PARTS}
    constants = {name: number(record, "settings", name) for name in names if name not in _PARTS}

    def at(end: str, fixed: str = "") -> float:
        ends = {name: getattr(p, "value" if name == fixed else end) for name, p in found.items()}
        return float(formula({**constants, **ends}))

    value, lower, upper = (at(end) for end in ("value", "lower", "upper"))
    missing = [name for name, p in found.items() if math.isnan(p.value)]
    endless = [name for name, p in found.items() if math.isinf(p.upper)]
    widest = (missing or endless or [min(uncertain, key=lambda name: at("upper", name) - at("lower", name))])[0]
    blamed, said = found[widest], missing or endless
    used = {kind: [p.size for p in found.values() if p.sample == kind] for kind in _SAMPLES}
    sizes = {kind: min(rows) for kind, rows in used.items() if rows}
    notes = [p.note for name, p in found.items() if p.note and name not in said]
    if "target" in sizes:
        notes.append("the target inputs count as independent of both models")
    return ScoreInterval(
        value,
        lower,
        upper,
        blamed.sample,
        blamed.size,
        blamed.least,
        open_below=any(p.open_below for p in found.values()),
        thinned=blamed.thinned,
        sizes=sizes,
        on_training="anchor" in entry(record, "reasons") and not _HELD_OUT.isdisjoint(found),
        reason="; ".join(f"{name}: {found[name].note}" for name in said),
        notes=tuple(notes),
    )


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


def anchor_mean(term: str, record: Record, delta: float) -> PartInterval:
    """An anchor term: exact binomial interval for the disagreement, Hoeffding's or Bernstein's for the others."""
    value, n = number(record, "anchor", term, "value"), count(record, "anchor", "num_samples")
    why = str(entry(record, "anchor", term, "reason"))
    low, high = (number(record, "anchor", term, end) for end in ("low", "high"))
    if not math.isfinite(high - low):
        return PartInterval(value, -math.inf, math.inf, "anchor", n, why or "the record keeps no range of the values")
    if term == "disagreement":
        interval = proportion_interval(round(value * n), n, delta)
    else:
        interval = mean_interval(value, number(record, "anchor", term, "deviation"), n, low, high, delta)
    return PartInterval(value, interval.lower, interval.upper, "anchor", n)


def output_distance(record: Record, delta: float) -> PartInterval:
    """M_l2, a mean of distances between 0 and their reach."""
    value, n = number(record, "output_distance", "value"), count(record, "output_distance", "num_samples")
    reach = number(record, "output_distance", "reach")
    if not math.isfinite(reach):
        return PartInterval(value, 0.0, math.inf, "target", n, "no interval: the outputs have no finite range")
    error = number(record, "output_distance", "standard_error")
    interval = mean_interval(value, error * math.sqrt(n), n, 0.0, reach, delta)
    return PartInterval(value, interval.lower, interval.upper, "target", n)


def lipschitz_loss(record: Record, _delta: float) -> PartInterval:
    """L_ell, a constant of the loss."""
    scale, n = number(record, "lipschitz_loss"), count(record, "output_distance", "num_samples")
    if not math.isfinite(scale):
        note = "the loss has no finite Lipschitz constant in the outputs"
        return PartInterval(math.nan, 0.0, math.inf, "target", n, note)
    return PartInterval(scale, scale, scale, "target", n)


def gap(name: str, sample: SampleName, validation: str, record: Record, delta: float) -> PartInterval:
    """A validation gap: the held-out risk is a mean of losses in ``[0, M]``, the training risk is known."""
    value, n = number(record, name), count(record, "sizes", validation) if validation in record["sizes"] else 0
    bound = number(record, "loss_bound")
    if math.isnan(value) or n == 0:
        return PartInterval(math.nan, 0.0, math.inf, sample, n, _why(record, name))
    if not math.isfinite(bound):
        return PartInterval(value, 0.0, math.inf, sample, n, "no interval: the loss is unbounded")
    radius = hoeffding_radius(n, delta, bound)
    return PartInterval(value, max(0.0, value - radius), min(bound, value + radius), sample, n)


def sensitivity(name: str, sample: SampleName, record: Record, delta: float) -> PartInterval:
    """A gradient quantile: the narrowest stored band whose failure probability is at most delta.

    Bands by order statistics; the DKW band in a record without them.
    """
    if (found := entry(record, name)) is None:
        return PartInterval(math.nan, 0.0, math.inf, sample, 0, _why(record, name))
    value, n, q = float(found["value"]), int(found["num_samples"]), float(found["q"])
    bands = found.get("bands") or [(found["eta"], found["lower"], found["upper"])]
    if not (valid := [band for band in bands if band[0] <= delta]):
        note = f"no band of the gradient quantile fails as seldom as {delta:.2g}: lower the confidence"
        return PartInterval(value, 0.0, math.inf, sample, n, note)
    level, lower, upper = max(valid, key=lambda band: float(band[0]))
    if upper is None or math.isinf(upper):
        least = math.ceil(math.log(level / 2) / math.log(q))
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
        return PartInterval(math.nan, 0.0, math.inf, "target", 0, _why(record, "rkhs_norm"))
    value = number(record, "rkhs_norm", "value")
    note = "no interval is known for the RKHS norm: it is taken as given"
    return PartInterval(value, value, value, "target", count(record, "rkhs_norm", "num_samples"), note)


def _why(record: Record, name: str) -> str:
    return str(entry(record, "reasons").get(name, "it was not measured"))


def _smaller(sizes: list[int]) -> tuple[SampleName, int]:
    """The sample that limits a distance between two."""
    return ("anchor", sizes[0]) if sizes[0] <= sizes[1] else ("target", sizes[1])


def _whole(record: Record, sample: SampleName) -> int:
    """Rows of a sample that were handed in, whether or not all entered."""
    return int(entry(record, "sizes", "source" if sample == "anchor" else "target"))


def _asymptotic(what: str) -> str:
    return f"the interval of the {what} is asymptotic, a normal approximation"


def _normal_quantile(delta: float) -> float:
    return NormalDist().inv_cdf(1 - delta / 2)


_PARTS: dict[str, Callable[[Record, float], PartInterval]] = {
    **{
        f"anchor_{term}": partial(anchor_mean, term) for term in ("disagreement", "worst_label", "lipschitz", "plug_in")
    },
    "output_distance": output_distance,
    "lipschitz_loss": lipschitz_loss,
    "gap_source": partial(gap, "gap_source", "anchor", "source_val"),
    "gap_target": partial(gap, "gap_target", "target", "target_val"),
    "sensitivity_source": partial(sensitivity, "sensitivity_source", "anchor"),
    "sensitivity_target": partial(sensitivity, "sensitivity_target", "target"),
    "transport": transport,
    "mmd": mmd,
    "rkhs_norm": rkhs_norm,
}
"""What scores are made of, by the names in `trace.scores`; any other part is a number of the settings."""
_GIVEN = {"rkhs_norm", "lipschitz_loss"}
"""Parts without an interval, which spend nothing."""
_HELD_OUT = {"gap_source", "sensitivity_source", *(name for name in _PARTS if name.startswith("anchor_"))}
"""Parts whose interval needs anchor rows that no model was trained on."""
