"""Image folders and split files: which label, which pixels, and what is wrong with them."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from trace.io import images
from trace.io.errors import UserError
from trace.io.images import folder_entries, image_rows, open_image, plain_transform
from trace.io.splits import SplitEntry, read_split

COLOURS = {"cat": (200, 40, 40), "dog": (40, 40, 200)}


def draw(path, colour, seed, size=(40, 30)):
    noise = np.random.default_rng(seed).integers(-30, 30, (size[1], size[0], 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """``photos`` and ``drawings`` with twelve images of two classes each, and split files that number them 1 and 0."""
    root = tmp_path_factory.mktemp("pictures")
    for domain, darker in (("photos", 0), ("drawings", 30)):
        lines = []
        for name, colour in COLOURS.items():
            for i in range(12):
                draw(root / domain / name / f"{i:02}.png", [c - darker for c in colour], seed=i)
                lines.append(f"{domain}/{name}/{i:02}.png {1 if name == 'cat' else 0}\n")
        (root / f"{domain}_train.txt").write_text("".join(lines))
    return root


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    for seed in (0, 1):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            save_file(timm.create_model("resnet10t", num_classes=2).state_dict(), folder / f"{seed}.safetensors")
    return (
        "--model",
        f"timm:resnet10t@{folder / '0.safetensors'}",
        "--new-model",
        f"timm:resnet10t@{folder / '1.safetensors'}",
    )


def read(path, transform=None, limit=None):
    return image_rows(
        path, transform or plain_transform(16, imagenet=False), limit=limit, generator=torch.Generator().manual_seed(0)
    )


def test_folders_name_the_classes(pictures):
    rows = read(pictures / "photos")
    assert rows.x.shape == (24, 3, 16, 16)
    assert rows.classes == ("cat", "dog")
    assert list(rows.labels) == ["cat"] * 12 + ["dog"] * 12
    assert rows.names[0] == "cat/00.png"
    assert float(rows.x[0, 0].mean()) == pytest.approx(200 / 255, abs=0.03)


def test_split_files_alone_decide_the_labels(pictures):
    rows = read(pictures / "photos_train.txt")
    assert list(rows.labels) == [1] * 12 + [0] * 12
    assert torch.equal(rows.x, read(pictures / "photos").x)


def test_the_limit_opens_no_other_image(pictures, monkeypatch):
    opened = []
    whole = images.decode_image
    monkeypatch.setattr(images, "decode_image", lambda file, **how: opened.append(file.path) or whole(file, **how))
    rows = read(pictures / "photos", limit=5)
    assert len(rows.names) == len(rows.labels) == len(rows.x) == 5
    assert len(set(opened)) == 5


def test_flat_folders_have_no_labels(pictures):
    rows = read(pictures / "photos" / "cat")
    assert rows.labels is None
    assert len(rows.names) == 12


def test_plain_transform_crops_the_middle_and_normalises():
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, 10:30] = 255
    middle = plain_transform(10, imagenet=False)(Image.fromarray(pixels))
    assert middle.shape == (3, 10, 10)
    assert float(middle[:, :, 2:8].min()) == 1.0
    scaled = plain_transform(10, imagenet=True)(Image.fromarray(pixels))
    assert float(scaled[0, 5, 5]) == pytest.approx((1 - 0.485) / 0.229)


def test_transparency_becomes_white(tmp_path):
    Image.new("RGBA", (8, 8), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert float(read(tmp_path).x.min()) == 1.0


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_what_is_no_image_is_named(tmp_path, content):
    (tmp_path / "page.png").write_bytes(content)
    with pytest.raises(UserError, match=r"page\.png cannot be read"):
        open_image(tmp_path / "page.png")


@pytest.mark.parametrize(("mode", "colour"), [("RGBA", (0, 0, 0, 0)), ("LA", (0, 0)), ("L", 255), ("CMYK", (0,) * 4)])
def test_every_mode_becomes_rgb_on_white(tmp_path, mode, colour):
    path = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    Image.new(mode, (4, 4), colour).save(path)
    assert open_image(path).getpixel((0, 0)) == (255, 255, 255)


def test_a_transparent_palette_becomes_white_without_a_warning(tmp_path):
    image = Image.new("P", (2, 2), 0)
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 1), 1)
    image.save(tmp_path / "palette.png", transparency=bytes([0, 255]))
    opened = open_image(tmp_path / "palette.png")
    assert opened.getpixel((0, 0)) == (255, 255, 255)
    assert opened.getpixel((1, 1)) == (40, 50, 60)


@pytest.mark.parametrize(("dtype", "suffix"), [(np.uint16, "png"), (np.int32, "tif"), (np.float32, "tif")])
def test_more_than_8_bits_are_refused(tmp_path, dtype, suffix):
    Image.fromarray(np.full((8, 8), 300, dtype)).save(tmp_path / f"deep.{suffix}")
    with pytest.raises(UserError, match=r"deep\.\w+ has 16 or 32 bits a pixel.*: convert it to 8"):
        read(tmp_path)


def test_models_that_want_other_images(tool, pictures, networks, tmp_path):
    """Imagenet's deviation against 0.5, at one size; with arrays nothing is preprocessed."""
    other = timm.create_model("test_vit", num_classes=2)
    assert other.pretrained_cfg["mean"] != timm.create_model("resnet10t").pretrained_cfg["mean"]
    save_file(other.state_dict(), tmp_path / "vit.safetensors")
    models = (*networks[:2], "--new-model", f"timm:test_vit@{tmp_path / 'vit.safetensors'}", "--image-size", "160")
    code, _, err = tool("diagnose", *models, "--source", pictures / "photos", "--target", pictures / "drawings")
    assert code == 3
    assert "the models want images in other crops, interpolations or scales: compare models that share their" in err
    code, _, err = tool("diagnose", *models[:-2], "--source", pictures / "photos", "--target", pictures / "drawings")
    assert code == 3
    assert "in other sizes ([3, 176, 176] against [3, 160, 160])" in err
    x = np.random.default_rng(0).normal(size=(8, 3, 160, 160)).astype(np.float32)
    np.savez(tmp_path / "a.npz", x=x, y=np.arange(8) % 2)
    code, _, err = tool("diagnose", *models, "--source", tmp_path / "a.npz", "--target", tmp_path / "a.npz")
    assert code == 0, err


