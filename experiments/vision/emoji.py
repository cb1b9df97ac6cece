"""The emoji data set: one set of things drawn by independent artists, in DomainNet's layout; 23 MB to fetch.

It is built once below ``data_home()``: the artists' npm packages are fetched and checked, what all of them drew is
painted on white squares of 224 pixels, and the same thing stands in the same split in every domain.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from trace.tool.split_files import Entry

from ..errors import UserError
from ..progress import watched
from ..records import write_atomically
from .emoji_art import ARTISTS, OPENMOJI, Artist, Drawing, is_blank, picture
from .emoji_things import CLASSES, Thing, split_up, things_of, together
from .images import FOLDERS, class_counts, data_home, digest, load_dataset
from .npm import Package, pack, unpacked
from .splits import split_file, write_split

NAME = FOLDERS["emoji"]
DOMAINS = ("real", "painting", "sketch")
SIZE = 224
MANIFEST = "manifest.json"

Manifest = dict[str, Any]
Fetch = Callable[[Package, Path], Path]


class _Painted(NamedTuple):
    """Where a picture stands, and what tells it from others."""

    domain: str
    thing: Thing
    path: Path
    fingerprint: str
    blank: bool


def folder_of(domains: tuple[str, ...] = DOMAINS) -> Path:
    """Where a choice of domains is kept: other artists leave other things in common, and so are another data set."""
    return data_home() / (NAME if domains == DOMAINS else "-".join([NAME, *domains]))


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
    try:
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
    except OSError as error:
        raise UserError(f"{root} cannot be written ({error}): free it, or give another folder with --root") from error
    return manifest


def verify(root: Path) -> Manifest:
    """The manifest, once the split files and the sizes of all images agree with it."""
    remedy = f"delete {root}, then build it again with `python -m experiments data emoji`"
    try:
        manifest = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
        stored = manifest["digests"]
        found = _digests(root)
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
    return unpacked(package, fetch(package, aside / "tarballs" / name), aside / "packages" / name)


def _paint_and_split(tree: Path, drawings: Mapping[str, Mapping[str, Drawing]], things: list[Thing]) -> Manifest:
    painted = list(_painted(tree, drawings, things))
    blank = {one.thing for one in painted if one.blank}
    for one in painted:
        if one.thing in blank:
            one.path.unlink()
    fingerprints: dict[str, list[str]] = {}
    for one in painted:
        fingerprints.setdefault(one.thing.key, []).append(f"{one.domain} {one.fingerprint}")
    kept = [thing for thing in things if thing not in blank]
    groups = together(kept, fingerprints)
    for split, members in split_up(groups).items():
        for domain in drawings:
            entries = [Entry(_relative(domain, thing), CLASSES.index(thing.label)) for thing in members]
            write_atomically(split_file(tree, domain, split), write_split(entries), sync=False)
    return {
        "name": NAME,
        "domains": list(drawings),
        "size": SIZE,
        "things": len(kept),
        "groups": len(groups),
        "dropped": sorted(thing.key for thing in blank),
        "painted_with": {name: version(name) for name in ("resvg_py", "pillow")},
        "counts": _counts(tree),
        "digests": _digests(tree),
    }


def _painted(tree: Path, drawings: Mapping[str, Mapping[str, Drawing]], things: list[Thing]) -> Iterator[_Painted]:
    """Every thing by every artist, written below ``tree``."""
    work = [(domain, thing) for domain in drawings for thing in things]
    steps = watched((domain for domain, _ in work), len(work), "emoji", unit="image")
    for (domain, thing), _ in zip(work, steps, strict=True):
        image = picture(drawings[domain][thing.key], SIZE)
        path = tree / _relative(domain, thing)
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        yield _Painted(domain, thing, path, hashlib.sha256(image.tobytes()).hexdigest(), is_blank(image))


def _relative(domain: str, thing: Thing) -> str:
    return f"{domain}/{thing.label}/{thing.key}.png"


def _counts(root: Path) -> dict[str, dict[str, int]]:
    """Images of every class, by domain and split."""
    data = load_dataset("emoji", root=root)
    return {f"{d} {s}": class_counts(data.images(d, s)) for d in data.domains for s in data.splits}


def _digests(root: Path) -> dict[str, str]:
    data = load_dataset("emoji", root=root)
    return {f"{d} {s}": digest(data.images(d, s)) for d in data.domains for s in data.splits}
