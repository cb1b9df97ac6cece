"""The gate on a small table: every kind of candidate, one Q, and what must hold by construction."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.gate import FineTune, run
from experiments.pairs.measure import WHERE_KNOWN
from trace.baselines import cbpe

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")


@pytest.fixture
def config(few_people):
    point, *_ = expand("gate", ["config=acs", "arch=perceptron", "seed=0", "train_share=0.3", "source_epochs=8"])
    return point.config


def test_every_kind_of_candidate_is_measured_and_repeats_itself(config, new_context, tmp_path):
    candidates = [
        FineTune(name="tuned", lr=0.03, epochs=2),
        FineTune(name="new", learner="new", lr=0.03, epochs=2),
        FineTune(name="logistic", learner="logistic", lost=["SCHL"]),
        FineTune(name="perceptron", learner="perceptron", lr=0.01, epochs=5, noise=0.5),
    ]
    rows = [run(replace(config, candidate=c), new_context(tmp_path / "runs")) for c in candidates]
    assert len({tuple(name for name in row if name not in WHERE_KNOWN) for row in rows}) == 1
    assert ["certified_target" in row for row in rows] == [False, False, True, True]
    assert len({row["anchor_error_before"] for row in rows}) == 1
    assert len({row["transport"] for row in rows}) == 1
    assert len({row["output_distance"] for row in rows}) == 4
    assert all(np.isfinite(value) for row in rows for name, value in row.items() if name != "skipped")
    assert rows[0]["num_classes"] == 2
    assert len(list((tmp_path / "runs").glob(".shared/source-model/*.pt"))) == 1
    assert [run(replace(config, candidate=c), new_context()) for c in candidates] == rows


def test_the_kept_outputs_give_the_baseline_and_the_change(config, new_context):
    context = new_context()
    update = FineTune(name="noise", learner="perceptron", lr=0.01, epochs=20, noise=0.6)
    metrics = run(replace(config, candidate=update), context)
    outputs = np.load(context.directory.path / "outputs.npz", allow_pickle=False)

    def logits(name):
        return torch.tensor(outputs[name]).double()

    predicted = cbpe(logits("target_val_update"), torch.tensor(outputs["target_val_y"]), logits("source_val_update"))
    assert predicted == pytest.approx(metrics["cbpe"], abs=0.01)
    wrong = [(outputs[f"source_test_{m}"].argmax(axis=1) != outputs["source_test_y"]).mean() for m in ("q", "update")]
    assert wrong[1] - wrong[0] == pytest.approx(metrics["error_change"], abs=0.005)


def test_an_update_that_learns_nothing_changes_nothing(config, new_context):
    metrics = run(replace(config, candidate=FineTune(name="still", lr=1e-12, epochs=1)), new_context())
    assert metrics["error_change"] == metrics["anchor_disagreement"] == 0
    assert metrics["output_distance"] < 1e-8


def test_a_constant_moves_outputs_and_no_risk(config, new_context):
    update = FineTune(name="same", lr=0.03, epochs=1)
    plain, moved = (run(replace(config, candidate=replace(update, constant=c)), new_context()) for c in (0.0, 3.0))
    assert moved["error_change"] == plain["error_change"]
    assert moved["output_distance"] > plain["output_distance"] + 3


def test_what_tables_and_images_do_not_have_is_refused(config, new_context, tree):
    with pytest.raises(UserError, match="a candidate of a table has no depth to choose"):
        run(replace(config, candidate=FineTune(name="deep", depth="block")), new_context())
    with pytest.raises(UserError, match="acs has no domain 'sketch'"):
        run(replace(config, target="sketch"), new_context())
    (image, *_) = expand("gate", ["config=smoke", f"data={tree['data']}"])
    with pytest.raises(UserError, match="learner, noise and lost belong to candidates of tables"):
        run(replace(image.config, candidate=FineTune(name="odd", noise=0.1)), new_context())


def test_the_grid_has_twenty_updates_of_each_q():
    runs = expand("gate", ["config=acs"])
    assert len(runs) == 2 * 20 * 8
    assert len({(point.config.arch, point.config.seed) for point in runs}) == 16
    assert len({point.config.candidate.name for point in runs}) == 20
