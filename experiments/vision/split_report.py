"""Is a data set whole: counts against what they should be, files that are absent, images that cannot be read."""

from collections.abc import Mapping
from typing import NamedTuple

from .broken import unreadable
from .images import Dataset, ImageSet

Expected = Mapping[tuple[str, str], int]
"""Images by domain and split."""

_SHOWN = 5


class SplitReport(NamedTuple):
    """What was found of one split of one domain."""

    domain: str
    split: str
    listed: int
    expected: int | None
    """None where nobody has said how many there should be."""
    classes: int
    """That have an image."""
    missing: tuple[str, ...]
    broken: tuple[str, ...] | None
    """Of the files that are there; None where the images were not decoded."""

    @property
    def problems(self) -> list[str]:
        where = f"{self.domain} {self.split}"
        counted = self.expected is None or self.listed == self.expected
        found = [] if counted else [f"{where} lists {self.listed:,} images, {self.expected:,} are expected"]
        if not self.listed and self.expected is None:
            found.append(f"{where} lists no image")
        for kind, paths in (("absent", self.missing), ("unreadable", self.broken or ())):
            if paths:
                shown = ", ".join(paths[:_SHOWN]) + (", ..." if len(paths) > _SHOWN else "")
                found.append(f"{where}: {len(paths):,} images are {kind} ({shown})")
        return found


def check(
    dataset: Dataset, *, domains: tuple[str, ...] | None = None, expected: Expected | None = None, images: bool = False
) -> list[SplitReport]:
    """A report for every domain and split; with ``images`` every image is decoded, a few minutes for 50,000."""
    return [
        _report(dataset.images(domain, split, on_broken="skip"), (expected or {}).get((domain, split)), images)
        for domain in domains or dataset.domains
        for split in dataset.splits
    ]


def as_text(reports: list[SplitReport]) -> str:
    """One line a split, then what is wrong."""
    lines = [f"{'domain':16}{'split':8}{'images':>9}{'expected':>10}{'classes':>9}{'absent':>8}{'unreadable':>12}"]
    for report in reports:
        expected = "-" if report.expected is None else f"{report.expected:,}"
        broken = "-" if report.broken is None else f"{len(report.broken):,}"
        lines.append(
            f"{report.domain:16}{report.split:8}{report.listed:>9,}{expected:>10}{report.classes:>9}"
            f"{len(report.missing):>8,}{broken:>12}"
        )
    return "\n".join([*lines, *(problem for report in reports for problem in report.problems)])


def _report(image_set: ImageSet, expected: int | None, images: bool) -> SplitReport:
    broken = unreadable(image_set) if images else None
    listed = len(image_set.paths) + len(image_set.skipped)
    classes = len(set(image_set.labels))
    return SplitReport(image_set.domain, image_set.split, listed, expected, classes, image_set.skipped, broken)
