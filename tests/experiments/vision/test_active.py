"""Active selection from end to end on a small tree in DomainNet's layout, with a backbone of random weights."""

import pytest

from experiments import active
from experiments.active import Config, choose, run
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.vision.study import Study
from tests.experiments.vision.trees import DOMAINS, domainnet_tree
from trace import evidence as shift

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")
"""Of a handful of images; the record says so in `rkhs_at_edge`."""


class Silent:
    """A context that logs nowhere and keeps no checkpoint."""

    def log(self, step, **values):
        pass

    def save(self, state):
        pass

    def load(self):
        return None


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """The config keys of a small tree, with caches of its own."""
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    domainnet_tree(tmp_path / "tree", per_class=4)
    page = tmp_path / "small.yaml"
    page.write_text(f"name: small\nroot: {tmp_path / 'tree'}\ndomains: [{', '.join(DOMAINS)}]\n")
    (point, *_) = expand("active", ["config=smoke"])
    return {**point.values, "data": str(page)}


@pytest.mark.parametrize("policy", ["w1min", "mmdmin", "random"])
def test_a_policy_labels_new_rows_in_every_round(tree, policy):
    config = Config(**{**tree, "policy": policy})
    metrics, again = run(config, Silent()), run(config, Silent())
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


def test_what_no_round_changes_is_solved_once_a_run(tree, monkeypatch):
    """The floor of the source, and its transport to itself."""
    solved = []
    for module, name in ((active, "sinkhorn_floor"), (shift, "sinkhorn_floor"), (shift, "self_transport")):
        inner = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, n=name, f=inner, **k: solved.append(n) or f(*a, **k))
    metrics = run(Config(**tree), Silent())
    assert solved == ["sinkhorn_floor", "self_transport"]
    assert len(set(metrics["columns"]["floor"])) == 1


def test_policies_choose_differently(tree):
    chosen = {}
    for policy in ("w1min", "mmdmin", "random"):
        config = Config(**{**tree, "policy": policy})
        study = Study.of(config)
        source, target = study.domain("real"), study.domain("painting")
        chosen[policy] = tuple(choose(config, source, target.train.x.float(), source.train.y[:0], 1, None).tolist())
    assert len(set(chosen.values())) == 3


def test_seeds_take_their_own_rows(tree):
    first, second = (Study.of(Config(**{**tree, "seed": seed})).domain("real").train for seed in (0, 1))
    assert len(first) == len(second)
    assert not first.x.equal(second.x)


def test_mistakes_are_named(tree):
    with pytest.raises(UserError, match="policy must be one of w1min, mmdmin, random"):
        run(Config(**{**tree, "policy": "best"}), Silent())
    with pytest.raises(UserError, match="has no domain 'clay'"):
        run(Config(**{**tree, "target": "clay"}), Silent())
    with pytest.raises(
        UserError, match=r"2 rounds of 400 labels need 800 images, and the pool of painting has 10: low"
    ):
        run(Config(**{**tree, "batch": 400}), Silent())
    for key in ("batch", "rounds"):
        with pytest.raises(UserError, match=f"{key}.* 0.*both must be at least 1"):
            run(Config(**{**tree, key: 0}), Silent())
    with pytest.raises(UserError, match="train_share is 0"):
        run(Config(**{**tree, "train_share": 0.0}), Silent())


def test_a_pool_too_small_is_said_before_anything_is_trained(tree, monkeypatch):
    monkeypatch.setattr(Study, "source_model", lambda *_: pytest.fail("trained Q first"))
    with pytest.raises(UserError, match="need 18 images, and the pool of painting has 10"):
        run(Config(**{**tree, "batch": 6, "rounds": 3}), Silent())


def test_empty_splits_and_classes(tree, tmp_path):
    """A class that no split names is no class; one image cannot be split; none is said with its domain and split."""
    path = tmp_path / "tree" / "painting_train.txt"
    lines = path.read_text().splitlines()
    config = Config(**{**tree, "policy": "random", "batch": 2})
    path.write_text("\n".join(line for line in lines if not line.endswith(" 1")))
    assert run(config, Silent())["num_classes"] == 6
    path.write_text(lines[0])
    with pytest.raises(UserError, match="painting has 1 training images: at least 2 are needed"):
        run(config, Silent())
    path.write_text("")
    with pytest.raises(UserError, match="small has no image of painting train"):
        run(config, Silent())
    path.unlink()
    with pytest.raises(UserError, match=r"painting_train.txt does not exist"):
        run(config, Silent())
