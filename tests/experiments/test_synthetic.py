"""The synthetic experiment: small cells through the real pipeline, and the numbers of the library's own diagnostic."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from pandas import DataFrame

from experiments import synthetic
from experiments.analysis.frame import derived
from experiments.analysis.synthetic import synthetic_frame, variant
from experiments.engine.config import Run, expand
from experiments.engine.errors import UserError
from experiments.engine.run import execute
from experiments.engine.seeds import seeded
from experiments.engine.store import RunDirectory
from experiments.pairs.cell import FEWER
from experiments.pairs.measure import WHERE_KNOWN
from experiments.pairs.train import ModelSpec, draw_source, draw_target, feature_map, fit_sources, fit_updates, members
from trace import diagnose
from trace.losses import ClippedCrossEntropy
from trace.worlds import world

SMALL = ["config=smoke"]
LOSS = ClippedCrossEntropy()


def small(**changes):
    fields = {"n": 200, "n_target": 150, "severities": [0.0, 1.0], "seeds": [0, 1], "test_size": 2000}
    return synthetic.Config(**{**fields, **changes})


def test_defaults_follow_the_protocol_of_the_world():
    assert [spec.name for spec in synthetic.Config().models] == ["logistic", "mlp"]
    assert synthetic.Config(world="moons_warp").models == [ModelSpec()]
    runs = {run.run_id for run in expand("synthetic", [])}
    assert len(runs) == len(expand("synthetic", []))


@pytest.mark.parametrize("name", ["cpu", "paper", "smoke"])
def test_every_variant_of_a_grid_has_development_candidates(name):
    runs = [run.values for run in expand("synthetic", [f"config={name}"])]
    settings = [{(c["world"], variant(c)) for c in runs if c["development"] == flag} for flag in (True, False)]
    assert settings[0] == settings[1]


def test_a_cell_has_every_pair_once_and_repeats_itself(new_context):
    config = small(world="blobs_shift")
    first, second = (synthetic.run(config, new_context()) for _ in range(2))
    assert first == second
    for model in ("logistic", "mlp"):
        columns = first[model]["columns"]
        keys = list(zip(columns["severity"], columns["weight_decay"], columns["seed"], strict=True))
        assert len(keys) == len(set(keys)) == 2 * 3 * 2
    assert json.dumps(first)


def test_rows_are_the_librarys_diagnostic(new_context):
    """What the frame derives from a stored row is what `diagnose` says about the same two models."""
    spec = ModelSpec("mlp", [8], "tanh", "penultimate", [1e-3], 1e-2, 3, 1e-2, 3)
    config = small(world="moons_warp", seeds=[0], severities=[1.0], models=[spec])
    record = {"config": Run("synthetic", config).values, "metrics": synthetic.run(config, new_context())}
    stored = synthetic_frame([record]).iloc[0]
    made = world("moons_warp", severity=1.0)
    source, target = draw_source(made, 200, 0), draw_target(made, 150, 0)
    q = fit_sources(spec, {0: source})
    old = q.stack.member(0)
    new = fit_updates(spec, q, {(1.0, 0): target}, members([1.0], spec, [0])).member(0)
    report = diagnose(
        old, new, source.train, target.train, source_val=source.val, target_val=target.val,
        feature_map=feature_map(spec, old), anchor_test=made.source(2000, generator=seeded("test")),
    )  # fmt: skip
    expected = report.as_dict()
    for form in ("ot", "mmd", "hybrid"):
        assert stored[f"bound_{form}"] == pytest.approx(expected[f"bound_{form}"], rel=1e-5)
        assert stored[f"bound_full_{form}"] == pytest.approx(expected[f"bound_full_{form}"], rel=1e-5)
        assert stored[f"emp_shift_{form}"] == pytest.approx(expected[f"emp_shift_{form}"], rel=1e-4)
    for name in ("risk_change", "gap_source", "gap_target", "model_change"):
        assert stored[name] == pytest.approx(expected[name], rel=1e-4)
    assert stored["anchor_worst_label"] == pytest.approx(expected["anchor"]["worst_label"]["value"], rel=1e-5)
    for name in WHERE_KNOWN:
        assert stored[name] == pytest.approx(report.columns()[name], rel=1e-4)
    losses = [LOSS(new(s.x), s.y).mean() for s in (cosp_test(made), made.source(2000, generator=seeded("test")))]
    assert stored["cosp"] == pytest.approx(float(abs(losses[0] - losses[1]).detach()), rel=1e-3)
    assert stored["clip_changed"] == 0
    two_terms = math.sqrt(2) * stored["held_out_distance"] + stored["wasserstein1_input"] * (
        stored["largest_gradient_source"] + stored["largest_gradient_target"]
    )
    assert stored["bound_direct"] == pytest.approx(two_terms, rel=1e-5)
    assert stored["largest_gradient_source"] <= stored["certified_source"]
    assert stored["bound_difference_certified"] >= stored["bound_difference"] >= stored["abs_risk_change"]


def cosp_test(made):
    """The target's test sample of a cell whose anchor's has 2000 rows."""
    return made.target(2000 // FEWER, generator=seeded("target test", made.severity))


def test_large_samples_are_not_compared_exactly(new_context, monkeypatch):
    monkeypatch.setattr("experiments.pairs.measure.EXACT_SAMPLES", 169)
    columns = synthetic.run(small(world="blobs_shift", seeds=[0], severities=[1.0]), new_context())["mlp"]["columns"]
    assert "wasserstein1_input" not in columns
    assert "certified_source" in columns


def test_details_hold_the_exact_distance_and_a_portrait(new_context):
    kept = synthetic.run(small(details=True, shared_draw=True, n=400, n_target=400), new_context())["logistic"]
    assert set(kept["portraits"]) == {"0.0", "1.0"}
    drawn = kept["portraits"]["1.0"]
    for key in ("margins", "new_margins"):
        assert np.shape(drawn[key]) == (1, len(drawn["y"]), len(drawn["x"]))
    moved = np.array(kept["columns"]["severity"]) == 1
    w1 = np.array(kept["columns"]["wasserstein1"])[moved]
    assert np.allclose(w1, 1, atol=0.15)  # a translation by 1


def test_the_margins_of_a_portrait_change_sign_where_the_classes_meet(new_context):
    """The old model's boundary separates the source's classes at x = 0, the new one's at x = 1."""
    drawn = synthetic.run(small(details=True, shared_draw=True, n=500, n_target=500), new_context())["logistic"][
        "portraits"
    ]["1.0"]
    x = np.array(drawn["x"])
    for key, boundary in (("margins", 0.0), ("new_margins", 1.0)):
        middle = np.array(drawn[key])[0][len(drawn["y"]) // 2]
        assert abs(x[np.argmax(middle > 0)] - boundary) < 0.4


def test_invariant_labels_and_options_reach_the_world(new_context):
    config = small(labels="invariant", options={"rotation": 30.0})
    changed, plain = (
        np.array(synthetic.run(c, new_context())["logistic"]["columns"]["risk_change"]) for c in (config, small())
    )
    assert abs(plain[-6:]).mean() > 3 * abs(changed[-6:]).mean()
    assert small(world="mixture_shift", labels="invariant").labels == "fixed", "this world leaves no choice"
    with pytest.raises(ValueError, match="has no field 'spin'"):
        synthetic.run(small(options={"spin": 30.0}), new_context())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["synthetic", "severities=[]"], "severities is empty.*at least one value"),
        (["synthetic", "seeds=[]"], "seeds is empty"),
        (["synthetic", "models=[{weight_decays: []}]"], "weight_decays of model mlp is empty"),
        (["synthetic", "models=[{hidden: [8]},{hidden: [9]}]"], "models are named mlp, mlp: give each a name"),
        (["isolation", "model.weight_decays=[0,0.1]"], r"must hold one value, got \[0.0, 0.1\]"),
        (["isolation", "lrs=[]"], "lrs is empty"),
        (["isolation", "vary=size"], "vary must be lr, severity or n, got 'size'"),
        (["isolation", "vary=n"], "n_target goes with vary=n, got vary=n and n_target=0"),
    ],
)
def test_refusals_come_before_any_run(arguments, message):
    with pytest.raises(UserError, match=message):
        expand(arguments[0], ["config=smoke", *arguments[1:]])


