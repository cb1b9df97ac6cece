"""Stored cells as columns: selection, calibration that no evaluated candidate enters, gaps that stay visible."""

import numpy as np
import pytest

from experiments.analysis.frame import calibration, proxies, with_proxies
from experiments.analysis.isolation import isolation_frame
from experiments.analysis.synthetic import SETTING, evaluated_pairs, synthetic_frame
from tests.experiments.analysis.synthetic_records import both, grid, isolation, record
from trace.scores import SCORES


def different(frame, *names):
    """The different values of some columns, in the order of the rows."""
    return list(frame[list(names)].drop_duplicates().itertuples(index=False, name=None))


def test_all_pairs_of_all_models_are_rows():
    frame = synthetic_frame(both())
    assert len(frame) == 2 * (16 + 3) + (16 + 3)
    assert different(frame, "world", "model") == [
        ("blobs_shift", "logistic"),
        ("blobs_shift", "mlp"),
        ("moons_warp", "mlp"),
    ]
    assert len(frame.query("world == 'moons_warp' and severity == 1 and seed == 2")) == 1
    assert frame.index.is_unique


def test_variants_say_what_differs():
    frame = synthetic_frame([record(), record(labels="invariant"), record(options={"rotation": 30.0})])
    assert set(frame["variant"]) == {"labels travel", "labels invariant", "labels travel, rotation 30"}
    assert different(frame, "variant", "plain")[1:] == [
        ("labels invariant", False),
        ("labels travel, rotation 30", False),
    ]


def test_a_world_without_a_choice_of_labels_keeps_them_invariant():
    """Nothing moves in mixture_shift: its P(y|x) is the source's, and its config says so."""
    frame = synthetic_frame([record("mixture_shift"), record("a world whose file is gone")])
    assert different(frame, "variant", "plain") == [("labels invariant", True), ("labels travel", True)]


def test_every_variant_is_calibrated_by_its_own_candidates():
    def halved(s, k):
        return (0.5 + 2 * s + 0.01 * k) / 2

    travel, kept = grid(), grid(labels="invariant", output_distance=halved)
    alone = [evaluated_pairs(part)["proxy_ot"] for part in (travel, kept)]
    together = evaluated_pairs([*travel, *kept])
    for variant, expected in zip(("labels travel", "labels invariant"), alone, strict=True):
        assert together.loc[together["variant"] == variant, "proxy_ot"].tolist() == expected.tolist()
    without = evaluated_pairs([*travel, record(labels="invariant")])
    assert without.loc[without["variant"] == "labels invariant", "proxy_ot"].isna().all()
    assert without.loc[without["variant"] == "labels travel", "proxy_ot"].notna().all()


def test_c_h_is_the_ratio_of_medians_of_the_development_candidates():
    records = grid("moons_warp")
    frame = synthetic_frame(records)
    development = frame[frame["development"]]
    c_h = calibration(development, frame[~frame["development"]])
    expected = np.median(development["output_distance"]) / np.median(
        development["sensitivity_target"] * development["distance"]
    )
    assert c_h["distance"] == pytest.approx(expected)
    scored = with_proxies(frame, SETTING)
    assert len(scored) == 16
    proxy = scored["output_distance"] + c_h["distance"] * scored["sensitivity_target"] * scored["distance"]
    assert np.allclose(scored["proxy_ot"], proxy)


@pytest.mark.parametrize("transport", [-4e-4, 0.3])
def test_scores_are_those_of_the_library(transport):
    """Also for a divergence that is a numerical zero below 0."""
    frame = synthetic_frame([record(transport=transport)])
    for _, row in frame.assign(**proxies(frame, {"distance": 0.7, "mmd": 0.4})).iterrows():
        assert row["transport"] == transport
        for name in ("trace_w", "trace_mmd", "bound_ot", "bound_full_mmd", "bound_hybrid", "model_change", "distance"):
            assert row[name] == pytest.approx(SCORES[name].formula(row))
        for name, scale in (("proxy_ot", 0.7), ("proxy_mmd", 0.4)):
            assert row[name] == pytest.approx(SCORES[name].formula({**row, "c_h": scale}))


def test_an_evaluated_candidate_cannot_calibrate():
    same = record("moons_warp", development=True, seeds=[0], severities=[0.0, 0.25, 1.0])
    with pytest.raises(ValueError, match="development and evaluation share"):
        evaluated_pairs([record("moons_warp"), same])


def test_where_the_shift_of_the_candidates_is_zero_c_h_is_undefined():
    scored = evaluated_pairs(grid("moons_warp", mmd_squared=-0.01))
    assert np.isnan(scored["proxy_mmd"]).all()
    assert np.isfinite(scored["proxy_ot"]).all()


def test_without_development_there_is_no_proxy():
    scored = evaluated_pairs([record("moons_warp")])
    assert np.isnan(scored["proxy_ot"]).all()
    assert np.isfinite(scored["bound_ot"]).all()


def test_rows_of_the_published_table_are_not_evaluated():
    assert len(evaluated_pairs([*grid(), record(shared_draw=True)])) == 2 * 16


def test_columns_that_some_lack_are_nan_there():
    frame = synthetic_frame([record("moons_warp", wasserstein1=1.0), record("moons_warp", n=1000)])
    assert frame["wasserstein1"].isna().tolist() == [False] * 16 + [True] * 16


def test_where_nothing_is_evaluated_the_columns_stay():
    nothing = evaluated_pairs([grid()[1]])
    assert nothing.empty
    assert {"world", "proxy_ot", "proxy_mmd", "bound_ot"} <= set(nothing)


def test_isolation_knows_its_knob():
    frame = isolation_frame([isolation(), isolation(vary="severity", points=((0.0, 1e-3), (1.0, 1e-3)))])
    assert different(frame, "world", "vary") == [("blobs_shift", "lr"), ("blobs_shift", "severity")]
    assert different(frame, "vary", "knob") == [
        ("lr", 1e-4),
        ("lr", 1e-3),
        ("lr", 1e-2),
        ("severity", 0),
        ("severity", 1),
    ]
