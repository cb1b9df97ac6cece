"""Stored cells as columns: selection, calibration that no evaluated candidate enters, gaps that stay visible."""

import numpy as np
import pytest

from experiments.analysis.frame import (
    calibration,
    evaluated,
    groups,
    isolation_frame,
    proxies,
    size,
    stacked,
    synthetic_frame,
    where,
)
from tests.experiments.analysis.synthetic_records import both, grid, isolation, record
from trace.scores import SCORES


def test_all_pairs_of_all_models_are_rows():
    frame = synthetic_frame(both())
    assert size(frame) == 2 * (16 + 3) + (16 + 3)
    assert groups(frame, "world", "model") == [
        ("blobs_shift", "logistic"),
        ("blobs_shift", "mlp"),
        ("moons_warp", "mlp"),
    ]
    assert size(where(frame, world="moons_warp", severity=1.0, seed=2)) == 1


def test_variants_say_what_differs():
    frame = synthetic_frame([record(), record(labels="invariant"), record(options={"rotation": 30.0})])
    assert set(frame["variant"]) == {"labels travel", "labels invariant", "labels travel, rotation 30"}
    assert groups(frame, "variant", "plain")[1:] == [("labels invariant", False), ("labels travel, rotation 30", False)]


def test_a_world_without_a_choice_of_labels_keeps_them_invariant():
    """Nothing moves in mixture_shift: its P(y|x) is the source's, though its config has the default `travel`."""
    frame = synthetic_frame([record("mixture_shift"), record("a world whose file is gone")])
    assert groups(frame, "variant", "plain") == [("labels invariant", True), ("labels travel", True)]


def test_every_variant_is_calibrated_by_its_own_candidates():
    def halved(s, k):
        return (0.5 + 2 * s + 0.01 * k) / 2

    travel, kept = grid(), grid(labels="invariant", output_distance=halved)
    alone = [evaluated(synthetic_frame(part))["proxy_ot"] for part in (travel, kept)]
    together = evaluated(synthetic_frame([*travel, *kept]))
    for variant, expected in zip(("labels travel", "labels invariant"), alone, strict=True):
        assert where(together, variant=variant)["proxy_ot"].tolist() == expected.tolist()
    without = evaluated(synthetic_frame([*travel, record(labels="invariant")]))
    assert np.isnan(where(without, variant="labels invariant")["proxy_ot"]).all()


def test_c_h_is_the_ratio_of_medians_of_the_development_candidates():
    records = grid("moons_warp")
    frame = synthetic_frame(records)
    development = where(frame, development=True)
    c_h = calibration(development, where(frame, development=False))
    expected = np.median(development["output_distance"]) / np.median(
        development["sensitivity_target"] * development["distance"]
    )
    assert c_h["distance"] == pytest.approx(expected)
    scored = evaluated(frame)
    assert size(scored) == 16
    proxy = scored["output_distance"] + c_h["distance"] * scored["sensitivity_target"] * scored["distance"]
    assert np.allclose(scored["proxy_ot"], proxy)


@pytest.mark.parametrize("transport", [-4e-4, 0.3])
def test_scores_are_those_of_the_library(transport):
    """Also for a divergence that is a numerical zero below 0."""
    frame = where(synthetic_frame([record(transport=transport)]), model="mlp")
    c_h = {"distance": 0.7, "mmd": 0.4}
    frame |= proxies(frame, c_h)
    assert (frame["transport"] == transport).all()
    for i in range(size(frame)):
        row = {name: column[i] for name, column in frame.items()}
        for name in ("trace_w", "trace_mmd", "bound_ot", "bound_full_mmd", "bound_hybrid", "model_change", "distance"):
            assert row[name] == pytest.approx(SCORES[name].formula(row))
        for name, scale in (("proxy_ot", 0.7), ("proxy_mmd", 0.4)):
            assert row[name] == pytest.approx(SCORES[name].formula({**row, "c_h": scale}))


def test_an_evaluated_candidate_cannot_calibrate():
    same = record("moons_warp", development=True, seeds=[0], severities=[0.0, 0.25, 1.0])
    with pytest.raises(ValueError, match="development and evaluation share"):
        evaluated(synthetic_frame([record("moons_warp"), same]))


def test_where_the_shift_of_the_candidates_is_zero_c_h_is_undefined():
    scored = evaluated(synthetic_frame(grid("moons_warp", mmd_squared=-0.01)))
    assert np.isnan(scored["proxy_mmd"]).all()
    assert np.isfinite(scored["proxy_ot"]).all()


def test_without_development_there_is_no_proxy():
    scored = evaluated(synthetic_frame([record("moons_warp")]))
    assert np.isnan(scored["proxy_ot"]).all()
    assert np.isfinite(scored["bound_ot"]).all()


def test_rows_of_the_published_table_are_not_evaluated():
    assert size(evaluated(synthetic_frame([*grid(), record(shared_draw=True)]))) == 2 * 16


def test_columns_that_some_lack_are_nan_there():
    a, b = {"risk_change": np.ones(2), "w": np.ones(2)}, {"risk_change": np.ones(1)}
    assert np.isnan(stacked([a, b])["w"]).tolist() == [False, False, True]
    assert stacked([]) == {}
    assert size(where({}, world="x")) == 0


def test_isolation_knows_its_knob():
    frame = isolation_frame([isolation(), isolation(vary="severity", points=((0.0, 1e-3), (1.0, 1e-3)))])
    assert groups(frame, "world", "vary") == [("blobs_shift", "lr"), ("blobs_shift", "severity")]