def test_numbers_of_the_diagnostic_are_keys_of_the_run(new_context):
    """They make other runs with other numbers, and nothing else of the pairs moves."""
    plain, *_ = expand("synthetic", SMALL)
    changed, *_ = expand("synthetic", [*SMALL, "epsilon=0.05", "q=0.95"])
    assert changed.run_id != plain.run_id
    assert (changed.config.epsilon, changed.config.q) == (0.05, 0.95)
    before, after = (synthetic.run(made.config, new_context())["mlp"]["columns"] for made in (plain, changed))
    moved = {name for name, column in before.items() if column != after[name]}
    assert {"transport", "floor", "sensitivity_source", "sensitivity_target"} <= moved
    assert not moved & {"severity", "seed", "risk_change", "output_distance", "mmd_squared", "gap_source", "gap_target"}
    assert np.all(np.array(after["sensitivity_target"]) <= np.array(before["sensitivity_target"]))
    clipped = replace(plain.config, clip=0.5)
    assert Run("synthetic", clipped).run_id not in (plain.run_id, changed.run_id)
    losses = synthetic.run(clipped, new_context())["mlp"]["columns"]
    assert losses["risk_change"] != before["risk_change"]
    assert losses["transport"] == before["transport"]


def test_a_run_as_a_user_starts_it(tmp_path):
    (run, *_) = expand("synthetic", SMALL)
    assert execute(run, runs=tmp_path) == "computed"
    record = RunDirectory.of(run, tmp_path).record()
    assert record["profile"] == "smoke"
    assert set(record["metrics"]) == {spec.name for spec in run.config.models}
    assert execute(run, runs=tmp_path) == "done before"


def test_derived_terms_add_up():
    names = (
        "risk_change", "transport", "lipschitz_loss", "output_distance", "output_distance_squared", "rkhs_norm",
        "sensitivity_source", "sensitivity_target", "gap_source", "gap_target", "population_ot", "population_mmd",
        "label_noise", "validation_error",
    )  # fmt: skip
    f = derived(DataFrame({"mmd_squared": [4.0, -1.0], **dict.fromkeys(names, 1.0)}))
    assert f["mmd"].tolist() == [2, 0]
    assert f["bound_ot"].tolist() == [2 + 1 + 2] * 2
    assert f["bound_mmd"].tolist() == [2 + 1 + 2, 2 + 1 + 0]
    assert f["bound_hybrid"].tolist() == [2 + 1 + 1 + 2, 2 + 1 + 1]
    assert f["bound_full_ot"].tolist() == [5 + 3] * 2
