"""Rows: a selection of what is on disk stays there until a batch needs it, and is the same as one in memory."""

import pytest
import torch

from experiments.engine.errors import UserError
from experiments.vision.batches import Pictures, Rows, in_order
from experiments.vision.images import load_dataset
from experiments.vision.study import Study, VisionConfig
from tests.experiments.vision.trees import domainnet_tree

X, Y = torch.arange(40, dtype=torch.float16).reshape(10, 2, 2, 1), torch.arange(10)
CHOSEN, THEN = torch.tensor([7, 1, 4, 9]), torch.tensor([2, 0])


def test_a_selection_of_rows_on_disk_copies_nothing():
    chosen = Rows.on_disk(X, Y).select(CHOSEN).select(THEN)
    assert chosen.kept.data_ptr() == X.data_ptr()
    assert chosen.y.tolist() == [4, 7]


def test_it_holds_the_same_as_one_in_memory():
    disk, memory = (made(X, Y).select(CHOSEN) for made in (Rows.on_disk, Rows))
    for one, other in (
        (disk, memory),
        (disk.select(THEN), memory.select(THEN)),
        (disk.joined(disk), memory.joined(memory)),
    ):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.y)
        batches = in_order(len(one), 3)
        for a, b in zip(one.stream(batches), other.stream(batches), strict=True):
            assert a.dtype == torch.float32
            assert torch.equal(a, b)


def test_maps_of_a_seed_stay_on_disk_and_are_those_of_its_pictures(tree):
    config = VisionConfig(**{name: tree[name] for name in VisionConfig.__dataclass_fields__})
    study = Study.of(config)
    maps, features, pictures = study.domain("real", "maps"), study.domain("real"), study.pictures("real")
    assert len(maps.train) < len(maps.train.kept)
    for a, b, c in zip(maps, features, pictures, strict=True):
        assert a.y.tolist() == b.y.tolist() == c.y.tolist()
        images = next(c.stream([torch.arange(len(c))]))
        seen = torch.nn.functional.normalize(study.backbone.model(images).detach())
        assert torch.allclose(seen, b.x, atol=1e-4)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_truncated_image_is_named_with_the_way_around_it(tmp_path, workers):
    test = load_dataset("domainnet", root=domainnet_tree(tmp_path, truncated=1)).images("real", "test")
    paths = tuple(test.root / path for path in test.paths)
    pictures = Pictures(paths, torch.tensor(test.labels), transform=None, train_transform=None, workers=workers)
    with pytest.raises(UserError, match=r"real_001_000003.jpg cannot be read as an image.*on_broken=skip"):
        next(pictures.stream([torch.arange(1)]))
