"""trace.scores against the formulas by hand, their invariants, and every refusal."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trace.diagnostic import scaled
from trace.scores import GATE_SCORES, SCORES, SINKHORN_SLACK, Calibration, Candidate, calibrate_c_h, labels

positive = st.floats(1e-6, 1e6)
DEVELOPMENT = [
    Candidate("a", 0.5, 4.0, 0.25),
    Candidate("b", 2.0, 1.0, 3.0),
    Candidate("c", 1.0, 10.0, 0.2),
    Candidate("d", 8.0, 0.5, 1.0),
]


BY_HAND = {
    "anchor_plug_in": lambda p: p["anchor_plug_in"],
    "output_distance": lambda p: p["output_distance"],
    "model_change": lambda p: p["lipschitz_loss"] * p["output_distance"],
    "held_out_distance": lambda p: p["held_out_distance"],
    "trace_w": lambda p: p["held_out_distance"] + p["sensitivity_target"] * p["transport"],
    "trace_mmd": lambda p: p["held_out_distance"] + p["rkhs_norm"] * p["mmd"],
    "proxy_ot": lambda p: p["output_distance"] + p["c_h"] * p["sensitivity_target"] * p["transport"],
    "proxy_mmd": lambda p: p["output_distance"] + p["c_h"] * p["sensitivity_target"] * p["mmd"],
    "emp_shift_ot": lambda p: (p["sensitivity_source"] + p["sensitivity_target"]) * p["c_h"] * p["transport"],
    "emp_shift_mmd": lambda p: p["rkhs_norm"] * p["mmd"],
    "emp_shift_hybrid": lambda p: p["sensitivity_source"] * p["c_h"] * p["transport"] + p["rkhs_norm"] * p["mmd"],
    "gaps": lambda p: p["gap_source"] + p["gap_target"],
    "distance": lambda p: p["transport"],
    "mmd": lambda p: p["mmd"],
    "bound_direct": lambda p: (
        p["lipschitz_loss"] * p["held_out_distance"]
        + (p["largest_gradient_source"] + p["largest_gradient_target"]) * p["wasserstein1_input"]
    ),
    "bound_direct_certified": lambda p: (
        p["lipschitz_loss"] * p["held_out_distance"]
        + (p["certified_source"] + p["certified_target"]) * p["wasserstein1_input"]
    ),
    "bound_difference": lambda p: (
        p["capped_change"] + p["lipschitz_loss"] * p["jacobian_change"] * p["wasserstein1_input"]
    ),
    "bound_difference_certified": lambda p: (
        p["capped_change"] + p["lipschitz_loss"] * p["certified_change"] * p["wasserstein1_input"]
    ),
}
"""From the paper, and the two-term bounds; the corollary's bounds are sums of these."""
for form, population in (("ot", "population_ot"), ("mmd", "population_mmd"), ("hybrid", "population_mmd")):
    terms = [BY_HAND[name] for name in ("gaps", "model_change", f"emp_shift_{form}")]
    rest = ("label_noise", "validation_error", population)
    BY_HAND[f"bound_{form}"] = lambda p, terms=terms: sum(term(p) for term in terms)
    BY_HAND[f"bound_full_{form}"] = lambda p, form=form, rest=rest: (
        BY_HAND[f"bound_{form}"](p) + sum(p[name] for name in rest)
    )


def parts_of(name, values):
    """Some value for each part of a score."""
    return dict(zip(SCORES[name].parts, values, strict=False))


@given(st.sampled_from(sorted(BY_HAND)), st.lists(positive, min_size=12, max_size=12))
def test_formulas_by_hand(name, values):
    parts = parts_of(name, values)
    assert SCORES[name].formula(parts) == pytest.approx(BY_HAND[name](parts), rel=1e-12)


def test_every_formula_is_checked_by_hand():
    identities = {name for name, score in SCORES.items() if score.kind in ("anchor", "slice", "labelled")}
    identities.discard("anchor_plug_in")
    assert set(BY_HAND) == set(SCORES) - identities
    for name in identities:
        assert SCORES[name].formula({name: 0.25}) == 0.25


