"""The gate from end to end on a small tree: every kind of candidate, with what must hold by construction."""

import numpy as np
import pytest

from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.gate import Candidate, Config, run
from tests.experiments.vision.checkpoints import Kept, Killed
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


def test_a_gate_without_candidates_says_so(config):
    with pytest.raises(UserError, match="there are no candidates"):
        run(Config(**{**vars(config), "candidates": []}), Silent())


def test_an_unknown_depth_is_refused(config):
    candidates = [Candidate(name="deep", depth="neck")]
    with pytest.raises(UserError, match="depth 'neck' is unknown: take one of head, block, full"):
        run(Config(**{**vars(config), "candidates": candidates}), Silent())


def test_a_whole_network_is_a_candidate(config):
    """With steps of nothing it is Q, up to the order of sums; with real ones it is another update than the head's."""
    still, moved = (Candidate(name="full", depth="full", lr=lr, epochs=1) for lr in (1e-12, 0.01))
    head = Candidate(name="full", lr=0.01, epochs=1)
    rows = run(Config(**{**vars(config), "candidates": [still, moved, head]}), Silent())["columns"]
    assert rows["error_change"][0] == 0
    assert rows["output_distance"][0] < 1e-9 < rows["output_distance"][1]
    assert rows["output_distance"][1] != pytest.approx(rows["output_distance"][2], rel=1e-3)


class Interrupted(Kept):
    """A context that ends the run at the given save."""

    def __init__(self, kill_at):
        super().__init__(kill_at)
        self.logged = []

    def log(self, step, **values):
        self.logged.append(step)


@pytest.mark.parametrize("kill_at", [1, 4, 5, 7])
def test_a_run_that_was_killed_goes_on_to_the_same_record(config, kill_at):
    """In Q's training, in a candidate's, after its row, and in the whole network's."""
    candidates = [Candidate(name="head", lr=0.01, epochs=2), Candidate(name="full", depth="full", lr=0.01, epochs=2)]
    made = Config(**{**vars(config), "candidates": candidates})
    context = Interrupted(kill_at)
    with pytest.raises(Killed):
        run(made, context)
    again = run(made, context)
    assert again == run(made, Silent())
    assert context.saves == 2 + 2 * 3  # two epochs of Q, and of each candidate two epochs and a row: none is done twice
    assert context.logged == [0, 1]


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
