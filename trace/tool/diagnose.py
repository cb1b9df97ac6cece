"""How much can replacing the model Q by Q~ change the risk on the anchor, the data that Q was made for, and why?

The answer is a bound with its parts: two generalisation gaps, the change of the model's outputs, a penalty for the
shift of the inputs, and statistical remainders. A part that cannot be computed says what it lacks.

examples:

    diagnose --model old.pt --new-model new.pt --source old.npz --source-val held.npz --target new.npz --html page.html
    diagnose --source old.npz --source-val held.npz --target new.npz      (features, y, logits, new_logits in the files)
    diagnose --model timm:resnet18@old.safetensors --new-model timm:resnet18@new.safetensors --features global_pool \\
             --unit-features --source photos/train --source-val photos/val --target sketches/train
    diagnose --model old.skops --new-model new.skops --source 2023.csv --source-val held.csv --target 2024.csv \\
             --label outcome --json out.json
    diagnose --model mine:old --new-model mine:new --source a=a.npz --source-val a=a_held.npz \\
             --source b=b.npz --source-val b=b_held.npz --target c.npz --target-val c_held.npz --anchor-test a=test.npz

models give logits [n, C] (or [n, 1] for squared error) for inputs [n, ...]. A .npz or .safetensors file holds x, the
inputs, and y, the labels from 0; for models that are not given logits and new_logits; and features for `--features
saved`, which stand in for x where no model is given. A table has one row per sample, a label and numbers. The files
of --source and --target are the data that Q and Q~ were trained on; rows that no model was trained on belong into
--source-val, --target-val and --anchor-test: without them gaps are not available, and the gate decides nothing on an
anchor's training rows. Where no model was trained on --source and --target either, --hold-out splits them.

The exit code is 0, or 3 after an error.
"""

import argparse

from ..io.writing import check_outputs, strict_json
from ..report.text import to_markdown, to_text
from .case import Case, cases, page
from .options import add_input_arguments, add_output_arguments, write_forms
from .stages import seconds_line

SUMMARY = "attribute the risk change of a model update: two models and two samples in, every term out"
FORMAT = "trace-diagnostic/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: models, samples and outputs."""
    add_input_arguments(parser)
    add_output_arguments(
        parser,
        json="all numbers, for programs and for `gate --diagnostic`",
        markdown="a page for a pull request",
        html="one page with figures and examples",
    )


def main(arguments: argparse.Namespace) -> int:
    """Measure every anchor and write what was asked for; the exit code is 0."""
    check_outputs({f"--{name}": getattr(arguments, name) for name in ("json", "markdown", "html")})
    found = cases(arguments)
    write_forms(
        arguments,
        lambda: as_text(found),
        json=lambda: as_json(found),
        markdown=lambda: as_markdown(found),
        html=lambda: page("TRACE diagnostic", found, arguments),
    )
    return 0


def as_json(found: list[Case]) -> str:
    """``{"format": ..., "anchors": {NAME: Diagnostic.as_dict()}}`` with notes and seconds beside them."""
    return strict_json(
        {
            "format": FORMAT,
            "anchors": {case.anchor: case.diagnostic.as_dict() for case in found},
            "notes": {case.anchor: case.notes for case in found},
            "seconds": {case.anchor: case.seconds for case in found},
        }
    )


def as_text(found: list[Case]) -> str:
    """All anchors for a terminal, with notes and seconds."""
    pages = []
    for case in found:
        title = [f"=== anchor {case.anchor} ==="] if len(found) > 1 else []
        notes = ["", "notes:", *(f"  {note}" for note in case.notes)] if case.notes else []
        pages.append("\n".join([*title, to_text(case.diagnostic), *notes, "", seconds_line(case.seconds)]))
    return "\n\n".join(pages)


def as_markdown(found: list[Case]) -> str:
    """The same for a pull request."""
    pages = []
    for case in found:
        title = [f"# Anchor {case.anchor}"] if len(found) > 1 else []
        notes = ["Notes:\n\n" + "\n".join(f"- {note}" for note in case.notes)] if case.notes else []
        pages.append("\n\n".join([*title, to_markdown(case.diagnostic), *notes, seconds_line(case.seconds) + "."]))
    return "\n\n".join(pages)
