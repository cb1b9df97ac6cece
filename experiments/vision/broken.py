"""Images that cannot be decoded: named, or left out of everything and counted (``on_broken``).

Which ones they are is found before anything is computed, so that features, labels and splits leave out the same
images. Decoding all of a data set takes as long as reading it once, so what was found is kept, under the digest of the
image set.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trace.io.images import open_image
from trace.io.writing import write_atomically

from ..engine.errors import UserError
from ..engine.progress import progress_bar
from .images import ImageSet, digest, subset


def is_readable(path: Path) -> bool:
    """Whether an image is there and decodes to its end."""
    try:
        open_image(path)
    except UserError:
        return False
    return True


def unreadable(image_set: ImageSet, *, workers: int = 0) -> tuple[str, ...]:
    """The paths of the images that cannot be decoded, in their order; ``workers`` threads decode at a time."""
    label = f"{image_set.domain} {image_set.split}"
    with ThreadPoolExecutor(max(1, workers)) as threads:
        found = threads.map(is_readable, [image_set.root / path for path in image_set.paths])
        states = ("whole" if whole else "unreadable" for whole in found)
        outcomes = list(progress_bar(states, len(image_set.paths), label, unit="image"))
    return tuple(path for path, state in zip(image_set.paths, outcomes, strict=True) if state == "unreadable")


def without_broken(image_set: ImageSet, *, cache: Path, workers: int = 0) -> ImageSet:
    """The images that can be decoded; ``skipped`` names the others, too.

    Raises:
        UserError: where none is left.
    """
    note = cache / f"{image_set.name}-{image_set.domain}-{image_set.split}-{digest(image_set)[:16]}.json"
    broken = _noted(note, image_set)
    if broken is None:
        broken = set(unreadable(image_set, workers=workers))
        write_atomically(note, json.dumps(sorted(broken), indent=1) + "\n", sync=False)
    if not broken:
        return image_set
    kept = subset(image_set, (i for i, path in enumerate(image_set.paths) if path not in broken))
    if not kept.paths:
        raise UserError(
            f"no image of {image_set.domain} {image_set.split} can be read, such as "
            f"{image_set.root / image_set.paths[0]}: fetch {image_set.name} again"
        )
    return kept._replace(skipped=(*image_set.skipped, *(path for path in image_set.paths if path in broken)))


def _noted(note: Path, image_set: ImageSet) -> set[str] | None:
    """What was found before; None where nothing was, or where the note is not about these images."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, list) or not all(isinstance(path, str) for path in found):
        return None
    return set(found) if set(found) <= set(image_set.paths) else None
