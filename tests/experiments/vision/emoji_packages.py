"""Tiny npm packages in the form of the real ones: a few things by three artists, with the traps of the real ones."""

import io
import json
import shutil
import tarfile
from functools import partial

from PIL import Image

from experiments.fetch.npm import Package
from experiments.vision.datasets.emoji import Artist, files, icons
from trace.io.checksum import sha256

ANIMALS = [f"1F4{n:02X}" for n in range(20)]
FARMERS = ["1F468-200D-1F33E", "1F469-200D-1F33E", "1F9D1-200D-1F33E"]
RUNNERS = ["1F3C3", "1F3C3-200D-2640-FE0F", "1F3C3-200D-2642-FE0F"]
CIRCLES = ["1F534", "1F535", "1F7E0", "1F7E1"]
"""Of one outline: they differ in colour, and the line art has none."""
KEYCAP = "0031-FE0F-20E3"
EMPTY = "1F195"
UNDRAWN = "1FAE9"
"""No picture of it in `real`."""

ROWS = [
    *((code, "animals-nature", "animal-mammal", "") for code in ANIMALS),
    *((code, "people-body", "person-role", "") for code in FARMERS),
    *((code, "people-body", "person-activity", "") for code in RUNNERS),
    *((code, "symbols", "geometric", "") for code in CIRCLES),
    (KEYCAP, "symbols", "keycap", ""),
    (EMPTY, "symbols", "alphanum", ""),
    (UNDRAWN, "smileys-emotion", "face-sleepy", ""),
    ("1F468-1F3FB-200D-1F33E", "people-body", "person-role", "1"),
    ("2BEB", "extras-unicode", "geometric", ""),
    ("1F1E9-1F1EA", "flags", "country-flag", ""),
]
CODES = [row[0] for row in ROWS]


def rect(number, colour, *, fill):
    """A drawing that is different for every number; without a number, an empty one."""
    shape = f'<rect x="{number % 7 + 1}" y="{number // 7 + 1}" width="20" height="{8 + number % 5}" '
    return shape + (f'fill="{colour}"/>' if fill else f'fill="none" stroke="{colour}"/>')


def svg(body):
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 36 36">{body}</svg>'


def fake_artists(folder):
    """Artists by domain, the package with the labels, and a fetch that copies what lies in ``folder``."""
    folder.mkdir()
    openmoji = _package(folder, "openmoji", _openmoji())
    artists = {
        "real": Artist(_package(folder, "fluent", _fluent()), partial(files, folder="assets", pattern="*.webp")),
        "painting": Artist(_package(folder, "noto", _noto()), icons),
        "sketch": Artist(openmoji, partial(files, folder="black/svg", pattern="*.svg")),
    }

    def fetch(package, target):
        target.mkdir(parents=True)
        return shutil.copy(folder / f"{package.name}.tgz", target / f"{package.name}.tgz")

    return {"artists": artists, "labels": openmoji, "fetch": fetch}


def _openmoji():
    keys = ("hexcode", "group", "subgroups", "skintone")
    entries = {"data/openmoji.json": json.dumps([dict(zip(keys, row, strict=True)) for row in ROWS])}
    for number, code in enumerate(CODES):
        outline = CODES.index(CIRCLES[0]) if code in CIRCLES else number
        body = "" if code == EMPTY else rect(outline, "black", fill=False)
        entries[f"black/svg/{code}.svg"] = svg(body)
    return entries


def _noto():
    chars = {code.lower().replace("-fe0f", "").lstrip("0"): f"name-{code}" for code in CODES}
    drawn = {f"name-{code}": {"body": rect(n, f"#{40 + n}60a0", fill=True)} for n, code in enumerate(CODES)}
    return {"chars.json": json.dumps(chars), "icons.json": json.dumps({"icons": drawn, "width": 36, "height": 36})}


def _fluent():
    entries = {}
    for number, code in enumerate(CODES):
        if code != UNDRAWN:
            image = Image.new("RGBA", (32, 36 if number == 2 else 32))
            image.paste((200, 5 * number, 90, 255), (2, 2, 20, 10 + number % 7))
            buffer = io.BytesIO()
            image.save(buffer, "WEBP", lossless=True)
            entries[f"assets/{code.lower()}.webp"] = buffer.getvalue()
    return entries


def _package(folder, name, entries):
    path = folder / f"{name}.tgz"
    with tarfile.open(path, "w:gz") as bundle:
        for entry, content in entries.items():
            data = content if isinstance(content, bytes) else content.encode()
            info = tarfile.TarInfo(f"package/{entry}")
            info.size = len(data)
            bundle.addfile(info, io.BytesIO(data))
    return Package(name, "1.0.0", sha256(path), "MIT", "nobody")
