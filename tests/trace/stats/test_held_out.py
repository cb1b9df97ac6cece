"""Rows that were held out, and rows that were not: bounds against enumeration, promises against simulation."""

from itertools import combinations

import numpy as np
import pytest
import torch

from trace.stats.held_out import LEVEL, fault, id_keys, lower_tail, overlap, row_keys


def counts(train, held_out):
    """Values of several rows only among the held-out rows, only among the training rows; values held out."""
    a, b, all_rows = set(train), set(held_out), [*train, *held_out]
    several = {value for value in all_rows if all_rows.count(value) > 1}
    return len((b - a) & several), len((a - b) & several), len(b)


@pytest.mark.parametrize(
    "pool", [[0, 0, 1, 1, 2, 2, 3, 4], [0, 0, 0, 0, 1, 2, 3, 4, 5], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]]
)
@pytest.mark.parametrize("m", [2, 4, 6])
def test_tails_lie_above_those_of_all_choices(pool, m):
    """Every choice of m rows is tried."""
    pool = np.array(pool)
    everything = set(range(len(pool)))
    found = []
    for chosen in combinations(range(len(pool)), m):
        train, held_out = pool[sorted(everything - set(chosen))], pool[list(chosen)]
        found.append((counts(train, held_out), overlap(train, held_out)))
    held_apart, trained_apart, present = (np.array(each) for each in zip(*(c for c, _ in found), strict=True))
    for (one, two, three), o in found:
        exact = min(1.0, 2 * min((held_apart <= one).mean(), (trained_apart <= two).mean()))
        assert o.p_shared >= exact - 1e-12
        assert o.p_distinct >= (present <= three).mean() - 1e-12
    assert np.mean([o.shared for _, o in found]) == pytest.approx(found[0][1].expected, rel=1e-12)


def test_the_lower_tail_of_a_binomial():
    """Between the exact probability and Chernoff's closed form, which it is for equal p."""
    n, p, k = 50, 0.3, 5
    relative = k / n * np.log(k / n / p) + (1 - k / n) * np.log((1 - k / n) / (1 - p))
    assert lower_tail(k, np.array([p]), np.array([n])) == pytest.approx(np.exp(-n * relative), rel=1e-9)
    assert lower_tail(15, np.array([p]), np.array([n])) == 1.0
    assert lower_tail(0, np.array([1.0]), np.array([3])) == 0.0
    assert lower_tail(2, np.array([1.0, 0.5]), np.array([3, 4])) == 0.0


def people(n, rng):
    """A table of few columns in which about 43% of the rows coincide with another."""
    columns = [rng.geometric(0.08, n), rng.geometric(0.2, n), rng.integers(0, 2, n), rng.integers(0, 5, n)]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(("n", "m"), [(600, 600), (1500, 300), (300, 900)])
def test_a_random_split_of_coinciding_rows_is_no_fault(n, m):
    rng = np.random.default_rng(0)
    doubted = 0
    for _ in range(150):
        rows = row_keys(torch.from_numpy(people(n + m, rng)))
        _, times = np.unique(rows, return_counts=True)
        order = rng.permutation(n + m)
        doubted += bool(fault(rows[order[:n]], rows[order[n:]]))
    assert 0.3 < (times[times > 1].sum() / (n + m)) < 0.9
    assert doubted == 0  # of 150, at a level of 1e-4


def test_the_level_is_kept():
    """At a level that can be seen, the tails are at most as often below it as they say."""
    rng = np.random.default_rng(1)
    draws = []
    for _ in range(2000):
        rows = rng.zipf(1.6, 400)
        found = overlap(rows[:250], rows[250:])
        draws.append((found.p_shared, found.p_distinct))
    for level in (0.2, 0.05, 0.01):
        assert (np.array(draws) <= level).mean(axis=0).max() <= level + 3 * np.sqrt(level / 2000)
    assert LEVEL < 0.01


@pytest.mark.parametrize(("table", "share"), [("distinct", 0.07), ("distinct", 0.5), ("people", 0.5), ("people", 1.0)])
def test_copies_of_training_rows_are_seen(table, share):
    rng = np.random.default_rng(2)
    rows = np.arange(1200) if table == "distinct" else row_keys(torch.from_numpy(people(1200, rng)))
    train, held_out = rows[:600], rows[600:].copy()
    copied = rng.permutation(600)[: int(600 * share)]
    held_out[copied] = train[copied]
    assert "not held out" in fault(train, held_out[::-1])


def test_the_count_is_in_the_sentence():
    train = np.arange(400)
    held_out = np.concatenate([np.arange(350, 400), np.arange(1000, 1250)])
    assert fault(train, held_out).startswith(
        "50 of the 300 held-out rows are among the training rows, and a random split of all these rows would have about"
    )
    assert fault(train, train) == "all 400 held-out rows are the training rows, in their order: they were not held out"
    assert fault(train, train[::-1]).startswith("400 of the 400 held-out rows are among the training rows")
    repeated = fault(train, np.tile(np.arange(1000, 1010), 50))
    assert repeated.startswith("the 500 held-out rows are 10 rows repeated, more often than any random split")


def test_a_table_of_few_values_is_no_fault_but_itself_is():
    rng = np.random.default_rng(3)
    train, held_out = rng.integers(0, 8, 500), rng.integers(0, 8, 500)
    assert fault(train, held_out) == ""
    assert "in their order" in fault(train, train.copy())


def test_other_values_that_coincide_as_often_are_no_repetition():
    """A month among the columns: no value of the held-out file is in the training file."""
    train, held_out = np.repeat(np.arange(100), 10), np.repeat(np.arange(1000, 1100), 10)
    assert overlap(train, held_out).p_distinct < LEVEL
    assert fault(train, held_out) == ""


def test_ids_are_certain():
    train, held_out = id_keys(np.array(["a", "b", "c"])), id_keys(np.array(["d", "c"]))
    assert fault(train, held_out, certain=True) == (
        "1 of the 2 held-out rows have the id of a training row: they were not held out"
    )
    twice = id_keys(np.array([4, 4, 5]))
    assert fault(train, twice, certain=True) == "1 of the 3 held-out rows repeat an id: each row may count once"
    assert fault(id_keys(np.array([1, 2])), id_keys(np.array([3.0, 4.0])), certain=True) == ""
    assert "1 of the 1" in fault(id_keys(np.array([1, 2])), id_keys(np.array([2.0])), certain=True)


def test_keys_are_those_of_the_values(generator):
    x = torch.randn(50, 3, 2, generator=generator)
    assert (row_keys(x) == row_keys(x.double())).all()
    assert len(np.unique(row_keys(x))) == 50
    assert row_keys(torch.tensor([[0.0]])) == row_keys(torch.tensor([[-0.0]]))
