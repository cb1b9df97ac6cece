"""Image sets: labels from the split files, absent files named, subsets, digests, data sets by name."""

import pytest
import torch

from experiments.engine.config import CONFIGS
from experiments.engine.errors import MissingFileError, UserError
from experiments.vision import images
from experiments.vision.images import (
    class_counts,
    class_names,
    digest,
    domains_in,
    load_dataset,
    splits_in,
    subset,
)
from tests.experiments.vision.trees import CLASSES, DOMAINS, domainnet_tree
from trace.io.splits import SplitEntry


@pytest.fixture
def tree(tmp_path):
    return domainnet_tree(tmp_path / "tree")


@pytest.fixture
def real(tree):
    return load_dataset("domainnet", root=tree).images("real", "train")


def test_labels_come_from_the_split_files_and_not_from_the_order_of_folders(tree, real):
    data = load_dataset("domainnet", root=tree)
    assert data.domains == DOMAINS
    assert data.splits == ("train", "test")
    assert data.classes == CLASSES
    assert data.classes != tuple(sorted(CLASSES))
    assert all(CLASSES[label] in path for path, label in zip(real.paths, real.labels, strict=True))
    assert len(real.paths) == 12


def test_a_class_may_be_missing_from_a_split(tree):
    painting = load_dataset("domainnet", root=tree).images("painting", "train")
    assert class_counts(painting) == {name: 0 if name == "t-shirt" else 2 for name in CLASSES}
    assert painting.classes == CLASSES


def test_absent_files_are_one_error_or_skipped_and_counted(tmp_path):
    tree = domainnet_tree(tmp_path, absent=5)
    data = load_dataset("domainnet", root=tree)
    with pytest.raises(MissingFileError, match=r"real_train.txt names 5 of 12 images .*000001.jpg, .*, \.\.\.\)"):
        data.images("real", "train")
    kept = data.images("real", "train", on_broken="skip")
    assert len(kept.paths) == 7
    assert len(kept.skipped) == 5
    assert not set(kept.paths) & set(kept.skipped)
    assert [CLASSES[label] for label in kept.labels] == [path.split("/")[1] for path in kept.paths]


def test_the_digest_sees_files_labels_and_order(real):
    before = digest(real)
    assert before == digest(real)
    assert digest(real._replace(labels=(real.labels[0] + 1, *real.labels[1:]))) != before
    assert digest(subset(real, reversed(range(12)))) != before
    with open(real.root / real.paths[3], "ab") as file:
        file.write(b"x")
    assert digest(real) != before


def test_a_subset_keeps_paths_with_their_labels(real):
    part = subset(real, torch.tensor([7, 2]))
    assert part.paths == (real.paths[7], real.paths[2])
    assert part.labels == (real.labels[7], real.labels[2])


def test_unknown_names_are_answered(tree):
    data = load_dataset("domainnet", root=tree)
    with pytest.raises(UserError, match="no domain 'clipart': it has real, painting, sketch"):
        data.images("clipart", "train")
    with pytest.raises(UserError, match="no split 'val': it has train, test"):
        data.images("real", "val")
    with pytest.raises(
        UserError, match=r"nothing\.yaml does not exist: data is one of domainnet, emoji, pacs, example"
    ):
        load_dataset("nothing")


@pytest.mark.parametrize(("name", "command"), [("emoji", "data emoji`"), ("domainnet", "data domainnet --download`")])
def test_data_that_are_not_there_name_the_command_that_gets_them(tmp_path, monkeypatch, name, command):
    monkeypatch.setenv("TRACE_DATA", str(tmp_path))
    with pytest.raises(MissingFileError, match=command):
        load_dataset(name)
    domainnet_tree(tmp_path / images.data_set(name).FOLDER)
    assert load_dataset(name).domains == DOMAINS
    with pytest.raises(UserError, match="has no domain 'twemoji': it has") as found:
        load_dataset(name).images("twemoji", "train")
    assert (f"data emoji --domains {DOMAINS[0]} twemoji`" in str(found.value)) == (name == "emoji")


def test_a_folder_of_ones_own(tmp_path, tree):
    config = tmp_path / "own.yaml"
    config.write_text(f"name: own\nroot: {tree}\ndomains: [sketch, real]\n")
    data = load_dataset(str(config))
    assert (data.name, data.domains) == ("own", ("sketch", "real"))
    assert len(data.images("sketch", "test").paths) == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: own\nroot: x\ndomain: [a]", "did you mean domains"),
        ("name: own\ndomains: [a]", "missing mandatory value.*root"),
        ("name: own\nroot: x\ndomains: []", "domains is empty"),
        ("name: own\nroot: x\ndomains: [a]\nanchors: [a]", "no config key 'anchors'"),
    ],
)
def test_a_wrong_yaml_is_answered(tmp_path, text, message):
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_dataset(str(tmp_path / "own.yaml"))


def test_the_shipped_example_is_valid():
    data = load_dataset("example")
    assert data.domains == ("photo", "drawing")
    assert "~" not in str(data.root)
    assert (CONFIGS / "data" / "example.yaml").read_text().startswith("#")
    with pytest.raises(MissingFileError, match=r"photo_train.txt does not exist"):
        data.images("photo", "train")


def test_one_label_has_one_name(tmp_path):
    names = class_names([SplitEntry("real/The_Tower/1.jpg", 4)], {0: "boat"}, tmp_path)
    assert names == {0: "boat", 4: "The_Tower"}
    assert class_names([SplitEntry("sketch/the_tower/1.jpg", 4)], names, tmp_path) == names
    with pytest.raises(UserError, match="label 0 is The_Tower here and boat before"):
        class_names([SplitEntry("sketch/The_Tower/1.jpg", 0)], names, tmp_path)


def test_domains_and_splits_are_found(tmp_path):
    for name in ("sketch", "clipart", "real", "a"):
        (tmp_path / f"{name}_train.txt").touch()
    assert domains_in(tmp_path) == ("real", "sketch", "a", "clipart")
    assert splits_in(tmp_path, ["real"]) == ("train", "test")
    (tmp_path / "real_val.txt").touch()
    assert splits_in(tmp_path, ["real"]) == ("train", "val", "test")
    assert splits_in(tmp_path, ["real", "sketch"]) == ("train", "test")
