"""The gate from end to end on a small tree: every kind of candidate, with what must hold by construction."""

from dataclasses import replace

import numpy as np
import pytest

from experiments import gate
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.engine.run import Context
from experiments.gate import FineTune, run
from experiments.vision import study
from tests.experiments.vision.checkpoints import Killed

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")


@pytest.fixture
def configs(tree):
    """Those of the smoke grid, by the name of their candidate."""
    runs = expand("gate", ["config=smoke", f"data={tree['data']}"])
    return {point.config.candidate.name: point.config for point in runs}


@pytest.fixture
def config(configs):
    return configs["head"]


def kept(context):
    return np.load(context.directory.path / "outputs.npz", allow_pickle=False)


def test_every_candidate_is_a_run_of_its_own_and_repeats_itself(configs, new_context):
    assert list(configs) == ["head", "block", "rehearsal", "constant", "blind-harm"]
    rows = {name: run(config, new_context()) for name, config in configs.items()}
    assert len({tuple(row) for row in rows.values()}) == 1
    assert len({row["risk_change"] for row in rows.values()}) == 5
    assert {row["anchor_error_before"] for row in rows.values()} == {rows["head"]["anchor_error_before"]}
    again = run(configs["block"], new_context())
    skipped = again.pop("skipped")
    assert skipped == rows["block"]["skipped"]
    for name, value in again.items():
        assert np.allclose(value, rows["block"][name], rtol=1e-4, atol=1e-6, equal_nan=True), name


def test_what_candidates_of_a_seed_share_is_computed_once(configs, new_context, monkeypatch, tmp_path):
    """Q and the distances by the first run of a store, what Q's last block sees by the first that moves it."""
    calls = {"q": 0, "candidate": 0, "shift": 0}

    def count(what, module, name):
        inner = getattr(module, name)

        def counted(*arguments, **options):
            calls[what] += 1
            return inner(*arguments, **options)

        monkeypatch.setattr(module, name, counted)

    count("q", study, "train")
    count("candidate", gate, "train")
    count("shift", gate, "measure_shift")
    store = tmp_path / "runs"
    together = {name: run(config, new_context(store)) for name, config in configs.items()}
    assert calls == {"q": 1, "candidate": 5, "shift": 1}
    views = sorted(path.name for path in store.glob(".shared/view/*.pt"))
    assert len(views) == 2  # both domains at the depth of a block; a head sees the features themselves
    run(replace(configs["block"], candidate=FineTune(name="other", depth="block", epochs=1)), new_context(store))
    assert sorted(path.name for path in store.glob(".shared/view/*.pt")) == views
    run(replace(configs["head"], seed=1), new_context(store))
    assert calls == {"q": 2, "candidate": 7, "shift": 2}
    for name in ("head", "block"):
        assert together[name] == run(configs[name], new_context()), "alone it finds the same"


def test_the_kept_outputs_are_those_of_the_measured_models(config, new_context):
    """Q is trained until half a float tells its classes apart."""
    context = new_context()
    metrics = run(replace(config, source_lr=0.1, source_epochs=20), context)
    outputs = kept(context)
    splits = ("source_val", "source_test", "target_val", "target_test")
    assert set(outputs) == {f"{split}_{part}" for split in splits for part in ("q", "update", "y")}
    for split in splits:
        assert outputs[f"{split}_q"].shape == (len(outputs[f"{split}_y"]), metrics["num_classes"])
        assert outputs[f"{split}_q"].dtype == np.float16

    def error(split, model):
        return (outputs[f"{split}_{model}"].argmax(axis=1) != outputs[f"{split}_y"]).mean()

    assert error("source_test", "q") == pytest.approx(metrics["anchor_error_before"], rel=1e-5)
    assert error("target_test", "q") == pytest.approx(metrics["target_error_before"], rel=1e-5)
    assert error("target_test", "update") == pytest.approx(metrics["target_error"], rel=1e-5)
    change = error("source_test", "update") - error("source_test", "q")
    assert change == pytest.approx(metrics["error_change"], abs=1e-6)


def test_a_constant_moves_outputs_and_no_risk(configs, new_context):
    with_constant = configs["constant"]
    without = replace(with_constant, candidate=replace(with_constant.candidate, constant=0.0))
    moved, plain = (run(config, new_context()) for config in (with_constant, without))
    assert moved["error_change"] == plain["error_change"]
    assert moved["anchor_disagreement"] == plain["anchor_disagreement"]
    assert moved["output_distance"] > plain["output_distance"] + 3


def test_a_gate_without_a_candidate_says_so(config, new_context):
    with pytest.raises(UserError, match="there is no candidate: name a variant that lists them"):
        run(replace(config, candidate=FineTune()), new_context())


def test_an_unknown_depth_is_refused(config, new_context):
    with pytest.raises(UserError, match="depth 'neck' is unknown: take one of head, block, full"):
        run(replace(config, candidate=FineTune(name="deep", depth="neck")), new_context())


def test_a_whole_network_is_a_candidate(config, new_context, tmp_path):
    """With steps of nothing it is Q, up to the order of sums; with real ones it is another update than the head's."""
    candidates = [FineTune(name="full", depth="full", lr=lr, epochs=1) for lr in (1e-12, 0.01)]
    candidates.append(FineTune(name="full", lr=0.01, epochs=1))
    still, moved, head = (run(replace(config, candidate=c), new_context(tmp_path / "runs")) for c in candidates)
    assert still["error_change"] == 0
    assert still["output_distance"] < 1e-9 < moved["output_distance"]
    assert moved["output_distance"] != pytest.approx(head["output_distance"], rel=1e-3)


@pytest.mark.parametrize("depth", ["head", "full"])
@pytest.mark.parametrize("kill_at", [1, 2, 3, 4])
def test_a_run_that_was_killed_goes_on_to_the_same_record(config, new_context, monkeypatch, depth, kill_at):
    """In Q's training, at its end, in the candidate's, and at its end."""
    made = replace(config, candidate=FineTune(name="update", depth=depth, lr=0.01, epochs=2))
    whole, saves, save = new_context(), [], Context.save
    expected = run(made, whole)

    def save_or_die(context, state):
        save(context, state)
        saves.append(set(state))
        if len(saves) == kill_at:
            raise Killed

    monkeypatch.setattr(Context, "save", save_or_die)
    context = new_context()
    with pytest.raises(Killed):
        run(made, context)
    assert not (context.directory.path / "outputs.npz").exists()
    assert run(made, context) == expected
    q, both = {"source model"}, {"source model", "candidate"}
    assert saves in ([q, q, both, both], [q, q, {"candidate"}, {"candidate"}])  # two epochs of each: none is done twice
    for name, values in kept(whole).items():
        assert np.array_equal(values, kept(context)[name]), name


def test_controls_are_updates_of_the_same_models():
    """They are ranked beside the fine-tunes of their seed."""
    shared = ("seed", "source", "target", "source_lr", "source_epochs", "train_share")
    plain, controls = (
        {tuple(getattr(point.config, name) for name in shared) for point in expand("gate", [f"config={variant}"])}
        for variant in ("cpu", "controls")
    )
    assert len(plain) == 8
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
    assert len(runs) == 20 * seeds
    for seed in range(seeds):
        assert len({made.config.candidate.name for made in runs if made.config.seed == seed}) == 20
