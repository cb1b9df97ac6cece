"""Broken images: named by default; with ``on_broken=skip`` out of features, labels and splits alike, and counted."""

import json

import pytest
import torch
from torch.nn.functional import normalize

from experiments import active, gate
from experiments.engine.config import expand
from experiments.engine.errors import UserError
from experiments.vision import broken
from experiments.vision.broken import unreadable, without_broken
from experiments.vision.images import load_dataset
from experiments.vision.study import Study
from tests.experiments.vision.trees import DOMAINS, domainnet_tree, image_path
from trace.io.images import open_image

pytestmark = pytest.mark.filterwarnings("ignore:the ridge chosen by cross-validation:RuntimeWarning")
CUT = (image_path("painting", 1, 2), image_path("painting", 3, 0))
"""In painting's train split."""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Two images of real's train split are absent, one of its test split is cut, and so are two paintings."""
    monkeypatch.setenv("TRACE_DATA", str(tmp_path / "data"))
    root = domainnet_tree(tmp_path / "tree", per_class=4, absent=2, truncated=1)
    for path in CUT:
        (root / path).write_bytes((root / path).read_bytes()[:300])
    page = tmp_path / "small.yaml"
    page.write_text(f"name: small\nroot: {root}\ndomains: [{', '.join(DOMAINS)}]\n")
    return page


def config(experiment, page, *settings):
    return expand(experiment, ["config=smoke", f"data={page}", *settings])[0].config


@pytest.mark.parametrize("experiment", [active, gate])
def test_by_default_the_first_broken_file_is_named(tree, experiment, new_context):
    name = experiment.__name__.split(".")[-1]
    with pytest.raises(UserError, match=r"real_train.txt names 2 of 24 images .*real_001_000001.jpg"):
        experiment.run(config(name, tree), new_context())
    for number in (0, 1):
        source = tree.parent / "tree" / image_path("real", 0, 2)
        (tree.parent / "tree" / image_path("real", 0, number)).write_bytes(source.read_bytes())
    with pytest.raises(UserError, match=r"real_001_000005.jpg cannot be read as an image"):
        experiment.run(config(name, tree), new_context())


def test_skipped_images_are_in_no_row_and_no_label(tree):
    study = Study.of(config("active", tree, "on_broken=skip", "train_share=1"))
    images = study.images("painting", "train")
    assert set(images.skipped) == set(CUT)
    assert len(images.paths) == 20 - 2
    rows = study.rows("painting", "train")
    assert rows.y.tolist() == [label for path, label in zip(images.paths, images.labels, strict=True)]
    pixels = torch.stack([study.backbone.transform(open_image(images.root / path)) for path in images.paths])
    torch.testing.assert_close(rows.x, normalize(study.backbone.model(pixels)))
    maps = study.rows("painting", "train", "maps")
    assert maps.y.equal(rows.y)
    domain = study.domain("painting")
    assert len(domain.train) + len(domain.val) == 18
    assert study.skipped("real", "painting") == {"real": {"train": 2, "test": 1}, "painting": {"train": 2, "test": 0}}


@pytest.mark.parametrize("experiment", [active, gate])
def test_the_record_counts_what_was_skipped(tree, experiment, new_context):
    name = experiment.__name__.split(".")[-1]
    made = config(name, tree, "on_broken=skip")
    metrics = experiment.run(made, new_context())
    assert metrics["skipped"]["real"] == {"train": 2, "test": 1}
    assert metrics["skipped"][made.target] == {"train": 2 if name == "active" else 0, "test": 0}


def test_images_are_decoded_once_and_again_when_one_changes(tree, tmp_path, monkeypatch):
    images = load_dataset(str(tree)).images("painting", "train")
    first = without_broken(images, cache=tmp_path / "c")
    decode = broken.unreadable
    monkeypatch.setattr(broken, "unreadable", lambda *_, **__: pytest.fail("decoded again"))
    assert without_broken(images, cache=tmp_path / "c") == first
    monkeypatch.setattr(broken, "unreadable", decode)
    whole = (images.root / images.paths[0]).read_bytes()
    (images.root / CUT[0]).write_bytes(whole)
    assert set(without_broken(images, cache=tmp_path / "c").skipped) == {CUT[1]}


@pytest.mark.parametrize("content", ["[", '{"a": 1}', '["elsewhere.jpg"]', "[3]"])
def test_a_damaged_note_is_made_again(tree, tmp_path, content):
    images = load_dataset(str(tree)).images("painting", "train")
    first = without_broken(images, cache=tmp_path / "c")
    (note,) = (tmp_path / "c").iterdir()
    note.write_text(content)
    assert without_broken(images, cache=tmp_path / "c") == first
    assert json.loads(note.read_text()) == sorted(CUT)


def test_threads_find_the_same_in_the_same_order(tree):
    images = load_dataset(str(tree)).images("painting", "train")
    assert unreadable(images) == unreadable(images, workers=3) == CUT


def test_a_split_without_a_readable_image_says_so(tree, tmp_path):
    images = load_dataset(str(tree)).images("painting", "test")
    for path in images.paths:
        (images.root / path).write_bytes(b"")
    with pytest.raises(UserError, match=r"no image of painting test can be read, such as .*: fetch small again"):
        without_broken(images, cache=tmp_path / "c")


def test_an_unknown_choice_is_answered(tree):
    with pytest.raises(UserError, match="on_broken is 'ignore': it must be error or skip"):
        Study.of(config("active", tree, "on_broken=ignore")).images("real", "train")
