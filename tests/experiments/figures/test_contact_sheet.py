"""The contact sheet: ``selected`` leads back to the very images whose features were chosen."""

import pytest
import torch
from matplotlib import pyplot as plt
from torch.nn.functional import normalize

from experiments.__main__ import main
from experiments.active import Config, run
from experiments.engine.errors import UserError
from experiments.engine.records import write_records
from experiments.figures.contact_sheet import SHOWN, contact_sheet, selected_paths
from experiments.vision.study import Study
from trace.io.images import open_image

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")


def record(config, context):
    name = f"{config.policy}{config.seed}"
    return {"run_id": name, "profile": "smoke", "config": vars(config), "metrics": run(config, context)}


@pytest.fixture
def records(tree, new_context):
    policies = ("w1min", "mmdmin", "random")
    return [record(Config(**{**tree, "policy": policy, "seed": 3}), new_context()) for policy in policies]


@pytest.mark.parametrize("with_val", [False, True])
@pytest.mark.parametrize("on_broken", ["error", "skip"])
def test_chosen_rows_lead_to_their_images(tree, tmp_path, with_val, on_broken, new_context):
    """The features of the image behind a row are the row's own, with a validation split and without."""
    root = tmp_path / "tree"
    if with_val:
        for domain in ("real", "painting", "sketch"):
            (root / f"{domain}_val.txt").write_text((root / f"{domain}_test.txt").read_text())
    if on_broken == "skip":
        first = (root / "painting_train.txt").read_text().split()[0]
        (root / first).write_bytes(b"")
    config = Config(**{**tree, "seed": 3, "policy": "random", "on_broken": on_broken})
    made = record(config, new_context())
    study = Study.of(config)
    chosen = study.domain("painting").train.x[made["metrics"]["selected"]]
    pixels = torch.stack([study.backbone.transform(open_image(path)) for path in selected_paths(made)])
    torch.testing.assert_close(normalize(study.backbone.model(pixels)), chosen)


def test_a_sheet_has_a_row_a_policy(records):
    figure = contact_sheet([*records, {**records[0], "config": {**records[0]["config"], "development": True}}])
    assert len(figure.axes) == 3 * (2 * SHOWN + 1)
    labels = [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()]
    assert labels == ["mmdmin", "random", "w1min"]
    assert [len(ax.images) for ax in figure.axes[:SHOWN]] == [1] * 4 + [0] * 4  # a batch of 4
    assert [ax.get_title("left") for ax in (figure.axes[0], figure.axes[SHOWN + 1])] == ["round 1", "round 2"]
    plt.close(figure)


def test_images_that_are_not_there_are_one_sentence(records, tmp_path, monkeypatch, capsys):
    write_records(records, tmp_path / "active.jsonl")
    options = ["figures", "--incomplete", "--profile", "smoke", "--records", str(tmp_path)]
    options += ["--output", str(tmp_path / "out")]
    main([*options, "--only", "contact-sheet"])
    assert (tmp_path / "out" / "contact-sheet.png").exists()
    elsewhere = [{**r, "config": {**r["config"], "data": "emoji"}} for r in records]
    write_records(elsewhere, tmp_path / "active.jsonl")
    with pytest.raises(SystemExit, match=r"holds no emoji .*: get it with `python -m experiments data emoji`"):
        main([*options, "--only", "contact-sheet"])
    (tmp_path / "tree" / "painting_train.txt").write_text("painting/banana/x.jpg 1\n")
    write_records(records, tmp_path / "active.jsonl")
    with pytest.raises(SystemExit, match=r"painting_train.txt names 1 of 1 images"):
        main([*options, "--only", "contact-sheet"])


def test_other_images_than_the_records_are_noticed(records):
    broken = {**records[0], "metrics": {**records[0]["metrics"], "selected": [999]}}
    with pytest.raises(UserError, match=r"chose row 999, and its seed has \d+ rows of .*: fetch the images"):
        selected_paths(broken)
    with pytest.raises(UserError, match="no seed was run with every policy"):
        contact_sheet([records[0], {**records[1], "config": {**records[1]["config"], "seed": 9}}])
