"""The emoji data set: one set of things drawn by independent artists, in DomainNet's layout; 23 MB to fetch.

It is built once below ``data_home()``: the artists' npm packages are fetched and checked, what all of them drew is
painted on white squares of 224 pixels, and the same thing stands in the same split in every domain.
"""

import hashlib
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import resvg_py
from PIL import Image

from trace.io.errors import explain
from trace.io.images import open_image
from trace.io.splits import SplitEntry, split_text
from trace.io.writing import write_atomically

from ...engine.errors import UserError
from ...engine.progress import progress_bar
from ...fetch.home import data_home
from ...fetch.npm import Package, pack, unpack_package
from ..images import ImageSet, as_own, class_counts, digest, load_dataset, split_file
from ..split_report import SplitReport, check

SHARES = {"train": 0.50, "val": 0.15, "test": 0.35}

SUBGROUPS = {
    "animal": "animal-mammal animal-bird animal-marine animal-reptile animal-amphibian animal-bug",
    "clothing": "clothing",
    "electronics": "computer phone light-video sound",
    "face": "face-smiling face-affection face-tongue face-hand face-neutral-skeptical face-sleepy face-unwell face-hat "
    "face-glasses face-concerned face-negative face-costume",
    "food": "food-fruit food-vegetable food-prepared food-asian food-sweet drink dishware",
    "geometric": "geometric",
    "hand": "hand-fingers-open hand-fingers-partial hand-fingers-closed hand-single-finger hand-prop hands",
    "heart": "heart emotion",
    "object": "tool science medical household other-object lock",
    "person": "person person-role person-fantasy person-activity person-resting person-gesture",
    "person-sport": "person-sport",
    "place": "place-building place-religious place-geographic place-map place-other hotel",
    "plant": "plant-flower plant-other",
    "sign": "arrow av-symbol transport-sign warning religion zodiac",
    "sky": "sky-weather",
    "sport": "sport award-medal",
    "stationery": "office writing book-paper mail money",
    "text": "alphanum keycap punctuation math",
    "time": "time",
    "transport": "transport-ground transport-air transport-water",
}
"""Subgroups of OpenMoji by class."""

CLASSES = tuple(sorted(SUBGROUPS))
_CLASS_OF = {subgroup: name for name, subgroups in SUBGROUPS.items() for subgroup in subgroups.split()}

_VARIATION = {"fe0e", "fe0f"}
_SIGNS = {"200d", "2640", "2642"}
"""The joiner, and the signs that make a person a woman or a man."""
_NEUTRAL = {
    "1f468": "1f9d1", "1f469": "1f9d1",  # man, woman: person
    "1f466": "1f9d2", "1f467": "1f9d2",  # boy, girl: child
    "1f474": "1f9d3", "1f475": "1f9d3",  # old man, old woman: older person
    "1f934": "1fac5", "1f478": "1fac5",  # prince, princess: person with crown
    "1f57a": "1f483",  # man dancing: woman dancing
    "1f930": "1fac4", "1fac3": "1fac4",  # pregnant woman, man: person
    "1f385": "1f9d1-1f384", "1f936": "1f9d1-1f384",  # Santa, Mrs Claus: Mx Claus
}  # fmt: skip


class Thing(NamedTuple):
    """Something that every artist drew."""

    key: str
    label: str
    """Its class."""

    @property
    def identity(self) -> str:
        """What it is, whoever it shows: a woman farmer, a man farmer and a farmer are one."""
        parts = (part for part in self.key.split("-") if part not in _SIGNS)
        return "-".join(_NEUTRAL.get(part, part) for part in parts)


def key_of(code_points: str) -> str:
    """The key of ``1F468-200D-FE0F``, however an artist wrote it."""
    parts = (part.lstrip("0") for part in code_points.lower().split("-"))
    return "-".join(part for part in parts if part not in _VARIATION)


def things_of(openmoji: Path) -> list[Thing]:
    """The things of our classes in OpenMoji's list: no skin tones, nothing that OpenMoji added to Unicode."""
    rows = json.loads((openmoji / "data" / "openmoji.json").read_text(encoding="utf-8"))
    chosen = (
        row
        for row in rows
        if row["skintone"] == "" and not row["group"].startswith("extras-") and row["subgroups"] in _CLASS_OF
    )
    return sorted(Thing(key_of(row["hexcode"]), _CLASS_OF[row["subgroups"]]) for row in chosen)


