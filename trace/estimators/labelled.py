"""What labels on anchor rows say of an update: signed changes, flips, classes, groups and the tail.

Both models see every row, so everything is paired. With the 0-1 errors ``e`` of Q and ``e~`` of Q~ on a row,

    e~ - e = 1    a negative flip, right before and wrong after
    e~ - e = -1   a positive flip
    E[e~ - e] = Delta error,    E[ell~ - ell] = Delta R,    E[e~ - e | y = c] = the fall of the recall of class c.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..checks import check_level, check_paired, check_vector
from ..hardware import doubled
from ..losses import Loss
from ..stats.betting import Tally, confidence_sequence, nodes
from ..stats.intervals import Interval
from .anchor import AnchorTerm, mean_term

TAIL = 0.05
"""Share of rows that the tail of the loss change is made of."""


class Slices(NamedTuple):
    """Rows by name, a class or a group each: how many there are, and what the update changes of them."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    changed: tuple[int, ...]
    """Predictions that are another class now."""
    right: tuple[int, ...] = ()
    """Rows that Q has right; this and the following are empty without labels."""
    worse: tuple[int, ...] = ()
    """Negative flips."""
    better: tuple[int, ...] = ()
    """Positive flips."""


class Labelled(NamedTuple):
    """The change that labels show, on rows that neither model was trained on."""

    risk: AnchorTerm
    """``Delta R = E[ell~ - ell]``: positive is harm."""
    error: AnchorTerm
    """``Delta error``; not available for regression."""
    tail: float
    """CVaR of the loss change: its mean over the worst `TAIL` of the rows."""
    negative_flips: int
    positive_flips: int
    num_samples: int
    sample: str = ""
    """The name of the sample among `trace.diagnose`'s arguments."""


def labelled_change(outputs: Tensor, new_outputs: Tensor, y: Tensor, loss: Loss) -> Labelled:
    """From both models' outputs ``[n, C]`` on the same rows and their labels ``[n]``.

    >>> from ..losses import ZeroOne
    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> labelled_change(z, z.flip(0), torch.tensor([0, 0, 1]), ZeroOne())[3:5]
    (2, 0)
    """
    check_paired(outputs, new_outputs)
    bound = loss.bound(outputs.shape[1])
    change = doubled(loss(new_outputs, y) - loss(outputs, y)).cpu()
    error, flips = AnchorTerm(math.nan, reason="errors are counted for classification only"), (0, 0)
    if loss.classification:
        was, now = ((z.argmax(dim=1) == y).cpu() for z in (outputs, new_outputs))
        error = mean_term(was.double() - now.double(), -1, 1)
        flips = int((was & ~now).sum()), int((now & ~was).sum())
    return Labelled(mean_term(change, -bound, bound), error, tail_mean(change), *flips, len(change))


def tail_mean(values: Tensor, share: float = TAIL) -> float:
    """``CVaR = min_t t + E[(x - t)^+] / share``: the mean of the largest ``share`` of values ``[n]``.

    >>> tail_mean(torch.arange(40.0), 0.05)
    38.5
    """
    check_vector(values, "values")
    check_level(share, "share")
    ordered, mass = doubled(values).sort(descending=True).values, share * len(values)
    whole = math.floor(mass + 1e-9)
    left = (mass - whole) * float(ordered[whole]) if whole < len(ordered) else 0.0
    return (float(ordered[:whole].sum()) + left) / mass


