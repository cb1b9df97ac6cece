"""Confidence that survives peeking: a bettor against the hypothesis "the mean is m" (Waudby-Smith and Ramdas, 2024).

Of values x in ``[low, high]`` the factor ``1 + c e`` with the edge

    e = (m - x) / (high - m) >= -1    against means of at least m (side "below": the mean lies below m),
    e = (x - m) / (m - low)  >= -1    against means of at most m (side "above"),

and a bet ``0 < c < 1`` is not negative, and its expectation is at most 1 if the hypothesis is true, whatever came
before. So the product over rows is a non-negative supermartingale, and so is a weighted mean of the products over a
fixed set of bets: by Ville's inequality this wealth ever reaches ``1 / delta`` with probability at most delta. One may
look after every row.

Three facts make it a tool:

- e increases with m on the side "below" and decreases on the side "above" (``de/dm = (high - x) / (high - m)^2``, and
  ``-(x - low) / (m - low)^2``), for every bet, and so does the wealth: the means that are not refuted are an interval.
- The bets do not depend on the data, so the wealth after n rows is a function of the values without their order.
- ``log(1 + c e)`` is concave in x. A value between two nodes, replaced by shares of the two that keep its mean, lowers
  the wealth: what holds for the shares holds for the values. So a `Tally` of bounded size decides about every limit, at
  every level, and tallies add.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..checks import check_level
from .intervals import Interval, check_size
from .metrics import Array, Values, vectors

Side = Literal["below", "above"]
"""What the wealth speaks for: that the mean lies below the number in question, or above it."""

BETS: Array = 1 / (1 + np.exp(-0.7 * np.arange(-12, 7)))
"""Fractions c of the largest bet that cannot go broke, even in their logits: J = 19 from 2.2e-4 to 0.985."""


def _beta(a: float, b: float) -> Array:
    """Weights of the bets under a Beta(a, b) prior: its density times ``dc = c (1 - c) dlogit(c)``."""
    mass = BETS**a * (1 - BETS) ** b
    weights: Array = mass / mass.sum()
    return weights


PRIOR: Array = 0.6 * _beta(1.3, 1) + 0.36 * _beta(2.5, 9) + 0.04 / len(BETS)
"""Their weights: the first part for gaps that some ten labels tell, the second for those of some hundreds, the last for
small gaps and many rows. Labels until a decision are at most 1.5 times those of the best single bet in hindsight where
that is at least 0.15."""

MOST_EXACT = 128
"""Different values that a tally keeps as they are."""

MOST_ROWS = 10**12
"""Where a forecast ends."""


class Tally(NamedTuple):
    """How often which value came up among rows in ``[low, high]``: all that any wealth needs, in plain numbers.

    Exact up to `MOST_EXACT` different values; beyond, values are shared out between the fixed `nodes` of the range, at
    most 145, which is on the safe side (see above) and adds about 2% of the second moment to the variance.
    """

    low: float
    high: float
    values: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    exact: bool = True

    @property
    def n(self) -> int:
        """Rows."""
        return round(math.fsum(self.counts))

    @property
    def mean(self) -> float:
        """Of the rows; NaN without any."""
        return self.moment(1) if self.counts else math.nan

    def moment(self, power: int, centre: float = 0.0) -> float:
        """Mean of ``(x - centre)^power``."""
        sums = (c * (x - centre) ** power for x, c in zip(self.values, self.counts, strict=True))
        return math.fsum(sums) / math.fsum(self.counts)


def tally(values: Values, low: float, high: float) -> Tally:
    """The tally of values ``[n]`` in ``[low, high]``; n may be 0.

    Raises:
        ValueError: for values that are not finite, or beyond the range by more than rounding.

    >>> tally([0, 1, 0, 0], 0, 1)
    Tally(low=0, high=1, values=(0.0, 1.0), counts=(3.0, 1.0), exact=True)
    """
    check_range(low, high)
    (x,) = vectors({"values": values})
    slack = 1e-5 * max(1.0, abs(low), abs(high))
    if len(x) and (x.min() < low - slack or x.max() > high + slack):
        raise ValueError(f"values lie in [{x.min():g}, {x.max():g}], outside [{low:g}, {high:g}]: widen the range")
    return _tallied(np.clip(x, low, high), np.ones(len(x)), low, high, exact=True)


def merged(first: Tally, second: Tally) -> Tally:
    """The tally of both sets of rows: ``merged(tally(x), tally(y))`` is ``tally(x and y)``."""
    if first[:2] != second[:2]:
        raise ValueError(
            f"tallies of [{first.low:g}, {first.high:g}] and [{second.low:g}, {second.high:g}] do not add: "
            "use one range for all rows"
        )
    values, counts = np.array(first.values + second.values), np.array(first.counts + second.counts)
    return _tallied(values, counts, first.low, first.high, exact=first.exact and second.exact)


def tally_of_record(record: Mapping[str, Any]) -> Tally:
    """The tally whose ``_asdict()`` went through JSON.

    Raises:
        ValueError: for a record that no tally could have made.
    """
    try:
        found = Tally(
            float(record["low"]),
            float(record["high"]),
            tuple(map(float, record["values"])),
            tuple(map(float, record["counts"])),
            bool(record["exact"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the record holds no tally ({error!r}): make it again with this version") from error
    check_range(found.low, found.high)
    x, counts = np.array(found.values), np.array(found.counts)
    if len(x) != len(counts) or not ((counts > 0) & np.isfinite(counts)).all():
        raise ValueError("the record's tally lacks a positive count for a value: make it again with this version")
    if not ((found.low <= x) & (x <= found.high)).all() or not (np.diff(x) > 0).all():
        raise ValueError("the record's tally holds values out of range or order: make it again with this version")
    return found


def nodes(low: float, high: float) -> Array:
    """Where a tally may keep values: 65 evenly, and ``+-2^(-k/2)`` of the range's width around 0, ``k < 40``."""
    near = (high - low) * 2.0 ** (-np.arange(40) / 2)
    around = np.concatenate([near, -near, [0.0]])
    return np.unique(np.concatenate([np.linspace(low, high, 65), around[(low < around) & (around < high)]]))


