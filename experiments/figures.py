"""Figures from stored records alone, as PDF and PNG.

python -m experiments figures      # rewrites results/figures/, about 20 seconds
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from . import figures_active, figures_anchoring, figures_gate, figures_ridge, figures_synthetic, figures_worlds
from .figure_style import save
from .records import RECORDS, ROOT, Record, with_records

FIGURES = ROOT / "results" / "figures"

MAKERS: dict[str, tuple[str, Callable[[list[Record]], Figure]]] = {
    "slopes": ("ridge", figures_ridge.slopes),
    "score-scatter": ("synthetic", figures_synthetic.score_scatter),
    "attribution": ("synthetic", figures_synthetic.attribution),
    "attribution-shares": ("synthetic", figures_synthetic.attribution_shares),
    "tightness": ("synthetic", figures_synthetic.tightness),
    "sample-sizes": ("synthetic", figures_synthetic.sample_sizes),
    "worlds": ("synthetic", figures_worlds.worlds),
    "gate-scores": ("gate", figures_gate.scores),
    "gate-curves": ("gate", figures_gate.curves),
    "active-rounds": ("active", figures_active.rounds),
    "isolation": ("isolation", figures_synthetic.isolation),
    "anchoring": ("anchoring", figures_anchoring.anchoring),
}
"""Name of the figure: the experiment whose records it shows, and the function that draws it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument("--output", type=Path, default=FIGURES, help="folder for them (default: results/figures)")
    parser.add_argument("--profile", default="cpu", help="whose runs are shown: cpu or paper (default: %(default)s)")
    parser.add_argument("--only", nargs="+", choices=sorted(MAKERS), help="these figures alone")


def main(arguments: argparse.Namespace) -> None:
    """Draw every figure whose records exist, and name those that are missing."""
    chosen = {name: MAKERS[name] for name in arguments.only or MAKERS}
    for name, records, draw in with_records(chosen, arguments.records, arguments.profile):
        save(draw(records), name, arguments.output)
