"""The cache of features: right numbers, interrupted extractions, broken files, two processes at once."""

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from experiments.engine.errors import UserError
from experiments.vision import batches
from experiments.vision.backbone import BackboneSpec, load_backbone
from experiments.vision.features import cache_key, features
from experiments.vision.rowfile import RowFile
from tests.experiments.conftest import fill
from tests.experiments.vision.pictures import draw
from trace.io.images import open_image

TINY = BackboneSpec("test_efficientnet", weights="none", size=64)


@pytest.fixture(scope="module")
def backbone():
    return load_backbone(TINY)


@pytest.fixture
def image_set(tmp_path):
    return draw(tmp_path / "images")


def pixels(image_set, backbone):
    return torch.stack([backbone.transform(open_image(image_set.root / path)) for path in image_set.paths])


def folder_of(cache):
    (folder,) = cache.iterdir()
    return folder


@pytest.mark.parametrize("workers", [0, 2])
def test_features_are_those_of_the_model(tmp_path, image_set, backbone, workers):
    found = features(image_set, backbone, cache=tmp_path / "c", batch_size=5, workers=workers)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, backbone.model(pixels(image_set, backbone)))


def test_maps_lead_to_the_features(tmp_path, image_set, backbone):
    maps = features(image_set, backbone, cache=tmp_path / "c", layer="maps")
    assert maps.dtype == torch.float16
    exact = backbone.model(pixels(image_set, backbone))
    torch.testing.assert_close(backbone.tail()(maps.float()), exact, rtol=2e-3, atol=2e-3)


def test_second_call_reads_only(tmp_path, image_set, backbone, monkeypatch, capsys):
    first = features(image_set, backbone, cache=tmp_path / "c")
    assert "12 images in" in capsys.readouterr().out
    monkeypatch.setattr(batches, "open_image", lambda *_, **__: pytest.fail("read an image again"))
    second = features(image_set, backbone, cache=tmp_path / "c")
    assert torch.equal(first, second)
    second += 1
    assert torch.equal(first, features(image_set, backbone, cache=tmp_path / "c"))


