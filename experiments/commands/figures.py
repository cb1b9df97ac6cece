"""Figures from stored records alone, as PDF and PNG.

    python -m experiments figures                           # rewrites results/figures/, about half a minute
    python -m experiments figures --only contact-sheet      # what each policy chose; needs the images on disk
    python -m experiments figures --profile paper --output paper/figures

Images are never part of the repository: their figures go to results/images/, which git ignores.
"""

import argparse
from pathlib import Path

from ..engine.manifests import add_incomplete, with_records
from ..engine.records import PROFILE, RECORDS, ROOT
from ..figures.style import figure, photographs, save

FIGURES = ROOT / "results" / "figures"
IMAGES = ROOT / "results" / "images"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = sorted([*figure.all(), *photographs.all()])
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument(
        "--output", type=Path, help="folder for them (default: results/figures; results/images for those with images)"
    )
    parser.add_argument("--profile", default=PROFILE, help="whose runs are shown: cpu or paper (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=names, help="these figures alone")
    add_incomplete(parser)


def main(arguments: argparse.Namespace) -> None:
    """Draw every figure whose records exist, and name those that are missing."""
    chosen = {name: maker for name, maker in figure.all().items() if not arguments.only or name in arguments.only}
    shown = {name: maker for name, maker in photographs.all().items() if name in (arguments.only or ())}
    for folder, makers in ((FIGURES, chosen), (IMAGES, shown)):
        found = with_records(makers, arguments.records, arguments.profile, incomplete=arguments.incomplete)
        for name, records, draw, note in found:
            drawn = draw(records)
            if note:
                drawn.text(0.5, 0.0, note.strip(), ha="center", va="top")
            save(drawn, name, arguments.output or folder)