def tail_interval(rows: Tally, delta: float, share: float = TAIL, thresholds: int = 16) -> Interval:
    """For the population's `tail_mean`, after every row at once.

    It is ``min_t g(t)`` with ``g(t) = t + E[(x - t)^+] / share``, and the expectation has a confidence sequence at each
    of some fixed t, which share delta. Any t gives an upper end. From below ``g(t) >= t_j + L(t_{j+1}) / share`` for t
    between two of them, since the expectation falls in t, with L the lower ends. The t are nodes of the tally, between
    which ``(x - t)^+`` is linear: what was shared out stays exact.
    """
    fixed = nodes(rows.low, rows.high)
    t = [*map(float, fixed[: -1 : max(1, len(fixed) // thresholds)]), rows.high]
    excess = [_excess(rows, each) for each in t[:-1]]
    with np.errstate(over="ignore"):  # a fraction of a row, left over from sharing out, refutes next to nothing
        ends = [confidence_sequence(each, delta / len(excess)) for each in excess]
    upper = min(x + end.upper / share for x, end in zip(t, ends, strict=False))
    lows = [end.lower for end in ends] + [0.0]
    lower = min(x + low / share for x, low in zip(t, lows[1:], strict=False))
    return Interval(max(rows.low, lower), min(rows.high, upper), 1 - delta)


def _excess(rows: Tally, t: float) -> Tally:
    """The tally of ``(x - t)^+``."""
    below = math.fsum(c for x, c in zip(rows.values, rows.counts, strict=True) if x <= t)
    above = [(x - t, c) for x, c in zip(rows.values, rows.counts, strict=True) if x > t]
    kept = [(0.0, below), *above] if below else above
    return Tally(0.0, rows.high - t, tuple(x for x, _ in kept), tuple(c for _, c in kept), rows.exact)


def slices(outputs: Tensor, new_outputs: Tensor, by: Tensor, names: Sequence[str], y: Tensor | None = None) -> Slices:
    """Counts by the slice numbers ``by [n]``, each an index into ``names``; flips where there are labels ``y [n]``.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> slices(z, z.flip(0), z.argmax(dim=1), ["a", "b"]).changed
    (1, 1)
    """
    before, after = outputs.argmax(dim=1), new_outputs.argmax(dim=1)

    def counts(rows: Tensor) -> tuple[int, ...]:
        return tuple(torch.bincount(by[rows], minlength=len(names)).tolist())

    found = Slices(tuple(names), counts(torch.ones_like(by, dtype=torch.bool)), counts(before != after))
    if y is None:
        return found
    was, now = before == y, after == y
    return found._replace(right=counts(was), worse=counts(was & ~now), better=counts(now & ~was))


def slices_of_record(record: Mapping[str, Any]) -> Slices:
    """The slices whose ``_asdict()`` went through JSON.

    Raises:
        ValueError: for counts that no rows could have.
    """
    try:
        found = Slices(
            tuple(str(name) for name in record["names"]),
            *(tuple(int(count) for count in record[field]) for field in Slices._fields[1:]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the record holds no slices ({error!r}): make it again with this version") from error
    counts = [list(part) for part in found[1:] if part]
    if any(len(part) != len(found.names) or min(part, default=0) < 0 for part in counts) or not all(
        each <= n for part in counts for each, n in zip(part, found.rows, strict=False)
    ):
        raise ValueError("the record's slices hold counts that no rows could have: make it again with this version")
    return found


class WorstSlice(NamedTuple):
    """The largest mean of all slices: its interval, and the slice that decides at either end."""

    value: float
    """The largest mean."""
    lower: float
    """The largest lower end: with the promised probability some slice has at least this."""
    upper: float
    """The largest upper end: none has more."""
    least_harmed: str
    """The slice with the largest lower end."""
    least_known: str
    """The slice with the largest upper end."""
    tally: Tally
    """Of the latter."""


def worst_slice(found: Slices, delta: float, *, labelled: bool) -> WorstSlice:
    """The largest share of changed predictions of any slice, or with labels the largest rise of its error.

    The slices share delta, so that all their confidence sequences hold at once. Slices without a row say nothing and
    are left out; there must be one with rows.
    """
    tallies = {
        name: tally
        for name, tally in zip(found.names, _change_tallies(found) if labelled else _share_tallies(found), strict=True)
        if tally.counts
    }
    ends = {name: confidence_sequence(tally, delta / len(found.names)) for name, tally in tallies.items()}
    harmed = max(ends, key=lambda name: (ends[name].lower, tallies[name].mean))
    unknown = max(ends, key=lambda name: ends[name].upper)
    value = max(tally.mean for tally in tallies.values())
    return WorstSlice(value, ends[harmed].lower, ends[unknown].upper, harmed, unknown, tallies[unknown])


def _share_tallies(found: Slices) -> Iterable[Tally]:
    for n, changed in zip(found.rows, found.changed, strict=True):
        yield _counted(0.0, {0.0: n - changed, 1.0: changed})


def _change_tallies(found: Slices) -> Iterable[Tally]:
    for n, worse, better in zip(found.rows, found.worse, found.better, strict=True):
        yield _counted(-1.0, {-1.0: better, 0.0: n - worse - better, 1.0: worse})


def _counted(low: float, counts: dict[float, int]) -> Tally:
    some = {value: float(count) for value, count in counts.items() if count}
    return Tally(low, 1.0, tuple(some), tuple(some.values()))
