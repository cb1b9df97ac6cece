"""Anchor-aware training from end to end: both studies at smoke size, and the grid that is run."""

import pytest

from experiments.anchoring import SHARED, WEIGHTED, Config, run
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.vision.study import Study


@pytest.mark.parametrize("study", ["moons_warp", "images"])
def test_every_method_is_measured_and_the_run_repeats_itself(tree, study, new_context):
    (point,) = expand("anchoring", ["config=smoke", f"study={study}", f"data={tree['data']}"])
    metrics = run(point.config, new_context())
    assert metrics == run(point.config, new_context())
    assert set(metrics["methods"]) == {"plain", *WEIGHTED, *SHARED}
    assert {len(column) for column in metrics["columns"].values()} == {len(metrics["methods"])}
    rows = [
        dict(zip(metrics["columns"], values, strict=True)) for values in zip(*metrics["columns"].values(), strict=True)
    ]
    assert len({row["anchor_error_before"] for row in rows}) == 1
    for row in rows:
        assert abs(row["error_change"]) <= 1
        assert -1e-6 <= row["anchor_plug_in"] <= row["anchor_worst_label"] + 1e-6 <= row["anchor_lipschitz"] + 2e-6
        assert row["anchor_worst_label"] < row["anchor_upper"]
    plain = rows[metrics["methods"].index("plain")]
    plug_in = [row for name, row in zip(metrics["methods"], rows, strict=True) if name == "plug_in"]
    assert plain["anchor_plug_in"] > plug_in[0]["anchor_plug_in"] > plug_in[1]["anchor_plug_in"]


def test_the_grid_has_two_studies_with_eight_seeds_and_eight_weights():
    runs = expand("anchoring", [])
    assert [(r.config.study, r.config.seed) for r in runs] == [
        (s, i) for s in ("moons_warp", "images") for i in range(8)
    ]
    assert {len(runs[0].config.strengths[method]) for method in WEIGHTED} == {8}


def test_mistakes_are_named(new_context):
    with pytest.raises(UserError, match="study must be one of moons_warp, images"):
        run(Config(study="blobs"), new_context())
    with pytest.raises(UserError, match="did you mean recipes"):
        expand("anchoring", ["recipe=1"])


def test_q_follows_the_samples_to_the_device(tree, monkeypatch, new_context):
    """`Study.source_model` gives Q on the CPU; the samples are on the config's device."""
    moved, inner = [], Study.source_model

    def watched(study, *rest):
        q = inner(study, *rest)
        monkeypatch.setattr(q, "to", lambda device: moved.append(device) or q, raising=False)
        return q

    monkeypatch.setattr(Study, "source_model", watched)
    (point,) = expand("anchoring", ["config=smoke", "study=images", f"data={tree['data']}"])
    run(point.config, new_context())
    assert moved == ["cpu"]
