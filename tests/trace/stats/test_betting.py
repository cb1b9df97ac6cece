"""Betting: expectations by enumeration, closed forms, promises with a look after every row, tallies, forecasts."""

import json
import math
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom

from trace.io.writing import strict_json
from trace.stats.betting import (
    BETS,
    MOST_EXACT,
    MOST_ROWS,
    PRIOR,
    Forecast,
    Tally,
    confidence_sequence,
    edges,
    forecast,
    log_wealth,
    merged,
    nodes,
    pool_edges,
    sequence_ranks,
    tally,
    tally_of_record,
    total_of,
    wealth_path,
)
from trace.stats.intervals import bernstein_radius, proportion_interval, quantile_ranks

SIDES = ("below", "above")
ALPHA = 0.025
ENOUGH = math.log(1 / ALPHA)
PATHS = 10_000


def rng(seed=0):
    return np.random.default_rng(seed)


def as_rare_as_promised(failures, alpha=ALPHA):
    """Not refuted at 1% by a one-sided binomial test."""
    return binom.sf(int(failures.sum()) - 1, len(failures), alpha) >= 0.01


def ever_reached(draw, mean, low, high, side, paths=PATHS):
    """Which paths of ``draw(paths) [paths, t]`` ever have a wealth of 1 / alpha, looked at after every row."""
    end = high if side == "below" else low
    blocks = [wealth_path(edges(draw(500), mean, end))[0].max(axis=1) for _ in range(paths // 500)]
    return np.concatenate(blocks) >= ENOUGH


def rows_of(values, low=0.0, high=1.0):
    return st.lists(values, min_size=1, max_size=30).map(lambda x: (x, low, high))


SAMPLES = st.one_of(
    rows_of(st.sampled_from([0.0, 1.0])),
    rows_of(st.sampled_from([-1.0, 0.0, 1.0]), -1.0),
    rows_of(st.floats(-3.0, 22.0), -3.0, 22.0),
)


# --- independent rows ---


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("p", [0.02, 0.3, 0.9])
def test_at_the_boundary_the_expected_wealth_is_one(p, side):
    """Over all 2^10 outcomes of 10 rows."""
    rows = np.array(list(product([0.0, 1.0], repeat=10)))
    chance = np.prod(np.where(rows == 1, p, 1 - p), axis=1)
    wealth = [math.exp(log_wealth(tally(row, 0, 1), p, side)) for row in rows]
    assert chance @ wealth == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    ("side", "m", "k", "n"), [("below", 0.2, 3, 40), ("above", 0.05, 9, 60), ("below", 0.99, 1, 5)]
)
def test_a_single_bet_on_shares_has_a_closed_form(side, m, k, n):
    """``(1 - c)^k (1 + c m / (1 - m))^(n - k)``, and its mirror image."""
    yes, no = ((1 - BETS), 1 + BETS * m / (1 - m)) if side == "below" else (1 + BETS * (1 - m) / m, 1 - BETS)
    expected = math.log(PRIOR @ (yes**k * no ** (n - k)))
    assert log_wealth(tally([1] * k + [0] * (n - k), 0, 1), m, side) == pytest.approx(expected, rel=1e-12)
    assert PRIOR.sum() == pytest.approx(1)


@given(SAMPLES, st.floats(0.01, 0.99))
def test_order_and_counting_do_not_matter(sample, share):
    x, low, high = sample
    m = low + share * (high - low)
    for side in SIDES:
        end = high if side == "below" else low
        path, products = wealth_path(edges(np.array(x), m, end))
        backwards, _ = wealth_path(edges(np.array(x[::-1]), m, end))
        assert log_wealth(tally(x, low, high), m, side) == pytest.approx(path[-1], rel=1e-9, abs=1e-9)
        assert backwards[-1] == pytest.approx(path[-1], rel=1e-9, abs=1e-9)
        half = len(x) // 2
        first, kept = wealth_path(edges(np.array(x[:half]), m, end))
        second, last = wealth_path(edges(np.array(x[half:]), m, end), kept)
        np.testing.assert_allclose(np.concatenate([first, second]), path, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(last, products, rtol=1e-9, atol=1e-9)


@given(SAMPLES, st.floats(0, 1), st.floats(0, 1))
def test_wealth_is_monotone_in_the_mean_and_gains_nothing_at_the_rows_own(sample, a, b):
    x, low, high = sample
    rows = tally(x, low, high)
    first, second = (low + share * (high - low) for share in sorted((a, b)))
    assert log_wealth(rows, first, "below") <= log_wealth(rows, second, "below") + 1e-9
    assert log_wealth(rows, first, "above") >= log_wealth(rows, second, "above") - 1e-9
    own = min(max(rows.mean, low), high)
    assert all(log_wealth(rows, own, side) <= 1e-9 for side in SIDES if own not in (low, high))


@given(SAMPLES, st.sampled_from([0.2, 0.05, 1e-4]))
def test_the_sequence_is_what_the_wealth_does_not_refute(sample, delta):
    x, low, high = sample
    rows = tally(x, low, high)
    lower, upper, level = confidence_sequence(rows, delta)
    assert (low <= lower <= upper <= high, level) == (True, 1 - delta)
    for m, side, beyond in ((upper, "below", low), (lower, "above", high)):
        if m not in (low, high):
            assert log_wealth(rows, m, side) >= math.log(2 / delta)
            assert log_wealth(rows, math.nextafter(m, beyond), side) <= math.log(2 / delta) + 1e-9
    assert confidence_sequence(rows, delta / 2, "below") == (low, upper, 1 - delta / 2)
    assert confidence_sequence(rows, delta / 2, "above") == (lower, high, 1 - delta / 2)


def test_the_upper_end_solves_the_equation():
    rows = tally([1] * 7 + [0] * 93, 0, 1)
    root = brentq(lambda m: log_wealth(rows, m, "below") - math.log(40), 0.071, 0.9, xtol=1e-14)
    assert confidence_sequence(rows, 0.05).upper == pytest.approx(root, abs=1e-12)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    ("name", "draw", "mean", "low", "high"),
    [
        ("rare", lambda r, n: r.random((n, 250)) < 0.03, 0.03, 0, 1),
        ("even", lambda r, n: r.random((n, 250)) < 0.5, 0.5, 0, 1),
        ("change", lambda r, n: r.choice([-1.0, 0.0, 1.0], (n, 250), p=[0.04, 0.9, 0.06]), 0.02, -1, 1),
        ("skewed", lambda r, n: 22 * r.beta(0.3, 2.7, (n, 250)), 2.2, 0, 22),
    ],
)
def test_peeking_after_every_row_keeps_the_promise(name, draw, mean, low, high, side):
    """At the boundary, and just beyond it, where failures are rarer."""
    r = rng(1)
    at = ever_reached(lambda n: draw(r, n), mean, low, high, side)
    assert as_rare_as_promised(at), f"{at.mean():.4f}"
    beyond = mean + (-0.02 if side == "below" else 0.02) * (high - low)
    assert as_rare_as_promised(ever_reached(lambda n: draw(r, n), beyond, low, high, side))


@pytest.mark.parametrize("p", [0.0, 0.02, 0.3])
def test_the_width_is_sane(p):
    """Wider than the exact interval at a fixed n, of course; shorter than Bernstein's at this size."""
    n = 1000
    rows = tally([1] * round(p * n) + [0] * (n - round(p * n)), 0, 1)
    found, exact = confidence_sequence(rows, 0.05), proportion_interval(round(p * n), n, 0.05)
    share = round(p * n) / n
    radius = bernstein_radius(n, 0.05, share * (1 - share) * n / (n - 1), 1.0)
    bernstein = min(1.0, share + radius) - max(0.0, share - radius)
    assert exact.upper - exact.lower < found.upper - found.lower < bernstein
    assert found.upper - found.lower < 2.1 * (exact.upper - exact.lower)


@pytest.mark.parametrize(
    ("disagreement", "change", "limit", "length"),
    [
        (0.057, 0.024, 0.05, 2000),
        (0.047, -0.006, 0.05, 500),
        (0.093, 0.057, 0.02, 1200),
        (0.054, 0.0, 0.02, 2500),
        (0.20, 0.02, 0.05, 3500),
    ],
)
def test_at_most_half_as_much_again_as_the_best_bet_in_hindsight(disagreement, change, limit, length):
    """Median labels, of the rows where two models differ, until a change of error is told from a limit."""
    ups, downs = (disagreement + change) / 2, (disagreement - change) / 2
    u = rng(2).random((4_000_000 // length // 40 * 40, length))
    values = (u < ups).astype(float) - (u > 1 - downs)
    gains = edges(values, limit, 1.0 if change < limit else -1.0)
    labels = np.cumsum(values != 0, axis=1)

    def median_labels(log_wealths):
        reached = log_wealths >= ENOUGH
        found = np.where(reached, labels, labels.max() + 1).min(axis=1)
        return np.median(found)

    ours = median_labels(np.concatenate([wealth_path(block)[0] for block in np.split(gains, 40)]))
    singles = np.geomspace(0.3, 3, 15) * min(0.33, abs(change - limit) / disagreement)
    best = min(median_labels(np.cumsum(np.log1p(c * gains), axis=1)) for c in singles)
    assert best <= ours <= 1.5 * best


# --- tallies ---


def test_a_tally_is_exact_for_few_values_and_safe_for_many():
    x = 22 * rng(3).beta(0.4, 6, 20_000)
    few, many = np.round(x), x
    assert tally(few, 0, 22).exact
    assert not tally(many, 0, 22).exact
    assert len(tally(many, 0, 22).values) <= len(nodes(0, 22)) <= 145
    assert len(nodes(-22, 22)) <= 145
    rows = tally(many, 0, 22)
    assert (rows.n, rows.mean) == (20_000, pytest.approx(x.mean(), rel=1e-12))
    for m in (1.0, 1.3, 1.45, 1.6, 5.0):
        for side in SIDES:
            sums = np.log1p(BETS[:, None] * edges(x, m, 22 if side == "below" else 0)).sum(axis=1)
            exact = np.logaddexp.reduce(np.log(PRIOR) + sums)
            assert log_wealth(rows, m, side) <= exact + 1e-9
    tight = confidence_sequence(rows, 0.05)
    loose = confidence_sequence(tally(few, 0, 22), 0.05)
    assert tight.upper - tight.lower < 1.05 * (loose.upper - loose.lower)


@pytest.mark.parametrize("sizes", [(40, 30), (100, 100), (40, 500), (500, 500), (0, 20)])
def test_tallies_add(sizes):
    """Exact with exact, exact with shared out, and two exact ones that are too many together."""
    first, second = (rng(seed).normal(size=n).clip(-3, 3) for seed, n in enumerate(sizes))
    together = tally(np.concatenate([first, second]), -3, 3)
    added = merged(tally(first, -3, 3), tally(second, -3, 3))
    assert added.exact == together.exact == (sum(sizes) <= MOST_EXACT)
    np.testing.assert_allclose(added.values, together.values)
    np.testing.assert_allclose(added.counts, together.counts, rtol=1e-9, atol=1e-12)
    assert merged(tally(second, -3, 3), tally(first, -3, 3)).values == added.values


@pytest.mark.parametrize("n", [0, 5, 1000])
def test_a_tally_survives_a_record(n):
    rows = tally(rng().random(n), 0, 1)
    assert tally_of_record(json.loads(strict_json(rows._asdict()))) == rows
    assert len(strict_json(rows._asdict(), indent=None)) < 6000


def test_float32_and_sequences_are_values_too():
    assert tally(torch.tensor([0.25, 1.0]), 0, 1) == tally([0.25, 1], 0, 1) == tally(np.float32([1, 0.25]), 0, 1)
    assert tally([1 + 1e-7], 0, 1).values == (1.0,)


def test_a_million_rows_are_as_stable_as_a_few():
    x = np.zeros(1_000_000)
    x[:3] = 1
    rows = tally(x, 0, 1)
    assert log_wealth(rows, 1 - 1e-12, "below") > 2e7
    assert log_wealth(rows, 0.5, "above") < -1e2
    found = confidence_sequence(rows, 0.05)
    assert 0 < found.lower < 3e-6 < found.upper < 3e-5
    continuous = confidence_sequence(tally(rng().random(1_000_000), 0, 1), 0.05)
    assert 0.4985 < continuous.lower < 0.5 < continuous.upper < 0.5015
    wide = confidence_sequence(tally([-1e30, 1e30] * 1000, -1e30, 1e30), 0.05)
    assert -1e29 < wide.lower < 0 < wide.upper < 1e29


def test_ends_of_the_range():
    ones = tally([1] * 1000, 0, 1)
    assert (log_wealth(ones, 1, "below"), log_wealth(ones, 0, "above")) == (pytest.approx(0), math.inf)
    assert confidence_sequence(ones, 0.05).upper == 1
    assert confidence_sequence(ones, 0.05).lower > 0.99
    assert log_wealth(tally([0.5], 0, 1), 1, "below") == math.inf
    assert confidence_sequence(tally([], 0, 1), 0.05) == (0, 1, 0.95)
    assert log_wealth(tally([], 0, 1), 0.5, "below") == pytest.approx(0)


# --- quantiles ---


@pytest.mark.parametrize("q", [0.5, 0.95])
def test_quantile_ranks_hold_at_every_n_at_once(q):
    """Of ties too: a quantile of rounded values. Ranks at every n, paths against the true quantile."""
    length = 400
    ranks = np.array([sequence_ranks(n, q, 2 * ALPHA) for n in range(1, length + 1)])
    assert (ranks[:, 0] <= q * np.arange(1, length + 1) + 1).all()
    failures = {"low": [], "high": [], "ties": []}
    r = rng(5)
    for _ in range(PATHS // 500):
        u = r.random((500, length))
        at_most = np.cumsum(u <= q, axis=1)
        failures["high"].append((at_most >= ranks[:, 1]).any(axis=1))
        failures["low"].append((at_most < ranks[:, 0]).any(axis=1))
        ties = np.ceil(5 * u)
        v = math.ceil(5 * q)
        wrong = (np.cumsum(ties < v, axis=1) >= ranks[:, 1]) | (np.cumsum(ties <= v, axis=1) < ranks[:, 0])
        failures["ties"].append(wrong.any(axis=1))
    assert as_rare_as_promised(np.concatenate(failures["high"]))
    assert as_rare_as_promised(np.concatenate(failures["low"]))
    assert as_rare_as_promised(np.concatenate(failures["ties"]), 2 * ALPHA)


def test_quantile_ranks_by_brute_force():
    for n, q in ((1, 0.5), (37, 0.3), (500, 0.99), (3000, 0.99)):
        shares = [Tally(0.0, 1.0, (0.0, 1.0), (n - k + 1e-300, k + 1e-300)) for k in range(n + 1)]
        above = [k for k in range(n + 1) if log_wealth(shares[k], q, "above") >= math.log(40)]
        below = [k for k in range(n + 1) if log_wealth(shares[k], q, "below") >= math.log(40)]
        assert sequence_ranks(n, q, 0.05) == (max(below, default=-1) + 1, min(above, default=n + 1))
        (lower, upper), (narrow_lower, narrow_upper) = sequence_ranks(n, q, 0.05), quantile_ranks(n, q, 0.05)
        assert lower <= narrow_lower <= narrow_upper <= upper


# --- draws without replacement ---


def drawn(values, weights=None):
    """A file in the order drawn ``[..., K]``: its parts, weights, and the weights not drawn before each."""
    parts = np.asarray(values, dtype=float)
    weights = np.ones_like(parts) if weights is None else weights
    return parts, weights, np.cumsum(weights[..., ::-1], axis=-1)[..., ::-1]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("values", [(1, -1, 0, 0, 1, -1), (-1, -1, -1, 0, 1, 0, 0), (0.5, 1, -0.25, 0.5, 0.1, -1)])
def test_over_all_orders_the_expected_wealth_is_one(values, side):
    """At the file's own sum, as long as values on both sides of it are left, so that nothing is certain."""
    orders = np.array(list(set(permutations(values))))
    weight = np.ones(len(orders)) / len(orders)
    gains = pool_edges(sum(values), *drawn(orders), -1.0, 1.0, side)
    for t in range(1, 4):
        certain = np.isinf(gains[:, :t]).any(axis=1)
        wealth = np.exp(wealth_path(np.where(np.isinf(gains), 0, gains)[:, :t])[0][:, -1])
        assert weight @ wealth == pytest.approx(1, rel=1e-12)
        assert side == "below" or not certain.any()


def test_over_all_weighted_orders_the_expected_wealth_is_one():
    """Successive sampling: an order's probability is the product of ``w_i / W``."""
    parts, weights = np.array([0.5, -2.0, 0.2, 3.0]), np.array([1.0, 2.0, 0.5, 4.0])
    for side in SIDES:
        expected = 0.0
        for order in map(list, permutations(range(4))):
            d, w, left = drawn(parts[order], weights[order])
            gains = pool_edges(parts.sum(), d, w, left, -1.0, 1.0, side)[:3]
            assert (gains >= -1 - 1e-12).all()
            expected += np.prod(w / left) * math.exp(wealth_path(gains)[0][-1])
        assert expected == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("n", [5, 6, 7])
def test_no_small_file_is_decided_wrongly_too_often(n):
    """Every file of n values in {-1, 0, 1}, every order of it, every limit: wrong at most alpha, never by certainty."""
    alpha = 0.2
    for ups, downs in product(range(n + 1), repeat=2):
        if ups + downs > n:
            continue
        values = [1] * ups + [-1] * downs + [0] * (n - ups - downs)
        orders = np.array(list(set(permutations(values))))
        for total in range(-n, n + 1):
            for side, wrong in (("below", sum(values) > total), ("above", sum(values) <= total)):
                if wrong:
                    gains = pool_edges(total, *drawn(orders), -1.0, 1.0, side)
                    assert not np.isinf(gains).any()
                    assert (wealth_path(gains)[0].max(axis=1) >= math.log(1 / alpha)).mean() <= alpha


def test_limits_are_exact():
    assert total_of(0.02, 500) == 10
    assert total_of(0.29, 100) == 29 != 0.29 * 100
    assert total_of(0.125, 3) == Fraction(3, 8)
    assert all(total_of(k / n, n) == k for n in (60, 70, 499) for k in range(-n, n + 1))
    ones = np.ones(10)
    assert np.isinf(pool_edges(float(total_of(0.02, 500)), *drawn(ones), -1.0, 1.0, "below")).all()
    assert not np.isinf(pool_edges(float(total_of(-0.02, 500)), *drawn(-ones), -1.0, 1.0, "above")).any()
    assert np.isinf(pool_edges(-10.5, *drawn(-ones), -1.0, 1.0, "above")).all()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("weighted", [False, True])
def test_peeking_at_a_file_keeps_the_promise(side, weighted):
    """A file of 120 rows in 10,000 orders; the sum in question is its own, or a little to the wrong side of it."""
    r = rng(7)
    parts = r.choice([-1.0, 1.0], 120, p=[0.4, 0.6]) * (r.exponential(1, 120) if weighted else 1.0)
    weights = np.maximum(np.abs(parts), 0.2) * r.uniform(1, 2, 120) if weighted else np.ones(120)
    clocks = r.exponential(1, (PATHS, 120)) / weights
    orders = np.argsort(clocks, axis=1)
    d, w, left = drawn(parts[orders], weights[orders])
    sign = -1 if side == "below" else 1
    for off in (0.01, 3.0):
        paths = [
            wealth_path(pool_edges(parts.sum() + sign * off, d[b], w[b], left[b], -1.0, 1.0, side)[:, :-1])[0]
            for b in np.array_split(np.arange(PATHS), 20)
        ]
        failures = np.concatenate([path.max(axis=1) for path in paths]) >= ENOUGH
        assert as_rare_as_promised(failures), f"{failures.mean():.4f}"


# --- forecasts ---


@pytest.mark.parametrize(("k", "n", "limit"), [(0, 50, 0.1), (5, 100, 0.1), (30, 100, 0.2), (48, 100, 0.4)])
def test_a_forecast_comes_true_if_the_future_repeats_the_past(k, n, limit):
    rows = tally([1] * k + [0] * (n - k), 0, 1)
    found = forecast(rows, limit, 0.05)
    assert found.rows > 0
    assert not found.at_least

    def interval(more):
        grown = Tally(0, 1, rows.values, tuple(c * (n + more) / n for c in rows.counts))
        return confidence_sequence(grown, 0.05)

    after, before = interval(found.rows), interval(found.rows - 1)
    assert after.upper <= limit or after.lower > limit - 1e-12
    assert before.lower <= limit <= before.upper


@given(SAMPLES, st.floats(0, 1))
def test_a_forecast_is_there_on_the_limit_too(sample, share):
    x, low, high = sample
    rows = tally(x, low, high)
    for limit in (low + share * (high - low), min(max(rows.mean, low), high), low):
        found = forecast(rows, limit, 0.05)
        interval = confidence_sequence(rows, 0.05)
        decided = interval.upper <= limit or interval.lower > limit or limit >= high
        assert (found.rows == 0) == decided
        assert 0 <= found.rows < MOST_ROWS


def test_forecasts_at_the_ends():
    assert forecast(tally([], 0, 1), 0.1, 0.05).at_least
    assert forecast(tally([], 0, 1), 0.1, 0.05).rows == forecast(tally([0] * 10, 0, 1), 0.1, 0.05).rows + 10
    assert forecast(tally([0] * 10, 0, 1), 1.0, 0.05) == Forecast(0, False)
    assert forecast(tally([0] * 10, 0, 1), -0.5, 0.05) == Forecast(0, False)
    assert forecast(tally([0] * 10, 0, 1), 0.0, 0.05).at_least
    many = forecast(tally([0, 1] * 50, 0, 1), 0.5, 0.05)
    assert many.at_least
    assert 500 < many.rows < 5000


# --- bad input ---


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: tally([0.5, 2.0], 0, 1), r"values lie in \[0.5, 2\], outside \[0, 1\]"),
        (lambda: tally([0.5, math.nan], 0, 1), "values holds NaN or infinity"),
        (lambda: tally([[0.5]], 0, 1), r"values must have shape \[n\]"),
        (lambda: tally([0.5], 1, 1), "finite range: bound the loss"),
        (lambda: tally([0.5], 0, math.inf), "finite range: bound the loss"),
        (lambda: merged(tally([0], 0, 1), tally([0], -1, 1)), "use one range for all rows"),
        (lambda: log_wealth(tally([0], 0, 1), 2.0, "below"), r"mean must lie in \[0, 1\], got 2"),
        (lambda: log_wealth(tally([0], 0, 1), 0.5, "left"), "side must be 'below' or 'above'"),
        (lambda: confidence_sequence(tally([0], 0, 1), 0.0), "delta must lie strictly between"),
        (lambda: sequence_ranks(0, 0.5, 0.05), "n must be at least 1"),
        (lambda: sequence_ranks(10, 1.0, 0.05), "q must lie strictly between"),
        (lambda: forecast(tally([0], 0, 1), math.nan, 0.05), "limit must be a number"),
        (lambda: tally_of_record({"low": 0}), "the record holds no tally"),
        (lambda: tally_of_record({**tally([0, 1], 0, 1)._asdict(), "counts": [1]}), "lacks a positive count"),
        (lambda: tally_of_record({**tally([0, 1], 0, 1)._asdict(), "counts": [1, None]}), "holds no tally"),
        (lambda: tally_of_record({**tally([0, 1], 0, 1)._asdict(), "counts": [1, -1]}), "lacks a positive count"),
        (lambda: tally_of_record({**tally([0, 1], 0, 1)._asdict(), "values": [0, 3]}), "out of range or order"),
    ],
)
def test_bad_input_gets_one_sentence(call, match):
    with pytest.raises(ValueError, match=match):
        call()
