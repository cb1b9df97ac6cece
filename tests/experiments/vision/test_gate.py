"""The gate from end to end on a small tree: every kind of candidate, with what must hold by construction."""

import numpy as np
import pytest
import torch

from experiments.config import expand
from experiments.errors import UserError
from experiments.gate import Config, label_free, run
from tests.experiments.vision.test_active import Silent, tree  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")


@pytest.fixture
def config(tree):  # noqa: F811
    (point,) = expand("gate", ["config=smoke", f"data={tree['data']}"])
    return point.config


def test_every_candidate_is_a_row_and_the_run_repeats_itself(config):
    metrics = run(config, Silent())
    assert metrics["names"] == ["head", "block", "rehearsal", "constant", "blind-harm"]
    assert {len(column) for column in metrics["columns"].values()} == {5}
    again = run(config, Silent())
    for name, column in metrics["columns"].items():
        assert np.allclose(column, again["columns"][name], rtol=1e-4, atol=1e-6), name


def test_a_constant_moves_outputs_and_no_risk(config):
    """The constant candidate is the head candidate's training with other draws: compare with itself without one."""
    (with_constant,) = [c for c in config.candidates if c.name == "constant"]
    without = type(with_constant)(name="constant", lr=with_constant.lr)
    rows = run(Config(**{**vars(config), "candidates": [with_constant, without]}), Silent())["columns"]
    assert rows["error_change"][0] == rows["error_change"][1]
    assert rows["anchor_disagreement"][0] == rows["anchor_disagreement"][1]
    assert rows["output_distance"][0] > rows["output_distance"][1] + 3


def test_baselines_point_to_harm():
    sure, unsure = 10 * torch.eye(3)[[0, 1, 2] * 5], torch.zeros(15, 3)
    y = torch.tensor([0, 1, 2] * 5)
    calm, alarmed = (label_free(z, sure, y, y, 3) for z in (sure, unsure))
    for name in ("negative_msp_source", "entropy_source", "energy_source", "doc", "cot"):
        assert alarmed[name] > calm[name], name
    assert alarmed["negative_msp_target"] == calm["negative_msp_target"]


def test_a_gate_without_candidates_says_so(config):
    with pytest.raises(UserError, match="there are no candidates"):
        run(Config(**{**vars(config), "candidates": []}), Silent())


def test_a_depth_that_is_not_cached_is_refused(config):
    candidates = [type(config.candidates[0])(name="deep", depth="full")]
    with pytest.raises(UserError, match="depth 'full' of a candidate is unknown"):
        run(Config(**{**vars(config), "candidates": candidates}), Silent())


def test_controls_are_updates_of_the_same_models():
    """They are ranked beside the fine-tunes of their seed."""
    shared = ("seed", "source", "target", "source_lr", "source_epochs", "train_share")
    plain, controls = (
        [[getattr(point.config, name) for name in shared] for point in expand("gate", [f"config={variant}"])]
        for variant in ("cpu", "controls")
    )
    assert plain == controls


def test_the_studies_share_one_q():
    """All of them name it Q on the same images, and its defaults leave it unfinished on the stand-in."""
    shared = ("data", "source", "arch", "source_lr", "source_epochs", "train_share")
    made = [
        tuple(getattr(point.config, name) for name in shared)
        for experiment in ("gate", "active", "anchoring")
        for point in expand(experiment, ["config=cpu"])
    ]
    assert len(set(made)) == 1


@pytest.mark.parametrize(("name", "seeds"), [("cpu", 8), ("paper", 4)])
def test_the_published_number_of_candidates(name, seeds):
    runs = expand("gate", [f"config={name}"])
    assert len(runs) == seeds
    for made in runs:
        names = [candidate.name for candidate in made.config.candidates]
        assert len(names) == len(set(names)) == 20
