"""Whether rows were held out, judged by the rows alone.

Rows that coincide are one value. Where held-out rows are drawn as the training rows were, every choice of m of the N
pooled rows is as likely as any other to be the held-out ones, whatever the values are: so in a table in which many
rows coincide, many values are in both parts, and that is no fault. Given the pool, a value with c rows is

* wholly held out with probability ``C(N - c, m - c) / C(N, m)``, and wholly among the training rows likewise;
* present among the held-out rows with probability ``1 - C(N - c, m) / C(N, m)``.

Copies of training rows leave too few values of two or more rows whole, on either side, and repetitions leave too few
values present. Each count is a sum of
indicators that increase in disjoint sets of memberships, and memberships of a random choice are negatively associated
(Joag-Dev and Proschan, 1983), so Chernoff's bound for independent indicators holds for it at any size:

    P(count <= s) <= min_t exp(t s) prod_v (1 - p_v + p_v exp(-t)).
"""

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln
from torch import Tensor

Keys = np.ndarray[Any, np.dtype[np.int64]]
"""``[n]``: equal for rows that coincide."""

LEVEL = 1e-4
"""How seldom an honest split may be doubted, by all three counts together."""


class Overlap(NamedTuple):
    """How training and held-out rows share their values."""

    held_out: int
    shared: int
    """Held-out rows whose value a training row has too."""
    expected: float
    """How many that are on average over all choices of as many rows."""
    distinct: int
    """Values among the held-out rows."""
    p_shared: float
    """At most this often would a random choice leave as few values of several rows whole on one side."""
    p_distinct: float
    """At most this often would it have as few values."""
    rates: tuple[float, float]
    """Share of pairs that coincide, among the training rows and among the held-out ones."""


def row_keys(x: Tensor) -> Keys:
    """Rows ``[n, ...]`` as hashes of their float32 values, where 0 and -0 are the same."""
    rows = np.ascontiguousarray(x.detach().cpu().float().add(0.0).reshape(len(x), -1).numpy())
    data, width = rows.data.cast("B"), rows.shape[1] * rows.itemsize
    return _hashes(data[i * width : (i + 1) * width] for i in range(len(rows)))


def id_keys(ids: np.ndarray[Any, Any]) -> Keys:
    """Identities ``[n]``, numbers or text, as hashes; 7 and 7.0 are the same.

    >>> bool((id_keys(np.array([7, 8])) == id_keys(np.array([7.0, 8.0]))).all())
    True
    """
    if ids.dtype.kind == "f" and np.isfinite(ids).all() and (ids == np.round(ids)).all():
        ids = np.array([int(value) for value in ids], dtype=object)
    return _hashes(str(value).encode("utf-8", "surrogatepass") for value in ids.tolist())


def _hashes(rows: Iterable[bytes | memoryview]) -> Keys:
    digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, dtype=np.int64)


def overlap(train: Keys, held_out: Keys) -> Overlap:
    """Counts of shared and repeated rows, and how seldom a random choice of held-out rows has as bad ones."""
    n, m = len(train), len(held_out)
    _, value, sizes = np.unique(np.concatenate([train, held_out]), return_inverse=True, return_counts=True)
    of_train = np.bincount(value[:n], minlength=len(sizes))
    of_held_out = sizes - of_train
    c, times = np.unique(sizes, return_counts=True)
    held_apart, trained_apart = _all_in(c, m, n + m), _all_in(c, n, n + m)
    several = times * (c > 1)
    tails = (
        lower_tail(int(((of_train == 0) & (sizes > 1)).sum()), held_apart, several),
        lower_tail(int(((of_held_out == 0) & (sizes > 1)).sum()), trained_apart, several),
    )
    return Overlap(
        held_out=m,
        shared=int(of_held_out[of_train > 0].sum()),
        expected=m - float((c * times * held_apart).sum()),
        distinct=int((of_held_out > 0).sum()),
        p_shared=min(1.0, 2 * min(tails)),
        p_distinct=lower_tail(int((of_held_out > 0).sum()), 1 - trained_apart, times),
        rates=(_coinciding(of_train), _coinciding(of_held_out)),
    )


def fault(train: Keys, held_out: Keys, *, certain: bool = False) -> str:
    """Why rows do not count as held out, with the counts; empty where they do.

    Repetitions are one only where the held-out rows coincide at least twice as often as the training rows: files that
    differ in other ways have other values too.

    Args:
        certain: the keys are identities: none may be there twice.
    """
    found = overlap(train, held_out)
    m = found.held_out
    if certain:
        if found.shared:
            return f"{found.shared} of the {m} held-out rows have the id of a training row: they were not held out"
        if found.distinct < m:
            return f"{m - found.distinct} of the {m} held-out rows repeat an id: each row may count once"
        return ""
    if len(train) == m and np.array_equal(train, held_out) and found.distinct > 1:
        return f"all {m} held-out rows are the training rows, in their order: they were not held out"
    remedy = "--id COLUMN tells rows apart that look alike"
    if found.p_shared <= LEVEL * 2 / 3:
        return (
            f"{found.shared} of the {m} held-out rows are among the training rows, and a random split of all these "
            f"rows would have about {found.expected:.0f}: they were not held out ({remedy})"
        )
    if found.p_distinct <= LEVEL / 3 and found.rates[1] > 2 * found.rates[0]:
        return (
            f"the {m} held-out rows are {found.distinct} rows repeated, more often than any random split of all these "
            f"rows would have it: give each row once ({remedy})"
        )
    return ""


def lower_tail(count: int, p: np.ndarray[Any, Any], times: np.ndarray[Any, Any]) -> float:
    """Chernoff's bound on ``P(S <= count)``, S the sum of ``times[i]`` indicators with probability ``p[i]`` for all i.

    >>> lower_tail(0, np.array([0.5]), np.array([10])) == 0.5**10
    True
    """
    if count >= float((p * times).sum()):
        return 1.0
    if count == 0:
        with np.errstate(divide="ignore"):
            return float(np.exp((times * np.log1p(-p)).sum()))
    if count < int(times[p >= 1].sum()):
        return 0.0

    def slope(t: float) -> float:
        odds = p * np.exp(-t)
        return count - float((times * odds / (1 - p + odds)).sum())

    end = 1.0
    while slope(end) < 0 and end < 512:
        end *= 2
    t = brentq(slope, 0.0, end) if slope(end) > 0 else end
    return float(np.exp(min(0.0, t * count + float((times * np.log(1 - p + p * np.exp(-t))).sum()))))


def _all_in(c: np.ndarray[Any, Any], part: int, pool: int) -> np.ndarray[Any, Any]:
    """``C(pool - c, part - c) / C(pool, part)``: all ``c`` rows are among ``part`` of them."""
    c = np.minimum(c, part + 1)  # more do not fit
    log = gammaln(part + 1) - gammaln(np.maximum(part - c, 0) + 1) - gammaln(pool + 1) + gammaln(pool - c + 1)
    return np.where(c > part, 0.0, np.exp(np.minimum(log, 0.0)))


def _coinciding(counts: np.ndarray[Any, Any]) -> float:
    rows = float(counts.sum())
    return float((counts * (counts - 1.0)).sum()) / (rows * (rows - 1)) if rows > 1 else 0.0
