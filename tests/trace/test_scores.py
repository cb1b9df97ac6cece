"""trace.scores against the formulas by hand, their invariants, and every refusal."""

from __future__ import annotations

import math
import statistics

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trace.scores import SINKHORN_SLACK, Calibration, Candidate, calibrate_c_h, trace_mmd, trace_proxy, trace_w

positive = st.floats(1e-6, 1e6)
DEVELOPMENT = [
    Candidate("a", 0.5, 4.0, 0.25),
    Candidate("b", 2.0, 1.0, 3.0),
    Candidate("c", 1.0, 10.0, 0.2),
    Candidate("d", 8.0, 0.5, 1.0),
]


@given(positive, positive, positive, positive)
def test_proxy_is_linear_in_each_part(m, sensitivity, distance, c_h):
    value = trace_proxy(m, sensitivity, distance, c_h=c_h)
    assert value == pytest.approx(m + c_h * sensitivity * distance, rel=1e-12)
    assert value - m == pytest.approx(trace_proxy(0.0, sensitivity, 2 * distance, c_h=c_h) / 2, rel=1e-6, abs=1e-9 * m)


@given(positive, positive, positive)
def test_gate_scores_keep_their_factors(m, factor, distance):
    assert trace_w(m, factor, distance) == pytest.approx(m + factor * distance, rel=1e-12)
    assert trace_mmd(m, factor, distance) == pytest.approx(m + factor * distance, rel=1e-12)


@pytest.mark.parametrize("score", [trace_w, trace_mmd])
def test_gate_scores_grow_with_every_input(score):
    base = score(1.0, 2.0, 0.5)
    assert all(score(*inputs) > base for inputs in [(1.1, 2.0, 0.5), (1.0, 2.1, 0.5), (1.0, 2.0, 0.6)])
    assert score(1.0, 2.0, 0.0) == score(1.0, 0.0, 0.5) == 1.0


def test_scores_take_scalar_tensors_and_return_floats():
    assert type(trace_w(torch.tensor(1.0), torch.tensor(2.0), torch.tensor(0.5))) is float
    assert trace_w(torch.tensor(1.0), torch.tensor(2.0), torch.tensor(0.5)) == 2.0


def test_a_sinkhorn_numerical_zero_counts_as_zero():
    assert trace_w(1.0, 2.0, -SINKHORN_SLACK) == 1.0
    assert trace_proxy(1.0, 2.0, -5e-4, c_h=3.0) == 1.0
    below = [
        Candidate(name, 1.0, 2.0, distance) for name, distance in zip("abcd", (-9e-4, -9e-4, 0.5, 0.5), strict=True)
    ]
    assert calibrate_c_h(below, evaluation=[]).c_h == 2.0  # over the median of 0, 0, 1 and 1
    with pytest.raises(ValueError, match=r"sinkhorn must be at least -0\.001, got -0\.0011"):
        trace_w(1.0, 2.0, -1.1e-3)
    with pytest.raises(ValueError, match=r"distance must be at least -0\.001"):
        trace_proxy(1.0, 2.0, -1.1e-3, c_h=1.0)
    with pytest.raises(ValueError, match="mmd must be at least 0, got -1e-06"):
        trace_mmd(1.0, 2.0, -1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0])
@pytest.mark.parametrize(
    ("score", "names"),
    [
        (trace_w, ["output_distance", "sensitivity_new", "sinkhorn"]),
        (trace_mmd, ["output_distance", "rkhs_norm", "mmd"]),
        (lambda *x: trace_proxy(*x, c_h=1.0), ["output_distance", "sensitivity", "distance"]),
    ],
)
def test_scores_name_the_bad_input(score, names, bad):
    for position, name in enumerate(names):
        inputs = [1.0, 1.0, 1.0]
        inputs[position] = bad
        with pytest.raises(ValueError, match=rf"^{name} "):
            score(*inputs)


@pytest.mark.parametrize("c_h", [0.0, -1.0, math.nan, math.inf])
def test_proxy_refuses_a_scale_that_is_not_positive(c_h):
    with pytest.raises(ValueError, match="c_h must be finite and positive"):
        trace_proxy(1.0, 1.0, 1.0, c_h=c_h)


@pytest.mark.parametrize("count", [3, 4])
def test_calibration_is_the_ratio_of_medians(count):
    chosen = DEVELOPMENT[:count]
    expected = statistics.median([c.output_distance for c in chosen]) / statistics.median(
        [c.sensitivity * c.distance for c in chosen]
    )
    assert calibrate_c_h(chosen, evaluation=["x"]) == Calibration(expected, tuple(c.name for c in chosen))
    assert expected == (0.5 if count == 3 else 1.0)


def test_calibration_ignores_order_and_balances_the_two_parts():
    c_h = calibrate_c_h(DEVELOPMENT, evaluation=[]).c_h
    assert calibrate_c_h(DEVELOPMENT[::-1], evaluation=[]).c_h == c_h
    shifts = [trace_proxy(0.0, c.sensitivity, c.distance, c_h=c_h) for c in DEVELOPMENT]
    assert statistics.median(shifts) == pytest.approx(statistics.median(c.output_distance for c in DEVELOPMENT))


@given(st.floats(1e-3, 1e3))
def test_the_calibrated_proxy_does_not_depend_on_the_units_of_the_distance(scale):
    rescaled = [c._replace(distance=c.distance * scale) for c in DEVELOPMENT]
    c_h, c_h_rescaled = (calibrate_c_h(models, evaluation=[]).c_h for models in (DEVELOPMENT, rescaled))
    value = trace_proxy(1.0, 2.0, 0.7, c_h=c_h)
    assert trace_proxy(1.0, 2.0, 0.7 * scale, c_h=c_h_rescaled) == pytest.approx(value, rel=1e-12)


def test_calibration_refuses_candidates_that_are_evaluated():
    with pytest.raises(ValueError, match="share b, c: calibrate on candidates that are not ranked"):
        calibrate_c_h(DEVELOPMENT, evaluation=["c", "x", "b"])
    with pytest.raises(ValueError, match=r"use \['abc'\]"):
        calibrate_c_h(DEVELOPMENT, evaluation="abc")


def test_calibration_refuses_few_or_repeated_candidates():
    for count in range(3):
        with pytest.raises(ValueError, match=f"development has {count} candidates, at least 3"):
            calibrate_c_h(DEVELOPMENT[:count], evaluation=[])
    with pytest.raises(ValueError, match="development names a, b more than once"):
        calibrate_c_h(DEVELOPMENT + DEVELOPMENT[:2], evaluation=[])


@pytest.mark.parametrize("field", ["output_distance", "sensitivity", "distance"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -0.1])
def test_calibration_names_the_bad_measurement(field, bad):
    models = [*DEVELOPMENT[:3], DEVELOPMENT[3]._replace(**{field: bad})]
    with pytest.raises(ValueError, match=f"^{field} of 'd'"):
        calibrate_c_h(models, evaluation=[])


def test_calibration_refuses_a_median_without_meaning():
    still = [c._replace(output_distance=0.0) for c in DEVELOPMENT]
    with pytest.raises(ValueError, match="median of output_distance over development is 0"):
        calibrate_c_h(still, evaluation=[])
    for distance, shown in ((0.0, "0"), (-1e-4, "0,"), (1e308, "inf")):
        models = [Candidate(name, 1.0, 1.0 if distance < 1 else 10.0, distance) for name in "abc"]
        with pytest.raises(ValueError, match=f"median of sensitivity \\* distance over development is {shown}"):
            calibrate_c_h(models, evaluation=[])
