"""A folder of DomainNet's layout: names of classes, domains and splits."""

import pytest

from experiments.engine.errors import UserError
from experiments.vision.splits import class_names, domains_in, splits_in
from trace.io.splits import SplitEntry


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