def together(things: Sequence[Thing], fingerprints: Mapping[str, Iterable[str]]) -> list[list[Thing]]:
    """Groups that must not be torn apart: one identity, or the same picture in some domain.

    ``fingerprints`` holds the pictures' hashes by key; equal ones must mean equal pictures.
    """
    group_of: dict[str, list[Thing]] = {}
    for thing in things:
        marks = [f"thing {thing.identity}", *(f"picture {mark}" for mark in fingerprints[thing.key])]
        met = {id(group_of[mark]): group_of[mark] for mark in marks if mark in group_of}
        merged = [thing, *(member for group in met.values() for member in group)]
        old = [mark for mark, group in group_of.items() if id(group) in met]
        group_of.update(dict.fromkeys([*old, *marks], merged))
    return [sorted(group) for group in {id(group): group for group in group_of.values()}.values()]


def split_up(groups: Iterable[Sequence[Thing]]) -> dict[str, list[Thing]]:
    """Train, val and test in their shares of every class; each group goes to the split that lacks most.

    Large groups come first, equal ones in the order of a hash of their identity: the same things always fall alike.
    """
    by_class: dict[str, list[Sequence[Thing]]] = {}
    for group in groups:
        by_class.setdefault(Counter(thing.label for thing in group).most_common(1)[0][0], []).append(group)
    splits: dict[str, list[Thing]] = {split: [] for split in SHARES}
    for name in sorted(by_class):
        lacking = {split: share * sum(map(len, by_class[name])) for split, share in SHARES.items()}
        for group in sorted(by_class[name], key=lambda group: (-len(group), _shuffled(group[0]))):
            chosen = max(lacking, key=lambda split: lacking[split])
            lacking[chosen] -= len(group)
            splits[chosen].extend(group)
    return {split: sorted(things) for split, things in splits.items()}


def _shuffled(thing: Thing) -> str:
    return hashlib.sha256(thing.identity.encode()).hexdigest()


Drawing = Path | str
"""A file, or the text of an SVG."""

FLUENT = Package(
    "@lobehub/fluent-emoji-3d",
    "1.1.0",
    "c1bb7eee7de090205a232518a9ab4adb3df458bfbe8a1f78232991194c8b2e58",
    "MIT",
    "Microsoft, packaged by LobeHub",
)
NOTO = Package(
    "@iconify-json/noto",
    "1.2.9",
    "3e918d88fc945c0bb3d468dbace6f88caef67f01c9f0e7bcae0915a042e8f1ad",
    "Apache-2.0",
    "Google, packaged by Iconify",
)
OPENMOJI = Package(
    "openmoji",
    "17.0.0",
    "55ee7d13485dec86e9f38c1f3a645a13382d33ff97c0cd845ee824b0aef45e68",
    "CC-BY-SA-4.0",
    "OpenMoji",
)
TWEMOJI = Package(
    "@iconify-json/twemoji",
    "1.2.5",
    "19046dff7d8707ce96212ec86468b36ac5f8e60409629dd13f809265c6d0ebb7",
    "CC-BY-4.0",
    "Twitter, packaged by Iconify",
)


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
        image = open_image(drawing)
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


FOLDER = "emoji-1"
FETCH = "emoji"
DOMAINS = ("real", "painting", "sketch")
SIZE = 224
MANIFEST = "manifest.json"

Manifest = dict[str, Any]
Fetch = Callable[[Package, Path], Path]
Value = TypeVar("Value")


class _Painted(NamedTuple):
    """Where a picture stands, and what tells it from others."""

    domain: str
    thing: Thing
    path: Path
    fingerprint: str
    blank: bool


def folder_of(domains: tuple[str, ...] = DOMAINS) -> Path:
    """Where a choice of domains is kept: other artists leave other things in common, and so are another data set."""
    return data_home() / (FOLDER if domains == DOMAINS else "-".join([FOLDER, *domains]))


def look(
    root: Path | None, domains: tuple[str, ...] | None, *, images: bool = False, download: bool = False
) -> list[SplitReport]:
    """Build it where it is absent, and check what is there."""
    if download:
        raise UserError("emoji is built where it is absent: leave --download out")
    folder = ensure(root, domains=domains)
    print(f"emoji is in {folder}")
    found = load_dataset("emoji", root=folder)
    if folder != folder_of():
        print(as_own("emoji", folder, found.domains))
    return check(found, images=images)


def ensure(root: Path | None = None, *, domains: tuple[str, ...] | None = None) -> Path:
    """Where the data set is: built if it is absent, checked against its manifest if it is not."""
    folder = root or folder_of(domains or DOMAINS)
    if not folder.exists() or not any(folder.iterdir()):
        build(folder, domains=domains or DOMAINS)
        return folder
    found = verify(folder)["domains"]
    if domains and set(found) != set(domains):
        raise UserError(f"{folder} holds {', '.join(found)}: name these domains, or give another --root")
    return folder


