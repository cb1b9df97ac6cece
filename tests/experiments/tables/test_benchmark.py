"""Growth with n: every estimator is measured until it takes too long, and the table reads slopes off the record."""

import math

import pytest
import torch
from pandas import DataFrame

from experiments.benchmarks.growth import ESTIMATORS, SIZES, Inputs, growth
from experiments.figures.benchmark import growth as drawn
from experiments.tables.benchmark import DOMAINNET, order_of_growth
from experiments.tables.benchmark import growth as table


def record(rows):
    return [{"metrics": {"growth": rows}, "machine": {"cores": 2}}]


def test_every_estimator_is_measured_at_every_size():
    rows = growth("smoke", seed=0)
    assert [(row["estimator"], row["n"]) for row in rows] == [(e, n) for e in ESTIMATORS for n in SIZES["smoke"]]
    assert all(row["seconds"] > 0 for row in rows)
    assert len(table(record(rows)).rows) == len(ESTIMATORS)
    assert len(drawn(record(rows)).axes[0].lines) == len(ESTIMATORS) + 2


def test_the_same_seed_times_the_same_work():
    given = [Inputs.draw(60, 4, seed) for seed in (0, 0, 1)]
    state = torch.get_rng_state()
    for estimator in ESTIMATORS.values():
        assert estimator(given[0]) == estimator(given[1])
    assert ESTIMATORS["gradient quantile"](given[0]) != ESTIMATORS["gradient quantile"](given[2])
    assert torch.equal(torch.get_rng_state(), state), "a timed call draws without a generator"


def test_what_takes_too_long_is_not_tried_at_a_larger_size():
    assert {row["n"] for row in growth("smoke", seed=0, limit=0.0)} == {SIZES["smoke"][0]}


def test_the_table_projects_with_the_slope():
    quadratic = [{"estimator": "a", "n": n, "dim": 3, "seconds": 1e-8 * n**2} for n in (1000, 2000, 4000)]
    linear = [{"estimator": "b", "n": n, "dim": 3, "seconds": 1e-6 * n} for n in (1000, 2000)]
    rows = table(record([*quadratic, *linear])).rows
    assert rows[0] == ["a", "0.01", "0.04", "0.16", "2.00", f"{1e-8 * DOMAINNET**2:.2g}"]
    assert rows[1] == ["b", "0.001", "0.002", "too long", "1.00", f"{1e-6 * DOMAINNET:.2g}"]


def test_the_slope_of_one_size_is_undefined():
    assert math.isnan(order_of_growth(DataFrame({"n": [1000], "seconds": [1.0]})))
    assert order_of_growth(DataFrame({"n": [1000, 2000], "seconds": [1.0, 8.0]})) == pytest.approx(3.0)
