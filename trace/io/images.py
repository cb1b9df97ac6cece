"""Images: a folder with one subfolder per class, or a split file of ``path label`` lines in DomainNet's layout."""

import hashlib
import io
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import MissingFileError, UserError, first_line, require
from .opened import FileBytes, read_bytes
from .rows import FileRows
from .splits import read_split

Transform = Callable[[Any], Tensor]
"""From an RGB image to ``[3, size, size]``."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""What is read, whatever the suffix says: Pillow hands others, such as EPS, to programs of the machine."""
MOST_BYTES = 8 * 2**30
MOST_FILE = 256 * 2**20
MOST_STRETCHED = 64
"""Times one side may be as long as the other: models take squares, and a line becomes a large one."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of the channels."""


def folder_entries(folder: Path) -> tuple[list[str], np.ndarray[Any, Any] | None, tuple[str, ...] | None]:
    """Relative paths, class names of the images, and all class names in their order; no labels in a flat folder."""
    classes = tuple(
        sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    )
    found = [
        (f"{name}/{file.name}", name)
        for name in classes
        for file in sorted((folder / name).iterdir())
        if file.suffix.lower() in SUFFIXES
    ]
    flat = sorted(file.name for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if found and flat:
        raise UserError(f"{folder} holds images beside its class folders, such as {flat[0]}: move them into a class")
    if found:
        return [path for path, _ in found], np.array([name for _, name in found]), classes
    if flat:
        return flat, None, None
    raise UserError(f"{folder} holds no images: lay them out as folder/class/file ({', '.join(SUFFIXES)})")


def image_rows(path: Path, transform: Transform, *, limit: int | None, generator: torch.Generator) -> FileRows:
    """All images of a folder or split file, or ``limit`` of them, as one tensor ``[n, 3, size, size]``."""
    classes: tuple[str, ...] | None = None
    labels: np.ndarray[Any, Any] | None
    if path.is_dir():
        root, (files, labels, classes) = path, folder_entries(path)
    else:
        if not (entries := read_split(path)):
            raise UserError(f"{path} names no image: a split file has `path label` lines")
        root, files = path.parent, [entry.path for entry in entries]
        labels = np.array([entry.label for entry in entries])
    if limit is not None and len(files) > limit:
        chosen = torch.randperm(len(files), generator=generator)[:limit].sort().values.tolist()
        files, labels = [files[i] for i in chosen], None if labels is None else labels[chosen]
    pixels, digest = _pixels(root, files, transform, path)
    return FileRows(str(path), pixels, labels, files, classes=classes, sha256=digest)


def _pixels(root: Path, files: Sequence[str], transform: Transform, origin: Path) -> tuple[Tensor, str]:
    """The images in their order, and a digest of their names and bytes."""
    first = transform(open_image(root / files[0]))
    if (size := first.numel() * first.element_size() * len(files)) > MOST_BYTES:
        raise UserError(
            f"the {len(files)} images of {origin} take {size / 2**30:.0f} GB: draw fewer with --limit, or smaller ones "
            "with --image-size"
        )
    pixels, digest = torch.empty(len(files), *first.shape), hashlib.sha256()
    for i, file in enumerate(files):
        found = _image_bytes(root / file)
        pixels[i] = transform(decode_image(found))
        digest.update(f"{file}\0{found.sha256}\n".encode("utf-8", "surrogateescape"))
    return pixels, digest.hexdigest()


def _image_bytes(path: Path) -> FileBytes:
    try:
        return read_bytes(path, most=MOST_FILE)
    except MissingFileError as error:
        raise UserError(f"{path} does not exist: fetch it, or drop its line from the split file") from error


def open_image(path: Path, *, remedy: str = "fetch it again or drop it") -> Any:
    """The image of a file, as `decode_image` gives it.

    Raises:
        UserError: where it is absent, and as `decode_image`.
    """
    return decode_image(_image_bytes(path), remedy=remedy)


def decode_image(file: FileBytes, *, remedy: str = "fetch it again or drop it") -> Any:
    """An image in RGB; what is transparent becomes white. ``remedy`` ends the sentence about a broken one.

    Raises:
        UserError: where it is truncated, no image, has more than 8 bits a channel, or is a line rather than a picture.
    """
    pillow, path = require("PIL.Image", purpose="reading images"), file.path
    try:
        with pillow.open(io.BytesIO(file.data), formats=FORMATS) as image:
            if max(image.size) > MOST_STRETCHED * min(image.size):
                wide, high = image.size
                raise UserError(f"{path} has {wide} x {high} pixels, which is no picture: crop it or drop it")
            deep = image.mode.startswith(("I", "F"))
            if not deep and not image.has_transparency_data:
                return image.convert("RGB")
            drawing = image.convert("RGBA")
    except UserError:
        raise
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        struct.error,
        MemoryError,
        pillow.DecompressionBombError,
    ) as error:
        raise UserError(f"{path} cannot be read as an image ({first_line(error)}): {remedy}") from error
    if deep:
        raise UserError(f"{path} has 16 or 32 bits a pixel, and nothing says which is white: convert it to 8")
    paper = pillow.new("RGBA", drawing.size, "white")
    paper.alpha_composite(drawing)
    return paper.convert("RGB")


def plain_transform(size: int, *, imagenet: bool) -> Transform:
    """Resize the shorter side, crop the middle, scale to [0, 1]; then ImageNet's mean and deviation if asked for."""

    def transform(image: Any) -> Tensor:
        scale = size / min(image.size)
        wide, high = (max(size, round(side * scale)) for side in image.size)
        left, top = (wide - size) // 2, (high - size) // 2
        middle = image.resize((wide, high)).crop((left, top, left + size, top + size))
        pixels = torch.from_numpy(np.asarray(middle, dtype=np.float32) / 255).permute(2, 0, 1)
        if not imagenet:
            return pixels
        mean, deviation = (torch.tensor(values)[:, None, None] for values in IMAGENET)
        return (pixels - mean) / deviation

    return transform