@pytest.mark.parametrize("name", SCORES)
def test_numbers_arrays_and_columns_alike(name):
    """With a missing value, which stays one, and a numerical zero below 0."""
    columns = {part: np.linspace(0.5, 2.0, 4) + i for i, part in enumerate(SCORES[name].parts)}
    if "transport" in columns:
        columns["transport"][1] = -5e-4
    expected = [SCORES[name].formula({part: float(column[i]) for part, column in columns.items()}) for i in range(4)]
    first = SCORES[name].parts[0]
    expected[2], columns[first][2] = math.nan, math.nan
    frame = pd.DataFrame(columns, index=[7, 3, 5, 1])
    for values in (columns, frame, dict(frame.items())):
        np.testing.assert_allclose(np.asarray(SCORES[name].harm(values)), expected, rtol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_scores_grow_with_every_part(name):
    """What the ends of a gate's intervals rely on."""
    parts = parts_of(name, [1.0] * 12)
    value = SCORES[name].formula
    assert all(value({**parts, part: 1.1}) > value(parts) for part in parts)


@pytest.mark.parametrize("scale", [0.0, 2.0, math.inf, math.nan])
@pytest.mark.parametrize("distance", [-1e-4, 0.0, 0.5, math.inf, math.nan])
def test_nothing_of_an_infinite_factor_is_nothing_and_nan_stays(scale, distance):
    product = scaled(scale, distance)
    nothing = scale == 0 or distance <= 0
    expected = math.nan if math.isnan(scale + distance) else 0.0 if nothing else scale * distance
    assert product == pytest.approx(expected, nan_ok=True)
    assert scaled(np.array([scale]), np.array([distance])) == pytest.approx([expected], nan_ok=True)


def test_a_sinkhorn_numerical_zero_counts_as_zero():
    assert SCORES["trace_w"].formula(parts_of("trace_w", (1.0, 2.0, -SINKHORN_SLACK))) == 1.0
    below = [
        Candidate(name, 1.0, 2.0, distance) for name, distance in zip("abcd", (-9e-4, -9e-4, 0.5, 0.5), strict=True)
    ]
    assert calibrate_c_h(below, evaluation=[]).c_h == 2.0  # over the median of 0, 0, 1 and 1
    with pytest.raises(ValueError, match=r"distance of 'a' must be at least -0\.001, got -0\.0011"):
        calibrate_c_h([below[0]._replace(distance=-1.1e-3), *below[1:]], evaluation=[])


def test_the_registry_names_every_score():
    assert all(each.label and each.units and each.parts for each in SCORES.values())
    assert {name for name, each in SCORES.items() if each.kind == "anchor"} == {
        name for name, each in SCORES.items() if all(part.startswith("anchor_") for part in each.parts)
    }
    assert not any(GATE_SCORES[name].kind == "proxy" for name in GATE_SCORES)
    assert labels("gaps", alone=True) | labels("trace_w") == {"gaps": "gaps alone", "trace_w": "TRACE-W"}


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
    shifts = [SCORES["proxy_ot"].formula(parts_of("proxy_ot", (0.0, *c[2:], c_h))) for c in DEVELOPMENT]
    assert statistics.median(shifts) == pytest.approx(statistics.median(c.output_distance for c in DEVELOPMENT))


@given(st.floats(1e-3, 1e3))
def test_the_calibrated_proxy_does_not_depend_on_the_units_of_the_distance(scale):
    rescaled = [c._replace(distance=c.distance * scale) for c in DEVELOPMENT]
    c_h, c_h_rescaled = (calibrate_c_h(models, evaluation=[]).c_h for models in (DEVELOPMENT, rescaled))
    proxy = SCORES["proxy_mmd"].formula
    value = proxy(parts_of("proxy_mmd", (1.0, 2.0, 0.7, c_h)))
    assert proxy(parts_of("proxy_mmd", (1.0, 2.0, 0.7 * scale, c_h_rescaled))) == pytest.approx(value, rel=1e-12)


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
