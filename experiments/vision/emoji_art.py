"""The artists of the emoji data set: where their drawings stand in a package, and how they become pictures."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import resvg_py
from PIL import Image

from .emoji_things import key_of
from .npm import Package

Drawing = Path | str
"""A file, or the text of an SVG."""

FLUENT = Package(
    "@lobehub/fluent-emoji-3d", "1.1.0",
    "c1bb7eee7de090205a232518a9ab4adb3df458bfbe8a1f78232991194c8b2e58", "MIT", "Microsoft, packaged by LobeHub",
)  # fmt: skip
NOTO = Package(
    "@iconify-json/noto", "1.2.9",
    "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad", "Apache-2.0", "Google, packaged by Iconify",
)  # fmt: skip
OPENMOJI = Package(
    "openmoji", "17.0.0",
    "55ee7d13485dec86e9f38c1f3a645a13382d33ff97c0cd845ee824b0aef45e68", "CC-BY-SA-4.0", "OpenMoji",
)  # fmt: skip
TWEMOJI = Package(
    "@iconify-json/twemoji", "1.2.5",
    "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7", "CC-BY-4.0", "Twitter, packaged by Iconify",
)  # fmt: skip


class Artist(NamedTuple):
    """One hand: a package, and how its drawings are found by key."""

    package: Package
    drawings: Callable[[Path], dict[str, Drawing]]


def files(package: Path, folder: str, pattern: str) -> dict[str, Drawing]:
    """Files that are named after their code points; of two spellings of one key the first counts."""
    found: dict[str, Drawing] = {}
    for path in sorted((package / folder).glob(pattern)):
        found.setdefault(key_of(path.stem), path)
    return found


def icons(package: Path) -> dict[str, Drawing]:
    """SVG texts from Iconify's JSON, whose ``chars.json`` names the drawing of each code point."""
    names = json.loads((package / "chars.json").read_text(encoding="utf-8"))
    stored = json.loads((package / "icons.json").read_text(encoding="utf-8"))
    return {
        key_of(code_points): _svg(stored["icons"][name], stored.get("width", 16), stored.get("height", 16))
        for code_points, name in names.items()
        if name in stored["icons"]
    }


ARTISTS = {
    "real": Artist(FLUENT, partial(files, folder="assets", pattern="*.webp")),
    "painting": Artist(NOTO, icons),
    "sketch": Artist(OPENMOJI, partial(files, folder="black/svg", pattern="*.svg")),
    "twemoji": Artist(TWEMOJI, icons),
    "openmoji-color": Artist(OPENMOJI, partial(files, folder="color/svg", pattern="*.svg")),
}
"""By domain."""


def picture(drawing: Drawing, size: int) -> Image.Image:
    """A drawing in the middle of a white square of ``size`` pixels, in RGB."""
    if isinstance(drawing, Path) and drawing.suffix != ".svg":
        with Image.open(drawing) as stored:
            image = stored.convert("RGBA")
    else:
        text = drawing.read_text(encoding="utf-8") if isinstance(drawing, Path) else drawing
        image = Image.open(io.BytesIO(resvg_py.svg_to_bytes(svg_string=text, width=size, skip_system_fonts=True)))
    side = max(image.size)
    paper = Image.new("RGBA", (side, side), "white")
    paper.alpha_composite(image.convert("RGBA"), ((side - image.width) // 2, (side - image.height) // 2))
    return paper.convert("RGB").resize((size, size), Image.Resampling.LANCZOS)


def is_blank(image: Image.Image) -> bool:
    """Whether there is nothing but one colour."""
    return image.getcolors(maxcolors=1) is not None


def _svg(icon: dict[str, object], width: int, height: int) -> str:
    box = f"{icon.get('left', 0)} {icon.get('top', 0)} {icon.get('width', width)} {icon.get('height', height)}"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{box}">{icon["body"]}</svg>'
    )