def _tallied(values: Array, counts: Array, low: float, high: float, *, exact: bool) -> Tally:
    distinct, group = np.unique(values, return_inverse=True)
    exact = exact and len(distinct) <= MOST_EXACT
    if exact:
        kept, mass = distinct, np.bincount(group, counts, minlength=len(distinct))
    else:
        kept = nodes(low, high)
        left = np.clip(np.searchsorted(kept, values, side="right") - 1, 0, len(kept) - 2)
        share = (values - kept[left]) / (kept[left + 1] - kept[left])
        mass = np.bincount(left, counts * (1 - share), minlength=len(kept))
        mass += np.bincount(left + 1, counts * share, minlength=len(kept))
    some = mass > 0
    return Tally(low, high, tuple(kept[some].tolist()), tuple(mass[some].tolist()), exact)


def edges(values: ArrayLike, means: ArrayLike, end: float) -> Array:
    """``(m - x) / (end - m)``: with ``end = high`` on the side "below", with ``end = low`` on the side "above".

    Where m is the end itself, any other value refutes it (infinite), and the end says nothing (0).
    """
    x, m = np.asarray(values, dtype=np.float64), np.asarray(means, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Array = np.where(m == end, np.where(x == end, 0.0, np.inf), (m - x) / (end - m))
    return found


def wealth_path(gains: Array, products: Array | None = None) -> tuple[Array, Array]:
    """Log-wealth after each of t rows with these edges, ``[..., t]``, and the log-products of all bets ``[..., J]``.

    ``products`` of earlier rows continue the same process.
    """
    start = np.zeros((*gains.shape[:-1], len(BETS))) if products is None else products
    sums = start[..., None, :] + np.cumsum(np.log1p(gains[..., None] * BETS), axis=-2)
    return mixture(sums), sums[..., -1, :] if gains.shape[-1] else start


def mixture(products: Array) -> Array:
    """Log-wealth ``log sum_j p_j exp(products_j)`` over the bets, ``[...]`` from ``[..., J]``."""
    most = products.max(axis=-1)
    shift = np.where(np.isfinite(most), most, 0.0)
    found: Array = shift + np.log(np.exp(products - shift[..., None]) @ PRIOR)
    return found


def log_wealth(rows: Tally, mean: float, side: Side) -> float:
    """Log-wealth of a bettor that the mean of independent rows lies below ``mean``, or above it.

    At ``log(1 / delta)`` or more it does, but for an error of probability at most delta over all n together.

    >>> round(log_wealth(tally([0] * 100, 0, 1), 0.1, "below"), 4)
    7.9323
    """
    return float(mixture(_log_products(rows, mean, side)))


def _log_products(rows: Tally, mean: float, side: Side) -> Array:
    """``sum_i log(1 + c_j e_i)`` of every bet ``[J]``."""
    end = _end(rows.low, rows.high, side)
    if not rows.low <= mean <= rows.high:
        raise ValueError(f"mean must lie in [{rows.low:g}, {rows.high:g}], got {mean:g}")
    logs: Array = np.log1p(BETS[:, None] * edges(rows.values, mean, end))
    return logs @ np.array(rows.counts)


def confidence_sequence(rows: Tally, delta: float, side: Side | None = None) -> Interval:
    """All means that the rows so far do not refute: with probability ``1 - delta`` the true one is among them at all n.

    Without a side each end has half of delta; with one, "below" gives an upper end alone and "above" a lower one. The
    ends are refuted numbers at a float's distance from numbers that are not, or ends of the range.

    >>> [round(x, 4) for x in confidence_sequence(tally([0, 1] * 200, 0, 1), 0.05)]
    [0.4178, 0.5822, 0.95]
    """
    check_level(delta, "delta")
    level = delta if side else delta / 2
    lower = rows.low if side == "below" else _refuted(rows, "above", level)
    upper = rows.high if side == "above" else _refuted(rows, "below", level)
    return Interval(lower, upper, 1 - delta)


def _refuted(rows: Tally, side: Side, delta: float) -> float:
    """The number nearest to the rows' mean that is refuted on this side; the end of the range where there is none.

    At the rows' own mean no bet gains, by concavity: the search begins there.
    """
    end = _end(rows.low, rows.high, side)
    if not rows.values or log_wealth(rows, end, side) < math.log(1 / delta):
        return end
    return bisect(lambda m: log_wealth(rows, m, side) >= math.log(1 / delta), rows.mean, end)


def bisect(holds: Callable[[float], bool], false_at: float, true_at: float, tolerance: float = 0.0) -> float:
    """A number at which a monotone property holds, within a tolerance of where it does not; ``true_at`` has it."""
    while abs(true_at - false_at) > tolerance and (middle := (false_at + true_at) / 2) not in (false_at, true_at):
        false_at, true_at = (false_at, middle) if holds(middle) else (middle, true_at)
    return true_at


def sequence_ranks(n: int, q: float, delta: float) -> tuple[int, int]:
    """Ranks ``l <= u`` with ``x_(l) <= Quantile_q <= x_(u)`` for all n at once with probability at least ``1 - delta``.

    Rank 0 stands for the least possible value, ``n + 1`` for none, as in `quantile_ranks`, which holds at one n. Let v
    be the quantile. At most a share q of values lies below v. If ``x_(u) < v``, at least u of n do, so a bettor that
    more than q do has at least what u of n give, which is ``2 / delta``. At least a share q lies at or below v. If
    ``x_(l) > v``, at most ``l - 1`` of n do, and a bettor that fewer than q do has at least what ``l - 1`` of n give.

    >>> sequence_ranks(1000, 0.99, 0.05)
    (975, 999)
    """
    check_size(n, "n")
    check_level(q, "q")
    enough = math.log(2 / check_level(delta, "delta"))

    def wealth(k: int, side: Side) -> float:
        shares = Tally(0.0, 1.0, (0.0, 1.0), (float(n - k), float(k)))
        return log_wealth(shares, q, side)

    upper = first_rank(lambda k: wealth(k, "above") >= enough, n + 1)
    lower = n - first_rank(lambda k: wealth(n - k, "below") >= enough, n + 1)
    return lower + 1 if lower >= 0 else 0, upper


def first_rank(holds: Callable[[int], bool], end: int) -> int:
    """The least of ``0, ..., end`` at which a monotone property holds; ``end`` counts as having it."""
    low, high = -1, end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class Forecast(NamedTuple):
    """How many more rows would decide, if they are like those so far."""

    rows: int
    at_least: bool
    """The mean so far is within its standard error of the limit, or there is nothing to go by: expect more."""


def forecast(rows: Tally, limit: float, delta: float) -> Forecast:
    """Rows to go until `confidence_sequence` at delta lies on one side of the limit.

    Future rows repeat the shares of the past ones. Where their mean is nearer to the limit than one standard error
    (or than one row could move it), it is taken to be that far off: on the limit itself no number of rows would do.

    >>> forecast(tally([0] * 50, 0, 1), 0.1, 0.05)
    Forecast(rows=4, at_least=False)
    """
    check_level(delta, "delta")
    if math.isnan(limit):
        raise ValueError("limit must be a number, got NaN")
    enough, low, high = math.log(2 / delta), rows.low, rows.high
    if limit >= high or limit < low:
        return Forecast(0, False)
    sides: tuple[Side, Side] = ("below", "above")
    now = {side: _log_products(rows, limit, side) for side in sides}
    if max(float(mixture(products)) for products in now.values()) >= enough:
        return Forecast(0, False)
    future, moved = _off_the_limit(rows, limit)
    growth = {side: _log_products(future, limit, side) / math.fsum(future.counts) for side in sides}

    def decided(more: int) -> bool:
        return any(float(mixture(now[side] + more * growth[side])) >= enough for side in sides)

    reach = 1
    while reach < MOST_ROWS and not decided(reach):
        reach *= 2
    if not decided(reach):
        return Forecast(MOST_ROWS, True)
    return Forecast(1 + first_rank(lambda more: decided(more + 1), reach - 1), moved)


def _off_the_limit(rows: Tally, limit: float) -> tuple[Tally, bool]:
    """The rows with so much of them moved to one end that their mean is a standard error off; whether it was nearer."""
    low, high = rows.low, rows.high
    end = low if limit > low and not (rows.counts and rows.mean > limit) else high
    if not rows.counts:
        return Tally(low, high, (end,), (1.0,)), True
    gap, n = abs(rows.mean - limit), math.fsum(rows.counts)
    least = min(max(math.sqrt(rows.moment(2, rows.mean) / n), (high - low) / n), abs(end - limit))
    if gap >= least:
        return rows, False
    share = (least - gap) / (abs(end - limit) - gap)
    moved = Tally(low, high, rows.values, tuple((1 - share) * c for c in rows.counts))
    return merged(moved._replace(exact=rows.exact), Tally(low, high, (end,), (share * n,))), True


def total_of(mean: float, n: int) -> Fraction:
    """``mean n`` for a mean as it is written, as ``k / n`` or as a decimal: 0.29 of 100 is 29, which floats miss.

    >>> total_of(0.29, 100), 0.29 * 100
    (Fraction(29, 1), 28.999999999999996)
    """
    whole = round(mean * n)
    return Fraction(whole) if whole / n == mean else Fraction(repr(float(mean))) * n


def pool_edges(
    total: ArrayLike,
    parts: Array,
    weights: Array,
    left: Array,
    low: float,
    high: float,
    side: Side,
    *,
    slack: float = 0.0,
) -> Array:
    """Edges of draws without replacement from a finite pool, against a sum of at least or at most ``total``.

    Row i is drawn with probability ``w_i / W``, W the weights of the rows not drawn before. Its part ``d_i`` of the sum
    is known after the draw, ``x = d_i / w_i`` lies in ``[low, high]`` before. Given the past, x has the mean of what is
    left of the sum, by weight: ``m_t = (total - sum_{s<t} d_s) / W_t`` is the hypothesised one, and each step is a bet
    against it. Equal weights are plain sampling without replacement.

    Where even the largest parts left keep the sum at or below ``total`` (``m_t >= high``), it lies there: infinite on
    the side "below". On the side "above" only ``m_t < low`` is certain: at ``m_t = low`` the sum may equal the total.

    Args:
        total: the sum, a number or ``[...]``; keep it exact with `total_of`.
        parts, weights: of the rows in the order drawn, ``[..., t]``; weights positive.
        left: ``W_t``, the weights not drawn before each, ``[..., t]``.
        slack: by how much rounding may have moved the sums; within it a sum equals the total.

    Returns:
        Edges ``[..., t]`` for `wealth_path`.
    """
    end = _end(low, high, side)
    before = np.cumsum(parts, axis=-1) - parts
    rest = np.asarray(total, dtype=np.float64)[..., None] - before
    if side == "below":
        certain = rest >= high * left - slack
        return np.where(certain, np.inf, edges(parts / weights, np.where(certain, low, rest / left), end))
    above = rest - low * left
    found = edges(parts / weights, np.where(above > slack, rest / left, high), end)
    return np.where(above < -slack, np.inf, np.where(above > slack, found, 0.0))


def _end(low: float, high: float, side: Side) -> float:
    if side not in ("below", "above"):
        raise ValueError(f"side must be 'below' or 'above', got {side!r}")
    return high if side == "below" else low


def check_range(low: float, high: float) -> None:
    """A bounded range with something inside."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high and math.isfinite(high - low)):
        raise ValueError(f"[low, high] = [{low:g}, {high:g}] must be a finite range: bound the loss")