def test_timm_models_on_folders(diagnosed, pictures, networks):
    options = ("--features", "global_pool", "--unit-features", "--image-size", "32")
    found = diagnosed(
        *networks, "--source", pictures / "photos", "--target", pictures / "drawings", "--hold-out", *options
    )
    record = found["anchors"]["source"]
    assert record["sizes"] == {"source": 20, "target": 20, "source_val": 4, "target_val": 4}
    assert record["bound_ot"] > 0
    assert any("in the order of the folders" in note for note in found["notes"]["source"])


def test_timm_models_on_split_files(diagnosed, pictures, networks):
    options = ("--features", "global_pool", "--unit-features", "--image-size", "32", "--hold-out")
    domains = ("--source", f"real={pictures / 'photos_train.txt'}", "--target", pictures / "drawings_train.txt")
    folders = ("--source", pictures / "photos", "--target", pictures / "drawings", "--classes", "dog,cat")
    split = diagnosed(*networks, *domains, *options)["anchors"]["real"]
    named = diagnosed(*networks, *folders, *options)["anchors"]["source"]
    assert split["gap_source"] == pytest.approx(named["gap_source"], abs=1e-6)
    assert split["transport"]["value"] == pytest.approx(named["transport"]["value"], rel=1e-5)


def test_other_models_say_how_pixels_are_scaled(diagnosed, pictures, tmp_path, monkeypatch):
    (tmp_path / "flat.py").write_text(
        "import torch\ndef model(): return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 2))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = diagnosed(
        "--model",
        "flat:model",
        "--new-model",
        "flat:model",
        "--source",
        pictures / "photos",
        "--target",
        pictures / "drawings",
        "--image-size",
        "4",
        "--pixels",
        "unit",
    )
    assert any("cut to 4 pixels and scaled to [0, 1]" in note for note in found["notes"]["source"])


def test_what_is_wrong_with_a_folder(tmp_path):
    with pytest.raises(UserError, match="holds no images: lay them out as folder/class/file"):
        folder_entries(tmp_path)
    draw(tmp_path / "cat" / "a.png", (0, 0, 0), 0)
    draw(tmp_path / "b.png", (0, 0, 0), 0)
    with pytest.raises(UserError, match=r"holds images beside its class folders, such as b\.png"):
        folder_entries(tmp_path)
    (tmp_path / "b.png").unlink()
    (tmp_path / "cat" / "a.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"a\.png cannot be read as an image"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cat/a.png\n", "line 1: 'cat/a.png' is no label: a line is `path label`, and labels count from 0"),
        ("cat/a.png 0\ncat/b.png one\n", "line 2"),
        ("/etc/a.png 0\n", "leaves the data folder"),
        ("../a.png 0\n", "leaves the data folder"),
        ("\n", "names no image"),
        ("cat/absent.png 0\n", "absent.png does not exist"),
    ],
)
def test_what_is_wrong_with_a_split_file(tmp_path, text, words):
    (tmp_path / "real_train.txt").write_text(text)
    with pytest.raises(UserError) as caught:
        read(tmp_path / "real_train.txt")
    assert words in str(caught.value)


def test_paths_with_spaces(tmp_path):
    (tmp_path / "s.txt").write_text("a cat/1 2.png\t4\r\n")
    assert read_split(tmp_path / "s.txt") == [SplitEntry("a cat/1 2.png", 4)]


def test_too_many_pixels(pictures, monkeypatch):
    monkeypatch.setattr(images, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="draw fewer with --limit, or smaller ones with --image-size"):
        read(pictures / "photos")
