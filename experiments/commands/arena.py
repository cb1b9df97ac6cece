"""Try a label-free score of one's own on stored outputs of models: where it stands among all, in under a minute.

    python -m experiments arena my_score.py      # a file that defines score(case) -> float, higher for more harm
    python -m experiments arena my_score.py --html         # and into the results page, once `make site` has made it
    python -m experiments arena --pack           # results/arena again, from the outputs that finished runs kept

``case.anchor_outputs``, ``case.anchor_new_outputs``, ``case.target_outputs`` and ``case.target_new_outputs`` are
logits of the old and the new model on held-out rows, ``case.target_labels`` the target's labels and ``case.scalars``
stored numbers such as ``transport``. Labels of the anchor are not passed, and the file runs in another process.
"""

import argparse
from pathlib import Path

from trace.io.writing import write_atomically

from ..arena.card import card
from ..arena.cases import ARENA, bouts, pack
from ..arena.contest import joined, ladder, scored, standing
from ..engine.errors import UserError
from ..engine.records import RECORDS, read_records
from ..engine.store import RUNS
from ..tables.table import to_text
from . import site


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("score", type=Path, nargs="?", help="a Python file with a function score(case)")
    parser.add_argument("--pack", action="store_true", help="write results/arena from the outputs of finished runs")
    parser.add_argument(
        "--html",
        type=Path,
        nargs="?",
        const=site.OUTPUT,
        metavar="DIR",
        help="add the score to the arena of a results page (default: build/site)",
    )
    parser.add_argument("--arena", type=Path, default=ARENA, help="folder of the cases (default: results/arena)")
    parser.add_argument("--records", type=Path, default=RECORDS, help="folder of *.jsonl (default: results/records)")
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store, for --pack (default: results/runs)")


def main(arguments: argparse.Namespace) -> None:
    records = read_records(arguments.records / "gate.jsonl")
    if arguments.pack:
        paths = pack(records, arguments.runs, arguments.arena)
        write_atomically(arguments.arena / "README.md", card(bouts(arguments.arena)))
        print(f"{len(paths)} files, {sum(path.stat().st_size for path in paths) / 1e6:.1f} MB in {arguments.arena}")
    if arguments.score:
        frame = joined(records, scored(arguments.score, bouts(arguments.arena)))
        print(to_text(standing(frame)))
        if arguments.html:
            print(f"open {site.with_arena(ladder(frame, own=arguments.score.stem), arguments.html, arguments.records)}")
    elif not arguments.pack:
        raise UserError("name a file that defines score(case), or --pack")
