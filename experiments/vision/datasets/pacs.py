"""PACS: photographs, paintings, cartoons and sketches of the same seven things; 191 MB to fetch.

Li et al. (2017), from the public repository at `HOME`. It states no licence: no image is part of this project, and none
should be passed on. It has no splits either; ours follow from the names of the files, train, val and test in the shares
of the emoji set, in every class.
"""

import hashlib
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from trace.io.checksum import sha256
from trace.io.errors import explain
from trace.io.splits import SplitEntry, split_text
from trace.io.writing import write_atomically

from ...engine.errors import MissingFileError, UserError
from ...fetch.home import data_home
from ..images import as_own, load_dataset, split_file
from ..split_report import SplitReport, check

FOLDER = "pacs"
FETCH = "pacs --download"
HOME = "https://github.com/MachineLearning2020/Homework3-PACS"
INSIDE = "PACS"
"""The folder of the repository that holds the domains."""
TIMEOUT_SECONDS = 3600.0

CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
CUTS = (0.50, 0.65)
"""Train ends at the first share of a class, val at the second; the rest is test."""


class PublishedDomain(NamedTuple):
    """What is known of one domain."""

    counts: tuple[int, ...]
    """Images of every class."""
    images: str
    """`tree_digest` of its folder."""
    splits: str
    """SHA-256 of its three split files, one after the other."""


DOMAINS = {
    "photo": PublishedDomain(
        (189, 202, 182, 186, 199, 280, 432),
        "a9beb420a5abf7afc587e1757a1eab968f93f692d376a2ae33e59dad1e1cbb3b",
        "8c986cd1c8b0051a346b8009fa38bc521f65f7486db1a32c4a507cf4167826cd",
    ),
    "art_painting": PublishedDomain(
        (379, 255, 285, 184, 201, 295, 449),
        "bae8f30f1a362a56380f1c2926835a69a39e0acc9e7c4fe0664701f444196bd0",
        "0c1561b58639315f2769a230840bfaf67b83449635da8b221b7fd14d79c705c7",
    ),
    "cartoon": PublishedDomain(
        (389, 457, 346, 135, 324, 288, 405),
        "3b479201569bd6c165cd362dc2a1ea32fb12f7dd1d82472864307ade70190d13",
        "4ff95b7474b4bd3e1f7303ba4e480be3a358aaacb69005fc4ad4ce0a0f273f82",
    ),
    "sketch": PublishedDomain(
        (772, 740, 753, 608, 816, 80, 160),
        "1795ef68f19bc9787150de4a133ffb5149db28ce28a1464e88519ddff58bd27a",
        "28dd8c6b9b8e65feb0d480afa50ac6fb1d6c25fede7858a5a6c8fe51174df0c1",
    ),
}


def look(
    root: Path | None, domains: tuple[str, ...] | None, *, images: bool = False, download: bool = False
) -> list[SplitReport]:
    """Check the copy at hand, after fetching it where that was asked for, and write our split files beside it."""
    folder = root or data_home() / FOLDER
    if download and not (folder.exists() and any(folder.iterdir())):
        fetch(folder)
    folder = folder / INSIDE if (folder / INSIDE).is_dir() else folder
    print(f"pacs is looked for in {folder}")
    chosen = ensure(folder, domains or tuple(DOMAINS))
    if folder != data_home() / FOLDER:
        print(as_own("pacs", folder, chosen))
    return check(load_dataset("pacs", root=folder), domains=chosen, images=images)


def ensure(
    folder: Path, domains: Iterable[str], *, published: Mapping[str, PublishedDomain] = DOMAINS
) -> tuple[str, ...]:
    """Domains whose images are the published ones, and whose split files are ours; these are written where absent.

    Raises:
        UserError: for a domain that PACS does not have, or one that lacks images, has others, or has other splits.
    """
    chosen = tuple(domains)
    for domain in chosen:
        if domain not in published:
            raise UserError(f"pacs has no domain {domain!r}: it has {', '.join(published)}")
        if not (folder / domain).is_dir():
            raise MissingFileError(
                f"{folder} holds no {domain}: get it with `python -m experiments data {FETCH}` into a new folder, or "
                "name that of a copy with --root"
            )
        _check_images(folder, domain, published[domain])
        _ensure_splits(folder, domain, published[domain])
    return chosen


