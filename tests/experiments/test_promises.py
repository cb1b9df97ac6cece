"""Following the gate's advice: how often it ends in a wrong decision, and that the simulated gate is the gate."""

import numpy as np
import pytest
from scipy.stats import binomtest

from experiments.engine.errors import UserError
from experiments.promises import KINDS, METHODS, SIDES, Config, by_sequence, run
from experiments.tables.promises import promises
from trace.gate.policy import Policy, decide
from trace.stats.betting import Tally


def simulated(**options):
    return run(Config(**options), None)


def kept(found):
    return binomtest(found["wrong"], found["paths"], found["nominal"], alternative="greater").pvalue >= 0.01


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_promise_is_kept(kind, side):
    """Followed up to ten times just beyond the limit; 2,000 paths of every cell stand in the records."""
    assert kept(simulated(kind=kind, side=side, paths=200))


def test_two_thousand_who_follow_the_advice():
    """A true share of 5.01% and a limit of 5%."""
    found = simulated(kind="share", side="above")
    assert found["paths"] == 2000
    assert kept(found)


@pytest.mark.parametrize("kind", ["share", "quantile"])
def test_intervals_for_one_n_break_it(kind):
    found = simulated(kind=kind, side="above", method="fixed", paths=500)
    assert found["wrong"] / found["paths"] > 2 * found["nominal"]
    assert not kept(found)


def test_the_simulated_gate_is_the_gate():
    rng, kind = np.random.default_rng(0), KINDS["share"]
    for n in (400, 20_000, 3_000_000):
        for share in (0.03, 0.049, 0.0501, 0.052, 0.08):
            changed = int(rng.binomial(n, share))
            said = by_sequence(kind, 0.05, np.array([n - changed, changed]))
            rows = Tally(0.0, 1.0, (0.0, 1.0), (float(n - changed), float(changed)))
            term = {"value": changed / n, "reason": "", "tally": rows._asdict()}
            record = {"anchor": {"disagreement": term, "num_samples": n}, "settings": {}, "reasons": {}}
            (found,) = decide({"a": record}, Policy(0.05)).anchors
            assert (found.decision, found.needed) == (said.decision, said.needed)


def test_the_limit_lies_between_both_sides():
    for kind in KINDS.values():
        sides = [np.dot(kind.values, kind.chances(above)) for above in (False, True)]
        assert min(sides) < kind.limit < max(sides)
        assert all(sum(kind.chances(above)) == pytest.approx(1) for above in (False, True))


def record(kind, method, side, wrong):
    config = {"kind": kind, "method": method, "side": side, "start": 400, "looks": 10, "paths": 2000, "delta": 0.05}
    metrics = {"wrong": wrong, "undecided": 3, "paths": 2000, "nominal": 0.025, "median_rows": 12345.0}
    return {"config": config, "metrics": metrics}


def test_the_table_says_which_promises_are_broken():
    records = [record(kind, "sequence", side, 10) for kind in KINDS for side in SIDES]
    records += [record("share", "fixed", "above", 208), record("share", "fixed", "below", 55)]
    found = promises(records)
    assert found.rows[0] == [
        "share of changed predictions",
        "for every n (the gate)",
        *("0.50%", "kept", "0%", "12,345"),
        *("0.50%", "kept", "0%", "12,345"),
    ]
    assert found.rows[1][2:] == ["10.40%", "broken", "0%", "12,345", "2.75%", "kept", "0%", "12,345"]
    assert found.rows[3][2:] == ["missing"] * 8
    assert "the promised share of 0.025" in found.caption


@pytest.mark.parametrize("key", ["kind", "side", "method"])
def test_bad_configs(key):
    with pytest.raises(UserError, match=f"promises: {key} must be one of .*, got 'odd'"):
        Config(**{key: "odd"})
    assert set(METHODS) == {"sequence", "fixed"}