def build(
    root: Path,
    *,
    domains: tuple[str, ...] = DOMAINS,
    artists: Mapping[str, Artist] = ARTISTS,
    labels: Package = OPENMOJI,
    fetch: Fetch = pack,
) -> Manifest:
    """Fetch, paint and split; ``root`` appears in one step when all of it is done."""
    for domain in domains:
        if domain not in artists:
            raise UserError(f"nobody draws {domain!r}: emoji domains are {', '.join(artists)}")
    with explain(f"{root} cannot be written", "free it, or give another folder with --root", OSError):
        root.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{root.name}.") as aside:
            packages = {package.spec: package for package in (labels, *(artists[d].package for d in domains))}
            folders = {spec: _brought(package, Path(aside), fetch) for spec, package in packages.items()}
            drawings = {d: artists[d].drawings(folders[artists[d].package.spec]) for d in domains}
            things = [t for t in things_of(folders[labels.spec]) if all(t.key in found for found in drawings.values())]
            tree = Path(aside) / "tree"
            manifest = _paint_and_split(tree, drawings, things) | {"packages": [p._asdict() for p in packages.values()]}
            write_atomically(tree / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")
            os.replace(tree, root)
    return manifest


def verify(root: Path) -> Manifest:
    """The manifest, once the split files and the sizes of all images agree with it."""
    remedy = f"delete {root}, then build it again with `python -m experiments data emoji`"
    try:
        manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        stored = manifest["digests"]
        found = _by_split(root, digest)
    except FileNotFoundError as error:
        raise UserError(f"{root} is no whole emoji data set ({error}): {remedy}") from error
    except (json.JSONDecodeError, KeyError) as error:
        raise UserError(f"{root / MANIFEST} is damaged ({error}): {remedy}") from error
    changed = sorted(name for name in found.keys() | stored.keys() if found.get(name) != stored.get(name))
    if changed:
        raise UserError(f"{root} differs from its manifest ({', '.join(changed)}): {remedy}")
    return manifest


def _brought(package: Package, aside: Path, fetch: Fetch) -> Path:
    name = package.spec.replace("/", "+")
    return unpack_package(package, fetch(package, aside / "tarballs" / name), aside / "packages" / name)


def _paint_and_split(tree: Path, drawings: Mapping[str, Mapping[str, Drawing]], things: list[Thing]) -> Manifest:
    painted = list(_painted(tree, drawings, things))
    blank = {one.thing for one in painted if one.blank}
    fingerprints: dict[str, list[str]] = {}
    for one in painted:
        fingerprints.setdefault(one.thing.key, []).append(f"{one.domain} {one.fingerprint}")
        if one.thing in blank:
            one.path.unlink()
    kept = [thing for thing in things if thing not in blank]
    groups = together(kept, fingerprints)
    for split, members in split_up(groups).items():
        for domain in drawings:
            entries = [SplitEntry(_relative(domain, thing), CLASSES.index(thing.label)) for thing in members]
            write_atomically(split_file(tree, domain, split), split_text(entries), sync=False)
    return {
        "name": FOLDER,
        "domains": list(drawings),
        "size": SIZE,
        "things": len(kept),
        "groups": len(groups),
        "dropped": sorted(thing.key for thing in blank),
        "painted_with": {name: version(name) for name in ("resvg_py", "pillow")},
        "counts": _by_split(tree, class_counts),
        "digests": _by_split(tree, digest),
    }


def _painted(tree: Path, drawings: Mapping[str, Mapping[str, Drawing]], things: list[Thing]) -> Iterator[_Painted]:
    """Every thing by every artist, written below ``tree``."""
    work = [(domain, thing) for domain in drawings for thing in things]
    steps = progress_bar((domain for domain, _ in work), len(work), "emoji", unit="image")
    for (domain, thing), _ in zip(work, steps, strict=True):
        image = picture(drawings[domain][thing.key], SIZE)
        path = tree / _relative(domain, thing)
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        yield _Painted(domain, thing, path, hashlib.sha256(image.tobytes()).hexdigest(), is_blank(image))


def _relative(domain: str, thing: Thing) -> str:
    return f"{domain}/{thing.label}/{thing.key}.png"


def _by_split(root: Path, value: Callable[[ImageSet], Value]) -> dict[str, Value]:
    """A value of the images, by domain and split."""
    data = load_dataset("emoji", root=root)
    return {f"{d} {s}": value(data.images(d, s)) for d in data.domains for s in data.splits}