def fetch(folder: Path, *, home: str = HOME, published: Mapping[str, PublishedDomain] = DOMAINS) -> None:
    """Clone the repository by git; ``folder`` appears when all of it is there and is what was published."""
    with explain(f"{folder} cannot be written", "free it, or give another folder with --root", OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as aside:
            _clone(home, Path(aside) / "repository")
            tree = Path(aside) / "repository" / INSIDE
            ensure(tree, published, published=published)
            os.replace(tree, folder)


def tree_digest(folder: Path) -> str:
    """SHA-256 over the paths below a folder, sorted, each with the SHA-256 of its file."""
    total = hashlib.sha256()
    for path in _files(folder):
        total.update(f"{path}\0{sha256(folder / path)}\n".encode())
    return total.hexdigest()


def splits_of(domain: str, paths: Iterable[str]) -> dict[str, list[SplitEntry]]:
    """Train, val and test of the images ``CLASS/FILE`` of a domain; each class is cut in the order of a hash.

    >>> {split: len(entries) for split, entries in splits_of("photo", [f"dog/{i}.jpg" for i in range(20)]).items()}
    {'train': 10, 'val': 3, 'test': 7}
    """
    found: dict[str, list[SplitEntry]] = {"train": [], "val": [], "test": []}
    by_class: dict[str, list[str]] = {name: [] for name in CLASSES}
    for path in paths:
        by_class[PurePosixPath(path).parent.name].append(f"{domain}/{path}")
    for label, own in enumerate(by_class.values()):
        shuffled = sorted(own, key=lambda path: hashlib.sha256(path.encode()).digest())
        first, second = (round(cut * len(own)) for cut in CUTS)
        for split, part in zip(found, (shuffled[:first], shuffled[first:second], shuffled[second:]), strict=True):
            found[split] += [SplitEntry(path, label) for path in sorted(part)]
    return found


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _check_images(folder: Path, domain: str, known: PublishedDomain) -> None:
    found = Counter(PurePosixPath(path).parent.as_posix() for path in _files(folder / domain))
    expected = dict(zip(CLASSES, known.counts, strict=True))
    wrong = [
        f"{found[name]:,} of {name} instead of {expected.get(name, 0):,}"
        for name in sorted(found.keys() | expected.keys())
        if found[name] != expected.get(name, 0)
    ]
    remedy = f"move {folder / domain} away and get it again with `python -m experiments data {FETCH}`"
    if wrong:
        raise UserError(f"{folder / domain} holds {', '.join(wrong)}: {remedy}")
    if (digest := tree_digest(folder / domain)) != known.images:
        raise UserError(f"{folder / domain} has the digest {digest} instead of {known.images}: {remedy}")


def _ensure_splits(folder: Path, domain: str, known: PublishedDomain) -> None:
    texts = {split: split_text(entries) for split, entries in splits_of(domain, _files(folder / domain)).items()}
    digest = hashlib.sha256("".join(texts.values()).encode()).hexdigest()
    if digest != known.splits:
        raise UserError(f"the splits of {domain} have the digest {digest} instead of {known.splits}: restore pacs.py")
    for split, text in texts.items():
        path = split_file(folder, domain, split)
        if not path.exists():
            write_atomically(path, text)
        elif path.read_text(encoding="utf-8") != text:
            raise UserError(f"{path} is not our split of {domain}: move it away, and it is written again")


def _clone(home: str, folder: Path) -> None:
    command = ["git", "clone", "--quiet", "--depth", "1", home, str(folder)]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS, env=environment
        )
    except FileNotFoundError as error:
        raise UserError(f"there is no git to fetch {home} with: install it") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"git brought no {home} in {TIMEOUT_SECONDS:.0f} s: check your network") from error
    if done.returncode:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise UserError(f"git cannot fetch {home} ({said}): check your network, or name a copy with --root")
