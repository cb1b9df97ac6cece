"""The gate from end to end on a small tree: every kind of candidate, with what must hold by construction."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments import gate
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.engine.run import Context
from experiments.gate import FineTune, run
from experiments.vision import study
from tests.experiments.vision.checkpoints import Killed
from trace.baselines import disagreement
from trace.estimators.anchor import anchor_terms

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
    """What outputs decide follows from them in every digit of the record."""
    context = new_context()
    metrics = run(config, context)
    outputs = kept(context)
    splits = {"source_val": np.float32, "source_test": np.float16, "target_val": np.float32, "target_test": np.float16}
    classes = {f"{split}_{model}_class" for split in ("source_test", "target_test") for model in ("q", "update")}
    assert set(outputs) == {f"{split}_{part}" for split in splits for part in ("q", "update", "y")} | classes
    for split, dtype in splits.items():
        assert outputs[f"{split}_q"].shape == (len(outputs[f"{split}_y"]), metrics["num_classes"])
        assert outputs[f"{split}_q"].dtype == dtype

    def error(split, model):
        return (outputs[f"{split}_{model}_class"] != outputs[f"{split}_y"]).mean()

    assert error("source_test", "q") == pytest.approx(metrics["anchor_error_before"], rel=1e-5)
    assert error("target_test", "q") == pytest.approx(metrics["target_error_before"], rel=1e-5)
    assert error("target_test", "update") == pytest.approx(metrics["target_error"], rel=1e-5)
    change = error("source_test", "update") - error("source_test", "q")
    assert change == pytest.approx(metrics["error_change"], abs=1e-9)
    old, new = (torch.tensor(outputs[f"source_val_{model}"]) for model in ("q", "update"))
    terms = anchor_terms(old, new, config.loss())
    for name in ("disagreement", "worst_label", "plug_in", "error_plug_in"):
        assert getattr(terms, name).value == pytest.approx(metrics[f"anchor_{name}"], rel=1e-5), name
    old, new = (torch.tensor(outputs[f"target_val_{model}"]) for model in ("q", "update"))
    assert metrics["held_out_distance"] == pytest.approx(float((new - old).norm(dim=1).mean()), rel=1e-5)
    assert metrics["disagreement_target"] == pytest.approx(disagreement(old, new), rel=1e-5)


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


def test_replications_have_twenty_updates_each_and_those_of_lite0_are_the_stand_ins():
    """Nothing was chosen on the data of a replication: updates and Q are the same everywhere."""
    configs = [point.config for v in ("cpu", "pacs", "emoji-backbones") for point in expand("gate", [f"config={v}"])]
    assert len({(config.source_lr, config.source_epochs, config.train_share) for config in configs}) == 1
    found = {}
    for c in configs:
        found.setdefault((c.data, c.source, c.target, c.arch, c.size, c.seed), []).append(c.candidate)
    sizes = {"tf_efficientnet_lite0": 224, "mobilenetv2_100": 224, "inception_v3": 299}
    pairs = [("pacs", "photo", "sketch"), ("pacs", "art_painting", "sketch"), ("emoji", "real", "sketch")]
    assert set(found) == {(*p, arch, size, seed) for p in pairs for arch, size in sizes.items() for seed in range(8)}
    stand_in = found["emoji", "real", "sketch", "tf_efficientnet_lite0", 224, 0]
    for (_, _, _, arch, _, _), candidates in found.items():
        assert len({candidate.name for candidate in candidates}) == len(candidates) == 20
        assert candidates[:10] == stand_in[:10]
        if arch == "tf_efficientnet_lite0":
            assert candidates == stand_in
        else:
            assert {candidate.depth for candidate in candidates} == {"head"}


@pytest.mark.parametrize(("name", "seeds"), [("cpu", 8), ("paper", 4)])
def test_the_published_number_of_candidates(name, seeds):
    runs = expand("gate", [f"config={name}"])
    assert len(runs) == 20 * seeds
    for seed in range(seeds):
        assert len({made.config.candidate.name for made in runs if made.config.seed == seed}) == 20
