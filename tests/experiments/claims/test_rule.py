"""The one judge of all rules: each comparison against what its words mean, knife's edges, families, and refusals."""

import math
from itertools import product

import pytest

from experiments.claims.rule import COMPARISONS, VERDICTS, ClaimRule, Condition, Estimated, conjunction, parse_rule
from experiments.engine.errors import UserError

NAN = math.nan


def rule(**data):
    return parse_rule("it", {"records": "gate", **data})


def at(lower, upper):
    return Estimated((lower + upper) / 2, lower, upper)


@pytest.mark.parametrize("comparison", [name for name in COMPARISONS if name != "within a factor of"])
@pytest.mark.parametrize("tolerance", [0.0, 0.25])
def test_a_condition_holds_of_an_interval_where_it_holds_of_all_its_points(comparison, tolerance):
    """Against brute force: every point of a grid is an exact value, an interval holds the points between its ends."""
    grid = [i / 8 for i in range(17)]
    condition = Condition("v", comparison, 1.0, tolerance)
    truth = {
        "at least": lambda v: v >= 1 - tolerance,
        "at most": lambda v: v <= 1 + tolerance,
        "above": lambda v: v > 1 - tolerance,
        "below": lambda v: v < 1 + tolerance,
        "equal to": lambda v: abs(v - 1) <= tolerance,
    }[comparison]
    assert [condition.holds({"v": v}) for v in grid] == [truth(v) for v in grid]
    for low, high in product(grid, grid):
        if low <= high:
            found = {truth(v) for v in grid if low <= v <= high}
            assert condition.holds({"v": at(low, high)}) == (found.pop() if len(found) == 1 else None)


@pytest.mark.parametrize(("ends", "answer"), [((0.7, 1.4), True), ((0.1, 0.6), False), ((1.6, 9.0), False),
                                              ((0.5, 1.0), None), ((1.0, 1.6), None)])  # fmt: skip
def test_a_size_within_a_factor(ends, answer):
    assert Condition("v", "within a factor of", 1.0, 1.5).holds({"v": at(*ends)}) is answer


def test_a_value_without_its_interval_is_open_and_an_exact_one_is_not():
    condition = Condition("v", "above", 0.0)
    assert condition.holds({"v": Estimated(0.9, NAN, NAN)}) is None
    assert condition.holds({"v": NAN}) is None
    assert condition.holds({"v": 0.9}) is True
    assert condition.holds({"v": True}) is True


def test_families_follow_kleene():
    family = {"v": {"a": at(1, 2), "b": at(-1, 1), "c": at(-2, -1)}}
    without = {"v": {name: family["v"][name] for name in ("a", "b")}}
    assert Condition("every v", "above", 0.0).holds(family) is False
    assert Condition("every v", "above", 0.0).holds(without) is None
    assert Condition("any v", "above", 0.0).holds(family) is True
    assert Condition("any v", "below", -3.0).holds(family) is False
    assert Condition("any v", "above", 1.5).holds(family) is None
    assert conjunction([]) is True


EDGE = rule(reproduced=[["rho", "at least", 0.944, 0.02]], partly=[["rho", "above", 0]])


@pytest.mark.parametrize(("ends", "verdict"), [
    ((0.93, 0.99), "reproduced"),
    ((0.924, 0.99), "reproduced"),  # the edge itself belongs to "at least"
    ((0.90, 0.95), "undecided"),  # the estimate is above, the interval is not
    ((0.40, 0.90), "partly"),
    ((-0.1, 0.90), "undecided"),  # between partly and not at all
    ((-0.9, -0.1), "not reproduced"),
])  # fmt: skip
def test_no_verdict_on_a_knifes_edge(ends, verdict):
    assert EDGE.verdict({"rho": at(*ends)}) == verdict


def test_verdicts_are_tried_in_the_order_of_the_file():
    found = rule(**{"contradicts itself": [["x", "at least", 1]], "reproduced": [["x", "at least", 0]]})
    assert found.verdict({"x": 2.0}) == "contradicts itself"
    assert found.verdict({"x": 0.5}) == "reproduced"
    assert found.verdict({"x": -1.0}) == "not reproduced"
    assert {"contradicts itself", "reproduced"} < set(VERDICTS)


def test_words_say_the_side_and_the_tolerance():
    assert EDGE.in_words() == (
        "reproduced: rho at least 0.944 (tolerance 0.02); partly: rho above 0; otherwise not reproduced"
    )
    assert (
        "size within a factor of 1.5 of 0.047"
        in rule(reproduced=[["size", "within a factor of", 0.047, 1.5]], otherwise="contradicts itself").in_words()
    )


def test_the_digest_is_of_the_data_that_decide():
    same = rule(partly=[["rho", "above", 0]], reproduced=[["rho", "at least", 0.944, 0.02]])
    assert EDGE.digest == rule(reproduced=[["rho", "at least", 0.944, 0.02]], partly=[["rho", "above", 0.0]]).digest
    assert same.digest != EDGE.digest  # the order in which verdicts are tried decides
    for changed in (
        {"reproduced": [["rho", "at least", 0.944, 0.03]]},
        {"reproduced": [["rho", "above", 0.944, 0.02]]},
        {"records": "active"},
        {"with": {"score": "trace_w"}},
        {"measure": "another"},
        {"otherwise": "partly"},
    ):
        data = {"reproduced": [["rho", "at least", 0.944, 0.02]], "partly": [["rho", "above", 0]], **changed}
        assert rule(**data).digest != EDGE.digest
    assert isinstance(EDGE, ClaimRule)


@pytest.mark.parametrize(("data", "message"), [
    ({"reproduced": [["rho", "over", 1]]}, "rule of it: 'over' is no comparison; there are at least"),
    ({"reproduced": [["rho"]]}, r"\['rho'\] is no condition"),
    ({"reproduced": [["rho", "above", "much"]]}, "is no condition"),
    ({"reproduced": [[1]], "tolerance": 1}, "tolerance is none of"),
    ({}, "it needs a verdict with conditions"),
    ({"reproduced": [["rho", "above", 0]], "otherwise": "undecided"}, "otherwise must be one of"),
])  # fmt: skip
def test_what_is_no_rule_is_refused_by_name(data, message):
    with pytest.raises(UserError, match=message):
        rule(**data)
