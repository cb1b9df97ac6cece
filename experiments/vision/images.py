"""A list of labelled images on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from ..errors import UserError


class ImageSet(NamedTuple):
    """One split of one domain."""

    name: str
    domain: str
    split: str
    root: Path
    paths: tuple[str, ...]
    """Relative to ``root``."""
    labels: tuple[int, ...]
    classes: tuple[str, ...]


def digest(image_set: ImageSet) -> str:
    """SHA-256 of the files in their order."""
    total = hashlib.sha256()
    for path in image_set.paths:
        content = (image_set.root / path).read_bytes()
        total.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def open_image(path: Path) -> Image.Image:
    """The image in RGB.

    Raises:
        UserError: for a file that is missing or no whole image.
    """
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except OSError as error:
        raise UserError(f"{path} cannot be read as an image ({error}): prepare the data again") from error
