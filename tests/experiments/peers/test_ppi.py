"""PPI++ as `experiments.labels` has it is that of ppi-python, run in the environment of peers."""

import math

import numpy as np
import pytest

from experiments.engine.errors import UserError
from experiments.labels import FEWEST, METHODS, Ends, ppi_interval, summary
from experiments.peers import ask, environment
from tests.experiments.test_labels import LOSSES, case
from tests.requirements import lacking

N = np.array([20, 21, 35, 60, 150])
ERROR = 0.025


@pytest.fixture(scope="module")
def peers():
    """The interpreter that has ppi-python."""
    try:
        return environment()
    except UserError as error:
        lacking(f"no package index answers ({error})", required_by="TRACE_REQUIRE_PYPI")


def normal(rng, *, slope, noise, offset, unlabelled):
    guess = rng.normal(size=(3, N[-1])) + offset
    return slope * guess + noise * rng.normal(size=guess.shape), guess, rng.normal(size=unlabelled) + offset


def changes(rng, unlabelled):
    """Of the 0-1 loss: mostly 0, guessed with errors."""
    y = rng.choice([-1.0, 0.0, 1.0], p=[0.05, 0.85, 0.1], size=(3, N[-1]))
    return y, np.clip(0.5 * y + 0.1 * rng.normal(size=y.shape), -1, 1), rng.uniform(-1, 1, unlabelled)


RNG = np.random.default_rng(0)
CASES = {
    "helpful guesses": normal(RNG, slope=0.6, noise=1.0, offset=0.0, unlabelled=500),
    "few unlabelled": normal(RNG, slope=0.6, noise=1.0, offset=1.0, unlabelled=30),
    "weight cut at 0": normal(RNG, slope=-0.8, noise=0.5, offset=0.0, unlabelled=400),
    "weight cut at 1": normal(RNG, slope=2.5, noise=0.1, offset=0.0, unlabelled=4000),
    "useless guesses": normal(RNG, slope=0.0, noise=5.0, offset=0.0, unlabelled=1000),
    "far from 0": normal(RNG, slope=0.9, noise=0.3, offset=30.0, unlabelled=700),
    "0-1 loss": changes(RNG, 300),
    "0-1 loss, many unlabelled": changes(RNG, 3000),
}


@pytest.mark.parametrize("name", CASES)
def test_weights_estimates_and_ends_are_those_of_the_package(peers, name):
    y, guess, unlabelled = CASES[name]
    found = ask("ppi", {"y": y, "guess": guess, "unlabelled": unlabelled, "n": N, "alpha": 2 * ERROR}, python=peers)
    ours = ppi_interval(y, guess, unlabelled, N, ERROR)
    for key, value in {
        "weight": ours.weight,
        "estimate": ours.estimate,
        "lower": ours.estimate - ours.radius,
        "upper": ours.estimate + ours.radius,
    }.items():
        np.testing.assert_allclose(np.array(found[key], dtype=float), value, rtol=1e-9, atol=1e-10, err_msg=key)
    if "cut" in name:
        assert (ours.weight == float(name[-1])).all()
    elif name == "helpful guesses":
        assert ((ours.weight[:, -1] > 0) & (ours.weight[:, -1] < 1)).all()


@pytest.mark.parametrize("value", [0.0, 0.3, 0.5])
def test_of_constant_guesses_the_package_has_our_interval_or_none(peers, value):
    y = np.random.default_rng(1).choice([-1.0, 0.0, 1.0], size=(4, N[-1]))
    guess, unlabelled = np.full_like(y, value), np.full(300, value)
    found = ask("ppi", {"y": y, "guess": guess, "unlabelled": unlabelled, "n": N, "alpha": 2 * ERROR}, python=peers)
    ours = ppi_interval(y, guess, unlabelled, N, ERROR)
    lower = np.array(found["lower"], dtype=float)
    known = np.isfinite(lower)
    assert known.any()
    assert not known.all()
    np.testing.assert_allclose(lower[known], (ours.estimate - ours.radius)[known], atol=1e-10)
    classical = [[y[path, :count].mean() for count in N] for path in range(len(y))]
    np.testing.assert_allclose(ours.estimate, classical, atol=1e-10)


@pytest.mark.parametrize("judged_by", LOSSES)
def test_decisions_on_the_draws_of_a_cell_are_those_of_the_package(peers, judged_by):
    """Labels of every path and what it decided; so the false decisions are the package's too."""
    made, config = case(judged_by)
    margins = [sign * size for size in config.margins for sign in (-1, 1)]
    limits = [float(made.change.mean()) + margin for margin in margins]
    told = {
        "y": made.change[made.draws],
        "guess": made.guess[made.draws],
        "unlabelled": made.guess,
        "n": np.arange(FEWEST, made.draws.shape[1] // 4 + 1),
        "alpha": 2 * made.error,
        "limits": limits,
    }
    found = ask("ppi", told, python=peers)
    wrong = 0
    for limit, margin, labels, accepted in zip(limits, margins, found["labels"], found["accepted"], strict=True):
        theirs = Ends(np.array([math.inf if n is None else n for n in labels]), np.array(accepted))
        ours = METHODS["ppi"](made, limit)
        np.testing.assert_array_equal(theirs.labels, ours.labels)
        np.testing.assert_array_equal(theirs.accepted, ours.accepted)
        wrong += summary(theirs, right=margin > 0)["wrong"]
        assert summary(theirs, right=margin > 0) == summary(ours, right=margin > 0)
    assert wrong > 0
