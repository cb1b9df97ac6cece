"""The diagnose command end to end: the same numbers as the library, everything in every output, errors as sentences."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from trace import Sample, Settings, diagnose
from trace.io.rows import Part, hold_out

from ..conftest import net, rows


@pytest.fixture
def models(update):
    return "--model", update / "old.pt", "--new-model", update / "new.pt"


@pytest.fixture
def samples(update):
    return "--source", update / "source.npz", "--target", update / "target.npz", "--hold-out"


def part(n, shift, seed):
    x, y = rows(n, shift, seed)
    return Part("", Sample(torch.from_numpy(x), torch.from_numpy(y)), [str(i) for i in range(n)], {})


def test_gives_the_library_s_numbers(diagnosed, models, samples, update):
    found = diagnosed(*models, *samples, "--anchor-test", update / "test.npz", "--set", "epsilon=0.2", "--set", "q=0.9")
    generator = torch.Generator().manual_seed(0)
    source, source_val = hold_out(part(200, 0.0, 0), generator)
    target, target_val = hold_out(part(160, 0.5, 1), generator)
    expected = diagnose(
        net("old"),
        net("new"),
        source.sample,
        target.sample,
        source_val=source_val.sample,
        target_val=target_val.sample,
        anchor_test=part(300, 0.0, 2).sample,
        settings=Settings(epsilon=0.2, q=0.9),
        generator=generator,
    ).as_dict()
    record = found["anchors"]["source"]
    assert found["format"] == "trace-diagnostic/1"
    for key in (
        "risk_change",
        "bound_ot",
        "bound_mmd",
        "bound_full_hybrid",
        "gap_source",
        "gap_target",
        "model_change",
    ):
        assert record[key] == pytest.approx(expected[key], rel=1e-5), key
    assert record["settings"]["q"] == 0.9
    assert record["sizes"] == {"source": 170, "target": 136, "source_val": 30, "target_val": 24, "anchor_test": 300}


def test_saved_outputs_give_everything_but_gradients(diagnosed, models, samples, update):
    full = diagnosed(*models, *samples)["anchors"]["source"]
    logits = ("--source", update / "source_logits.npz", "--target", update / "target_logits.npz")
    saved = diagnosed(*logits, "--hold-out")
    record = saved["anchors"]["source"]
    for key in ("model_change", "gap_source", "gap_target", "emp_shift_mmd", "bound_mmd"):
        assert record[key] == pytest.approx(full[key], rel=1e-5)
    assert record["bound_ot"] is None
    assert "only its saved outputs: gradients need the model itself" in record["reasons"]["emp_shift_ot"]


def test_safetensors(diagnosed, models, samples, update, tmp_path):
    files = {}
    for name in ("source", "target"):
        arrays = np.load(update / f"{name}.npz")
        files[name] = tmp_path / f"{name}.safetensors"
        save_file({key: torch.from_numpy(arrays[key]) for key in ("x", "y")}, files[name])
    found = diagnosed(*models, "--source", files["source"], "--target", files["target"], "--hold-out")
    assert found["anchors"] == diagnosed(*models, *samples)["anchors"]


def test_training_rows_are_not_held_out_unasked(diagnosed, tool, models, samples):
    found = diagnosed(*models, *samples[:-1])
    record, notes = found["anchors"]["source"], found["notes"]["source"]
    assert record["sizes"] == {"source": 200, "target": 160}
    assert record["gap_source"] is None
    assert record["reasons"]["gap_source"] == "needs a validation split"
    assert sum("are held out: give --source-val" in note or "give --target-val" in note for note in notes) == 2
    code, _, err = tool("diagnose", *models, *samples, "--source-val", samples[1], "--target-val", samples[3])
    assert code == 3
    assert "--hold-out has nothing to split: every sample has its -val, leave it out" in err


def test_the_seed_decides(diagnosed, models, samples):
    first = diagnosed(*models, *samples, "--seed", "1")["anchors"]
    assert first == diagnosed(*models, *samples, "--seed", "1")["anchors"]
    assert first != diagnosed(*models, *samples)["anchors"]


def test_text_teaches(tool, models, samples, update):
    code, out, err = tool("diagnose", *models, *samples, "--anchor-test", update / "test.npz")
    assert code == 0
    assert err == ""
    for words in (
        "Largest term:",
        "The terms allow a change of up to",
        "The models disagree on",
        "than two halves of the anchor",
        "what the words mean:",
        "30 of the 200 rows",
        "stratified 15 percent, seed 0",
        "source's features",
    ):
        assert words in out
    seconds = next(line for line in out.splitlines() if line.startswith("seconds: "))
    for stage in ("models", "data", "features", "outputs", "gradients", "shift", "kernel norm", "total"):
        assert stage in seconds


def test_files_are_written_whole(tool, models, samples, tmp_path):
    code, out, _ = tool("diagnose", *models, *samples, "--json", tmp_path / "d.json", "--markdown", tmp_path / "d.md")
    assert code == 0
    assert "model change" in out
    record = json.loads((tmp_path / "d.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert f"{record['anchors']['source']['model_change']:.4g}" in (tmp_path / "d.md").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.json", "d.md"]


@pytest.mark.parametrize("options", [(), ("--set", "epsilon=0.3"), ("--scale", "columns")])
def test_several_anchors_are_what_each_is_alone(diagnosed, tool, models, update, tmp_path, options):
    target, val = ("--target", update / "target.npz"), ("--target-val", update / "target.npz")
    x, y = rows(250, 0.0, 3)
    np.savez(tmp_path / "wide.npz", x=5 * x, y=y)
    a, b = f"a={update / 'source.npz'}", f"b={tmp_path / 'wide.npz'}"
    held = ("--source-val", a, "--source-val", b, *val, *options)
    both = diagnosed(*models, "--source", a, "--source", b, *held, *target)["anchors"]
    for name, path in (("a", update / "source.npz"), ("b", tmp_path / "wide.npz")):
        alone = diagnosed(*models, "--source", path, "--source-val", path, *val, *target, *options)
        for key in ("bound_ot", "bound_mmd", "model_change", "gap_source"):
            assert both[name][key] == pytest.approx(alone["anchors"]["source"][key], rel=1e-6)
    _, out, _ = tool("diagnose", *models, "--source", a, "--source", b, *held, *target)
    assert out.count("=== anchor") == 2


def test_saved_features_and_unit_length(diagnosed, models, update, tmp_path):
    for name in ("source", "target"):
        arrays = np.load(update / f"{name}.npz")
        np.savez(tmp_path / f"{name}.npz", **arrays, features=3 * arrays["x"])
    samples = ("--source", tmp_path / "source.npz", "--target", tmp_path / "target.npz")
    plain = diagnosed(*models, *samples)["anchors"]["source"]
    tripled = diagnosed(*models, *samples, "--features", "saved")["anchors"]["source"]
    assert tripled["transport"]["value"] == pytest.approx(9 * plain["transport"]["value"], rel=1e-4)
    unit = [
        diagnosed(*models, *samples, "--features", h, "--unit-features")["anchors"]["source"]
        for h in ("identity", "saved")
    ]
    assert unit[0]["transport"]["value"] == pytest.approx(unit[1]["transport"]["value"], rel=1e-4)
    assert unit[0]["settings"]["epsilon"] == 0.1


def test_saved_features_are_not_scaled(tool, update):
    samples = ("--source", update / "source_logits.npz", "--target", update / "target_logits.npz")
    code, out, err = tool("diagnose", *samples, "--scale", "columns")
    assert (code, out) == (3, "")
    assert "--scale columns changes inputs, but the shift is measured in saved features: save them scaled" in err


def test_an_unlabelled_target(diagnosed, models, update, tmp_path):
    np.savez(tmp_path / "target.npz", x=np.load(update / "target.npz")["x"])
    record = diagnosed(*models, "--source", update / "source.npz", "--target", tmp_path / "target.npz")["anchors"][
        "source"
    ]
    assert record["sensitivity_target"]["pseudo_labels"]
    assert record["bound_mmd"] is None
    assert math.isfinite(record["emp_shift_ot"])


def test_the_limit_draws_rows(diagnosed, models, samples):
    found = diagnosed(*models, *samples, "--limit", "100")["anchors"]["source"]
    assert found["sizes"] == {"source": 85, "target": 85, "source_val": 15, "target_val": 15}


def test_regression(diagnosed, update, tmp_path):
    x, _ = rows(80, 0.0, 0)
    for name, y in (("source", x[:, 0]), ("target", x[:, 0] / 2)):
        np.savez(tmp_path / f"{name}.npz", x=x, y=y, logits=x[:, :1], new_logits=x[:, :1] / 2)
    samples = (
        "--source",
        tmp_path / "source.npz",
        "--target",
        tmp_path / "target.npz",
        "--target-val",
        tmp_path / "target.npz",
    )
    found = diagnosed(*samples, "--loss", "squared-error:6")["anchors"]["source"]
    distance = float(np.abs(x[:, 0] / 2).mean())
    assert found["lipschitz_loss"] == 24
    assert found["output_distance"]["value"] == pytest.approx(distance, rel=1e-6)
    assert diagnosed(*samples, "--loss", "squared-error")["anchors"]["source"]["model_change"] is None
