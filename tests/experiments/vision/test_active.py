"""Active selection from end to end on a small tree in DomainNet's layout, with a backbone of random weights."""

import json

import pytest

from experiments.active import Config, run
from experiments.engine.errors import UserError
from experiments.engine.run import Context
from experiments.pairs import measure
from experiments.vision import study
from experiments.vision.study import Study
from trace import evidence as shift
from trace.selection import names

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")
"""Of a handful of images; the record says so in `rkhs_at_edge`."""


@pytest.mark.parametrize("policy", ["w1min", "mmdmin", "random"])
def test_a_policy_labels_new_rows_in_every_round(tree, policy, new_context):
    config = Config(**{**tree, "policy": policy})
    metrics, again = run(config, new_context()), run(config, new_context())
    assert metrics == again
    assert metrics["columns"]["labeled"] == [4, 8]
    assert len(set(metrics["selected"])) == 8
    for name in (
        "risk_change",
        "output_distance",
        "transport",
        "batch_transport",
        "held_out_transport",
        "floor",
        "anchor_error_before",
        "target_error",
    ):
        assert len(metrics["columns"][name]) == 2
    assert metrics["columns"]["batch_transport"][0] == pytest.approx(metrics["columns"]["transport"][0], rel=1e-4)


class Killed(BaseException):
    pass


@pytest.mark.parametrize("kill_at", [1, 3, 4, 5, 7])
def test_a_run_that_was_killed_goes_on_to_the_same_record(tree, new_context, monkeypatch, kill_at):
    """In Q's training, in that of a round, between two rounds, in the second one, and at the end."""
    config = Config(**{**tree, "policy": "w1min", "source_epochs": 2, "epochs": 2})
    expected, saves, save = run(config, new_context()), [], Context.save

    def save_or_die(context, state):
        save(context, state)
        saves.append(set(state) - {"source model"})
        if len(saves) == kill_at:
            raise Killed

    monkeypatch.setattr(Context, "save", save_or_die)
    context = new_context()
    with pytest.raises(Killed):
        run(config, context)
    assert run(config, context) == expected
    round_of_two = [{"training"}, {"training"}, {"rounds"}, {"rounds", "training"}, {"rounds", "training"}, {"rounds"}]
    assert saves == [set(), set(), *round_of_two], "two epochs of each: none is done twice"
    curves = (context.directory.path / "curves.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in curves] == [1, 2]


def test_what_no_round_changes_is_solved_once_a_run(tree, monkeypatch, new_context):
    """The floor of the source, and its transport to itself."""
    solved = []
    for module, name in ((measure, "sinkhorn_floor"), (shift, "sinkhorn_floor"), (shift, "self_transport")):
        inner = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, n=name, f=inner, **k: solved.append(n) or f(*a, **k))
    metrics = run(Config(**tree), new_context())
    assert solved == ["sinkhorn_floor", "self_transport"]
    assert len(set(metrics["columns"]["floor"])) == 1


def test_policies_choose_differently(tree, new_context):
    chosen = {name: tuple(run(Config(**{**tree, "policy": name}), new_context())["selected"]) for name in names()}
    assert len(set(chosen.values())) == len(chosen) >= 3


def test_what_no_round_changes_is_solved_once_for_all_policies_of_a_seed(tree, new_context, monkeypatch, tmp_path):
    solved, trained = [], []
    for module, name, calls in ((measure, "sinkhorn_floor", solved), (study, "train", trained)):
        inner = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, f=inner, c=calls, **k: c.append(1) or f(*a, **k))
    for policy in ("random", "w1min"):
        run(Config(**{**tree, "policy": policy}), new_context(tmp_path / "runs"))
    assert (len(solved), len(trained)) == (1, 1)
    run(Config(**{**tree, "policy": "random", "seed": 1}), new_context(tmp_path / "runs"))
    assert (len(solved), len(trained)) == (2, 2)


def test_seeds_take_their_own_rows(tree):
    first, second = (Study.of(Config(**{**tree, "seed": seed})).domain("real").train for seed in (0, 1))
    assert len(first) == len(second)
    assert not first.x.equal(second.x)


def test_mistakes_are_named(tree, new_context):
    with pytest.raises(UserError, match="policy must be one of mmdmin, random, w1min"):
        run(Config(**{**tree, "policy": "best"}), new_context())
    with pytest.raises(UserError, match="has no domain 'clay'"):
        run(Config(**{**tree, "target": "clay"}), new_context())
    with pytest.raises(
        UserError, match=r"2 rounds of 400 labels need 800 images, and the pool of painting has 10: low"
    ):
        run(Config(**{**tree, "batch": 400}), new_context())
    for key in ("batch", "rounds"):
        with pytest.raises(UserError, match=f"{key}.* 0.*both must be at least 1"):
            run(Config(**{**tree, key: 0}), new_context())
    with pytest.raises(UserError, match="train_share is 0"):
        run(Config(**{**tree, "train_share": 0.0}), new_context())


def test_a_pool_too_small_is_said_before_anything_is_trained(tree, monkeypatch, new_context):
    monkeypatch.setattr(Study, "source_model", lambda *_: pytest.fail("trained Q first"))
    with pytest.raises(UserError, match="need 18 images, and the pool of painting has 10"):
        run(Config(**{**tree, "batch": 6, "rounds": 3}), new_context())


def test_empty_splits_and_classes(tree, tmp_path, new_context):
    """A class that no split names is no class; one image cannot be split; none is said with its domain and split."""
    path = tmp_path / "tree" / "painting_train.txt"
    lines = path.read_text().splitlines()
    config = Config(**{**tree, "policy": "random", "batch": 2})
    path.write_text("\n".join(line for line in lines if not line.endswith(" 1")))
    assert run(config, new_context())["num_classes"] == 6
    path.write_text(lines[0])
    with pytest.raises(UserError, match="painting has 1 training images: at least 2 are needed"):
        run(config, new_context())
    path.write_text("")
    with pytest.raises(UserError, match="small has no image of painting train"):
        run(config, new_context())
    path.unlink()
    with pytest.raises(UserError, match=r"painting_train.txt does not exist"):
        run(config, new_context())