def interrupted(image_set, backbone, cache, monkeypatch, *, after):
    """An extraction that ends with Ctrl-C at the image number ``after``."""
    opened = []

    def open_some(path, **how):
        if len(opened) == after:
            raise KeyboardInterrupt
        opened.append(path)
        return open_image(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(batches, "open_image", open_some)
        with pytest.raises(KeyboardInterrupt):
            features(image_set, backbone, cache=cache, batch_size=4)


def test_interrupted_extraction_goes_on_to_the_same_bytes(tmp_path, image_set, backbone, monkeypatch):
    features(image_set, backbone, cache=tmp_path / "whole", batch_size=4)
    interrupted(image_set, backbone, tmp_path / "parts", monkeypatch, after=9)
    folder = folder_of(tmp_path / "parts")
    assert json.loads((folder / "rows.json").read_text())["rows"] == 8
    with open(folder / "rows.npy", "ab") as file:
        file.write(b"half a row")
    opened = []
    monkeypatch.setattr(batches, "open_image", lambda path, **how: opened.append(path) or open_image(path, **how))
    features(image_set, backbone, cache=tmp_path / "parts", batch_size=4)
    assert len(opened) == 4
    whole = (folder_of(tmp_path / "whole") / "rows.npy").read_bytes()
    assert (folder / "rows.npy").read_bytes() == whole


def flip_a_byte(folder):
    content = bytearray((folder / "rows.npy").read_bytes())
    content[-5] ^= 1
    (folder / "rows.npy").write_bytes(content)


DAMAGES = {
    "was changed after": flip_a_byte,
    "has 40 bytes": lambda folder: (folder / "rows.npy").write_bytes((folder / "rows.npy").read_bytes()[:40]),
    "is missing": lambda folder: (folder / "rows.npy").unlink(),
    "cannot be read": lambda folder: (folder / "rows.json").write_text("{"),
    "counts 13 rows of 12": lambda folder: (folder / "rows.json").write_text('{"rows": 13, "crc32": 0}'),
    "key is another": lambda folder: (folder / "key.json").write_text("{}"),
    "another shape or type": lambda folder: np.save(
        folder / "rows.npy", np.load(folder / "rows.npy").view(np.int32), allow_pickle=False
    ),
}


@pytest.mark.parametrize("reason", DAMAGES)
def test_damaged_cache_is_computed_again(tmp_path, image_set, backbone, reason, capsys):
    good = features(image_set, backbone, cache=tmp_path / "c").clone()
    DAMAGES[reason](folder_of(tmp_path / "c"))
    assert torch.equal(good, features(image_set, backbone, cache=tmp_path / "c"))
    assert reason in capsys.readouterr().err
    features(image_set, backbone, cache=tmp_path / "c")
    assert "computed again" not in capsys.readouterr().err


def test_key_follows_everything_that_decides_the_numbers(tmp_path, image_set, backbone):
    def key(images=image_set, network=backbone, layer="penultimate", device="cpu"):
        return json.dumps(cache_key(images, network, layer=layer, device=device))

    keys = {
        key(),
        key(network=load_backbone(BackboneSpec("test_efficientnet", weights="none", size=64, seed=1))),
        key(network=load_backbone(BackboneSpec("test_efficientnet", weights="none", size=32))),
        key(images=draw(tmp_path / "others", seed=1)),
        key(layer="maps"),
        key(device="cuda"),
    }
    assert len(keys) == 6
    assert key() == key(network=load_backbone(TINY))


def test_broken_image_is_named_and_the_rest_is_kept(tmp_path, image_set, backbone):
    path = image_set.root / image_set.paths[6]
    whole = path.read_bytes()
    path.write_bytes(whole[:60])
    with pytest.raises(UserError, match=path.name):
        features(image_set, backbone, cache=tmp_path / "c", batch_size=4)
    assert json.loads((folder_of(tmp_path / "c") / "rows.json").read_text())["rows"] == 4


def test_empty_set_is_refused(tmp_path, image_set, backbone):
    with pytest.raises(UserError, match="toy-real has no image of real train: fetch"):
        features(image_set._replace(paths=(), labels=()), backbone, cache=tmp_path)


def test_maps_beyond_float16_are_refused(tmp_path, image_set):
    backbone = load_backbone(TINY)
    *_, last = [p for p in backbone.trunk().parameters() if p.ndim == 1]
    with torch.no_grad():
        last.fill_(1e6)
    with pytest.raises(UserError, match="exceed the range of float16"):
        features(image_set, backbone, cache=tmp_path, layer="maps")


def test_two_at_once_share_one_extraction(tmp_path, image_set, backbone, monkeypatch, capsys):
    """Each call opens the lock file for itself, so two threads exclude each other as two processes do."""
    opened, reached = [], threading.Event()

    def open_slowly(path, **how):
        reached.set()
        time.sleep(0.02)
        opened.append(path)
        return open_image(path, **how)

    monkeypatch.setattr(batches, "open_image", open_slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(features, image_set, backbone, cache=tmp_path / "c", batch_size=2)
        assert reached.wait(60)
        second = pool.submit(features, image_set, backbone, cache=tmp_path / "c", batch_size=2)
        assert torch.equal(first.result(60), second.result(60))
    assert len(opened) == len(image_set.paths)
    assert "another process extracts these features" in capsys.readouterr().err


def test_full_disk_is_one_sentence(small_disk, image_set, backbone):
    fill(small_disk / "ballast")
    with open(small_disk / "ballast", "r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 4 * 4096)
    with pytest.raises(UserError, match=r"cannot be written \(.*No space.*: free space"):
        features(image_set, backbone, cache=small_disk, layer="maps", batch_size=2)


def test_rows_that_do_not_fit_are_refused(tmp_path):
    rows = RowFile(tmp_path / "r.npy", (4, 3), np.dtype("float32"))
    with pytest.raises(ValueError, match="do not fit"):
        rows.append(np.zeros((2, 3)))
    rows.append(np.zeros((2, 3), dtype=np.float32))
    with pytest.raises(ValueError, match="has 2 of 4 rows"):
        rows.mapped()
