"""Figures from stored records alone, as PDF and PNG.

    python -m experiments figures                           # rewrites results/figures/, about half a minute
    python -m experiments figures --only contact-sheet      # what each policy chose; needs the images on disk
    python -m experiments figures --profile paper --output paper/figures

Images are never part of the repository: their figures go to results/images/, which git ignores.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from . import (
    figures_active,
    figures_anchoring,
    figures_embedding,
    figures_gate,
    figures_growth,
    figures_ridge,
    figures_synthetic,
    figures_worlds,
)
from .figure_style import save
from .records import PROFILE, RECORDS, ROOT, Record, with_records

FIGURES = ROOT / "results" / "figures"
IMAGES = ROOT / "results" / "images"
WITH_IMAGES = ("contact-sheet",)
"""Figures that need more than records, drawn by `experiments.figures_images` when they are asked for."""

Makers = Mapping[str, tuple[str, Callable[[list[Record]], Figure]]]

MAKERS: Makers = {
    "slopes": ("ridge", figures_ridge.slopes),
    "score-scatter": ("synthetic", figures_synthetic.score_scatter),
    "attribution": ("synthetic", figures_synthetic.attribution),
    "attribution-shares": ("synthetic", figures_synthetic.attribution_shares),
    "tightness": ("synthetic", figures_synthetic.tightness),
    "sample-sizes": ("synthetic", figures_synthetic.sample_sizes),
    "worlds": ("synthetic", figures_worlds.worlds),
    "gate-scores": ("gate", figures_gate.scores),
    "gate-curves": ("gate", figures_gate.curves),
    "gate-forest": ("gate", figures_gate.forest),
    "active-rounds": ("active", figures_active.rounds),
    "embedding": ("embedding", figures_embedding.embedding),
    "isolation": ("isolation", figures_synthetic.isolation),
    "anchoring": ("anchoring", figures_anchoring.anchoring),
    "growth": ("benchmark", figures_growth.growth),
}
"""Name of the figure: the experiment whose records it shows, and the function that draws it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument(
        "--output", type=Path, help="folder for them (default: results/figures; results/images for those with images)"
    )
    parser.add_argument("--profile", default=PROFILE, help="whose runs are shown: cpu or paper (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=sorted([*MAKERS, *WITH_IMAGES]), help="these figures alone")


def main(arguments: argparse.Namespace) -> None:
    """Draw every figure whose records exist, and name those that are missing."""
    for folder, makers in ((FIGURES, MAKERS), (IMAGES, _with_images(arguments.only or ()))):
        chosen = {name: maker for name, maker in makers.items() if not arguments.only or name in arguments.only}
        for name, records, draw in with_records(chosen, arguments.records, arguments.profile):
            save(draw(records), name, arguments.output or folder)


def _with_images(asked: Iterable[str]) -> Makers:
    """The figures that need images, if one is asked for: they load what reads data sets."""
    if not set(asked) & set(WITH_IMAGES):
        return {}
    from .figures_images import MAKERS as makers

    return makers
