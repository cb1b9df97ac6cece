"""The diagnose command end to end: the same numbers as the library, everything in every output, errors as sentences."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from trace import Sample, Settings, diagnose
from trace.io.rows import Part, hold_out
from trace.report.brief import LINES

from ..conftest import net, rows


@pytest.fixture
def models(update):
    return "--model", update / "old.pt", "--new-model", update / "new.pt", "--trust"


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


def test_saved_logits_are_enough(diagnosed, tool, update, tmp_path):
    """Everything that looks at outputs alone is as with the models; the shift is that of the old model's outputs."""
    names = ("source", "target", "test")
    for name in names:
        arrays = np.load(update / f"{name}_logits.npz")
        np.savez(tmp_path / f"{name}.npz", **{key: arrays[key] for key in ("y", "logits", "new_logits")})
        np.savez(tmp_path / f"{name}_f.npz", **{key: arrays[key] for key in ("y", "logits", "new_logits")},
                 features=arrays["logits"])  # fmt: skip

    def samples(folder, end):
        paths = [folder / f"{name}{end}.npz" for name in names]
        return "--source", paths[0], "--target", paths[1], "--source-val", paths[2]

    found = diagnosed(*samples(tmp_path, ""))
    record = found["anchors"]["source"]
    with_inputs = diagnosed(*samples(update, "_logits"))["anchors"]["source"]
    for key in ("model_change", "gap_source", "anchor", "output_distance"):
        assert record[key] == with_inputs[key]
    assert record["transport"] == diagnosed(*samples(tmp_path, "_f"))["anchors"]["source"]["transport"]
    assert "the shift is measured in the old model's outputs" in "; ".join(found["notes"]["source"])
    (tmp_path / "policy.yaml").write_text("threshold: 0.9\n")
    code, out, _ = tool("gate", "--policy", tmp_path / "policy.yaml", *samples(tmp_path, ""))
    assert code == 0
    assert out.startswith("ACCEPT the update")


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
    code, out, err = tool("diagnose", *models, *samples, "--anchor-test", update / "test.npz", "--verbose")
    assert code == 0
    assert err == ""
    for words in (
        "of the predictions on the anchor change",
        "The terms allow a change of up to",
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
    assert len(out.splitlines()) <= LINES
    record = json.loads((tmp_path / "d.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert f"{record['anchors']['source']['model_change']:.4g}" in (tmp_path / "d.md").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["d.json", "d.md"]


@pytest.mark.parametrize("options", [(), ("--set", "epsilon=0.3"), ("--scale", "columns")])
def test_several_anchors_are_what_each_is_alone(diagnosed, tool, models, update, tmp_path, options):
    for name, scale, n, shift, seed in (
        ("wide", 5, 250, 0.0, 3),
        ("wide_held", 5, 90, 0.0, 4),
        ("target_held", 1, 80, 0.5, 5),
    ):
        x, y = rows(n, shift, seed)
        np.savez(tmp_path / f"{name}.npz", x=scale * x, y=y)
    target, val = ("--target", update / "target.npz"), ("--target-val", tmp_path / "target_held.npz")
    paths = {
        "a": (update / "source.npz", update / "test.npz"),
        "b": (tmp_path / "wide.npz", tmp_path / "wide_held.npz"),
    }
    a, b = (f"{name}={path}" for name, (path, _) in paths.items())
    held = [word for name, (_, path) in paths.items() for word in ("--source-val", f"{name}={path}")]
    held += [*val, *options]
    both = diagnosed(*models, "--source", a, "--source", b, *held, *target)["anchors"]
    for name, (path, held_path) in paths.items():
        alone = diagnosed(*models, "--source", path, "--source-val", held_path, *val, *target, *options)
        for key in ("bound_ot", "bound_mmd", "model_change", "gap_source"):
            assert both[name][key] is not None
            assert both[name][key] == pytest.approx(alone["anchors"]["source"][key], rel=1e-6)
    _, out, _ = tool("diagnose", *models, "--source", a, "--source", b, *held, *target, "--verbose")
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
