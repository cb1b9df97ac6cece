"""DomainNet, the cleaned version: where it is published, and whether a copy is whole.

The publishers give no full checksums. Of three parts the size and the beginning and end of the SHA-256 are known; they
find a damaged or different file, but eight and six hexadecimal digits are no proof against a forger.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from trace.io.checksum import sha256
from trace.io.errors import explain
from trace.io.splits import read_split

from ...engine.errors import UserError
from ...fetch.archives import unpack
from ...fetch.downloads import fetch
from ...fetch.home import data_home
from ..images import load_dataset, split_file
from ..split_report import Expected, SplitReport, check

_COUNTS = {
    "real": (120_906, 52_041),
    "painting": (50_416, 21_850),
    "sketch": (48_212, 20_916),
    "clipart": (33_525, 14_604),
    "infograph": (36_023, 15_582),
    "quickdraw": (120_750, 51_750),
}
EXPECTED = {
    (domain, split): count
    for domain, counts in _COUNTS.items()
    for split, count in zip(("train", "test"), counts, strict=True)
}


FOLDER = "domainnet"
FETCH = "domainnet --download"
HOME = "http://csr.bu.edu/ftp/visda/2019/multi-source/"
SPLITS_URL = f"{HOME}domainnet/txt/"


class PublishedArchive(NamedTuple):
    """A published archive with the images of one domain."""

    url: str
    size: int
    begins: str
    ends: str
    """The digits of its SHA-256 that are known."""


PARTS = {
    "real": PublishedArchive(f"{HOME}real.zip", 6_062_039_589, "d7fe010b", "251d63"),
    "painting": PublishedArchive(f"{HOME}groundtruth/painting.zip", 3_679_366_174, "fa47e6d4", "770015"),
    "sketch": PublishedArchive(f"{HOME}sketch.zip", 2_633_992_926, "23a7dbae", "c499fc"),
}
"""Painting outside of the ``groundtruth`` folder misses files that the splits name."""


def look(
    root: Path | None, domains: tuple[str, ...] | None, *, images: bool = False, download: bool = False
) -> list[SplitReport]:
    """Check the copy at hand, after fetching what is missing of it where that was asked for."""
    folder = root or data_home() / FOLDER
    if download:
        fetch_domains(folder, domains or tuple(PARTS))
    print(f"domainnet is looked for in {folder}")
    return verify(folder, domains=domains, images=images)


def verify(
    root: Path, *, domains: tuple[str, ...] | None = None, images: bool = False, expected: Expected = EXPECTED
) -> list[SplitReport]:
    """Counts against the published ones and absent files; with ``images`` also those that cannot be decoded."""
    return check(load_dataset("domainnet", root=root), domains=domains, expected=expected, images=images)


def fetch_domains(
    root: Path,
    domains: Iterable[str] = tuple(PARTS),
    *,
    parts: Mapping[str, PublishedArchive] = PARTS,
    splits_url: str = SPLITS_URL,
    expected: Expected = EXPECTED,
    pause: float = 2.0,
) -> None:
    """Fetch and unpack domains below ``root``; what is there is kept, what broke off goes on.

    Raises:
        UserError: for a domain that has no known archive, and for a file that is not what was published.
    """
    chosen = tuple(domains)
    for domain in chosen:
        if domain not in parts:
            raise UserError(
                f"there is no known archive of {domain}: fetch it by hand into {root / domain} "
                f"(known are {', '.join(parts)})"
            )
    for domain in chosen:
        for split in ("train", "test"):
            path = split_file(root, domain, split)
            check_lines = partial(_wrong_lines, expected=expected[domain, split])
            fetch(f"{splits_url}{path.name}", path, check=check_lines, pause=pause)
        if not _has_all(root, domain):
            _fetch_images(root, domain, parts[domain], pause)


def _fetch_images(root: Path, domain: str, part: PublishedArchive, pause: float) -> None:
    """One archive; the folder of the domain appears when all of it is unpacked."""
    target = root / domain
    if target.exists():
        raise UserError(f"{target} exists and lacks images that the splits name: move it away, then call again")
    archive = fetch(
        part.url, root / f"{domain}.zip", check=partial(_wrong_bytes, part=part), size=part.size, pause=pause
    )
    with (
        explain(f"{archive} cannot be unpacked", "free space or permissions, then call again", OSError),
        tempfile.TemporaryDirectory(dir=root, prefix=f".{domain}.") as aside,
    ):
        unpack(archive, Path(aside))
        if not (Path(aside) / domain).is_dir():
            raise UserError(f"{archive} holds no folder {domain}: delete it and fetch it again")
        os.replace(Path(aside) / domain, target)


def _has_all(root: Path, domain: str) -> bool:
    entries = (entry for split in ("train", "test") for entry in read_split(split_file(root, domain, split)))
    return all((root / entry.path).is_file() for entry in entries)


def _wrong_bytes(path: Path, part: PublishedArchive) -> str | None:
    size = path.stat().st_size
    if size != part.size:
        return f"has {size:,} bytes instead of {part.size:,}"
    found = sha256(path)
    if found.startswith(part.begins) and found.endswith(part.ends):
        return None
    return f"has SHA-256 {found} instead of {part.begins}...{part.ends}"


def _wrong_lines(path: Path, expected: int) -> str | None:
    try:
        found = len(read_split(path))
    except UserError as error:
        return f"is no split file ({error})"
    return None if found == expected else f"lists {found:,} images instead of {expected:,}"
