"""The measured parts of gate scores, each with an interval at a chosen level, read from a diagnostic's record.

A record is what `Diagnostic.as_dict` gives, or what JSON gives back of it, where null stands for a number that is not
finite. Every interval takes the samples as independent of both models, and holds alone with probability ``1 - delta``:
those of the two distances asymptotically, by normal approximation, the others for any number of samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

from ..stats.intervals import hoeffding_radius, mean_interval, proportion_interval

Record = Mapping[str, Any]
SampleName = Literal["anchor", "target"]
_SAMPLES: tuple[SampleName, SampleName] = ("anchor", "target")


class Part(NamedTuple):
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
    return math.nan if found is None else _real(found, path)


def count(record: Record, *path: str) -> int:
    """The same as a whole number; 0 for None."""
    found = number(record, *path)
    return 0 if math.isnan(found) else int(found)


def _real(found: Any, path: tuple[str, ...]) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError(f"the diagnostic's record has {'.'.join(path)} = {found!r}, no number: make it again")
    return float(found)


def anchor_mean(term: str) -> Callable[[Record, float], Part]:
    """An anchor term: exact binomial interval for the disagreement, Hoeffding's or Bernstein's for the others."""

    def part(record: Record, delta: float) -> Part:
        value, n = number(record, "anchor", term, "value"), count(record, "anchor", "num_samples")
        why = str(entry(record, "anchor", term, "reason"))
        low, high = (number(record, "anchor", term, end) for end in ("low", "high"))
        if not math.isfinite(high - low):
            return Part(value, -math.inf, math.inf, "anchor", n, why or "the record keeps no range of the values")
        if term == "disagreement":
            interval = proportion_interval(round(value * n), n, delta)
        else:
            interval = mean_interval(value, number(record, "anchor", term, "deviation"), n, low, high, delta)
        return Part(value, interval.lower, interval.upper, "anchor", n)

    return part


def output_distance(record: Record, delta: float) -> Part:
    """M_l2, a mean of distances between 0 and their reach."""
    value, n = number(record, "output_distance", "value"), count(record, "output_distance", "num_samples")
    reach = number(record, "output_distance", "reach")
    if not math.isfinite(reach):
        return Part(value, 0.0, math.inf, "target", n, "no interval: the outputs have no finite range")
    error = number(record, "output_distance", "standard_error")
    interval = mean_interval(value, error * math.sqrt(n), n, 0.0, reach, delta)
    return Part(value, interval.lower, interval.upper, "target", n)


def model_change(record: Record, delta: float) -> Part:
    """``L_ell M_l2``."""
    part, scale = output_distance(record, delta), number(record, "lipschitz_loss")
    if not math.isfinite(scale):
        return part._replace(
            value=math.nan, upper=math.inf, note="the loss has no finite Lipschitz constant in the outputs"
        )
    return part._replace(value=scale * part.value, lower=scale * part.lower, upper=scale * part.upper)


def gap(name: str, sample: SampleName, validation: str) -> Callable[[Record, float], Part]:
    """A validation gap: the held-out risk is a mean of losses in ``[0, M]``, the training risk is known."""

    def part(record: Record, delta: float) -> Part:
        value, n = number(record, name), count(record, "sizes", validation) if validation in record["sizes"] else 0
        bound = number(record, "loss_bound")
        if math.isnan(value) or n == 0:
            return Part(math.nan, 0.0, math.inf, sample, n, _why(record, name))
        if not math.isfinite(bound):
            return Part(value, 0.0, math.inf, sample, n, "no interval: the loss is unbounded")
        radius = hoeffding_radius(n, delta, bound)
        return Part(value, max(0.0, value - radius), min(bound, value + radius), sample, n)

    return part


def sensitivity(name: str, sample: SampleName) -> Callable[[Record, float], Part]:
    """A gradient quantile: the narrowest stored band whose failure probability is at most delta.

    Bands by order statistics; the DKW band in a record without them.
    """

    def part(record: Record, delta: float) -> Part:
        found = entry(record, name)
        if found is None:
            return Part(math.nan, 0.0, math.inf, sample, 0, _why(record, name))
        value, n, q = float(found["value"]), int(found["num_samples"]), float(found["q"])
        bands = found.get("bands") or [(found["eta"], found["lower"], found["upper"])]
        valid = [band for band in bands if band[0] <= delta]
        if not valid:
            note = f"no band of the gradient quantile fails as seldom as {delta:.2g}: lower the confidence"
            return Part(value, 0.0, math.inf, sample, n, note)
        level, lower, upper = max(valid, key=lambda band: float(band[0]))
        if upper is None or math.isinf(upper):
            least = math.ceil(math.log(level / 2) / math.log(q))
            note = f"{n} samples do not bound the {q:g} quantile of gradient norms from above"
            return Part(value, float(lower), math.inf, sample, n, note, least)
        return Part(value, float(lower), float(upper), sample, n)

    return part


def transport(record: Record, delta: float) -> Part:
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
        return Part(value, 0.0, math.inf, sample, n, note)
    radius = _normal_quantile(delta) * error
    upper = value + radius + _or(number(found, "value_error"), math.inf)
    floors = [entry(record, name) for name in ("floor", "target_floor")]
    if any(floor is None for floor in floors):
        notes.append("no lower end of the transport distance without its floors: they need a generator and 4 rows each")
        return Part(value, 0.0, upper, sample, n, "; ".join(notes), open_below=True, thinned=thinned)
    bias = sum(
        floor["value"] * max(1.0, floor["sample_sizes"][0] / size) for floor, size in zip(floors, sizes, strict=True)
    )
    lower = max(0.0, value - bias / 2 - radius)
    return Part(value, lower, upper, sample, n, "; ".join(notes), thinned=thinned)


def mmd(record: Record, delta: float) -> Part:
    """The MMD for the kernel with this bandwidth: its square is normal, with a standard error on the safe side."""
    found = entry(record, "mmd")
    most = int(entry(record, "settings", "mmd_samples"))
    sample, n = _smaller([min(_whole(record, name), most) for name in _SAMPLES])
    thinned = n < _whole(record, sample)
    radius = _normal_quantile(delta) * number(found, "standard_error")
    if math.isnan(radius):
        return Part(float(found["value"]), 0.0, math.inf, sample, n, "no interval: the MMD has no standard error")
    lower, upper = (math.sqrt(max(found["squared"] + side * radius, 0.0)) for side in (-1, 1))
    note = _asymptotic("MMD")
    if thinned:
        note += f"; {most} rows of a sample enter the MMD at most: raise mmd_samples to narrow its interval"
    return Part(float(found["value"]), lower, upper, sample, n, note, thinned=thinned)


def rkhs_norm(record: Record, _delta: float) -> Part:
    """B, as given."""
    found = entry(record, "rkhs_norm")
    if found is None:
        return Part(math.nan, 0.0, math.inf, "target", 0, _why(record, "rkhs_norm"))
    value = number(record, "rkhs_norm", "value")
    note = "no interval is known for the RKHS norm: it is taken as given"
    return Part(value, value, value, "target", count(record, "rkhs_norm", "num_samples"), note)


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


def _or(value: float, default: float) -> float:
    return default if math.isnan(value) else value
