"""How much can replacing the model Q by Q~ change the risk on the anchor, the data that Q was made for, and why?

The answer is a bound with its parts: two generalisation gaps, the change of the model's outputs, a penalty for the
shift of the inputs, and statistical remainders. A part that cannot be computed says what it lacks.

examples:

    diagnose --model old.skops --new-model new.skops --source old.npz --source-val held.npz --target new.npz
    diagnose --source old.npz --source-val held.npz --target new.npz      (features, y, logits, new_logits in the files)
    diagnose --model timm:resnet18@old.safetensors --new-model timm:resnet18@new.safetensors --features global_pool \\
             --unit-features --source photos/train --source-val photos/val --target sketches/train
    diagnose --model old.skops --new-model new.skops --source 2023.csv --source-val held.csv --target 2024.csv \\
             --label outcome --json out.json --html page.html
    diagnose --model old.pth --new-model new.pth --arch mine:network --trust --source old.npz --source-val held.npz \\
             --target new.npz                                          (state dicts; so are .safetensors)
    diagnose --model mine:old --new-model mine:new --source a=a.npz --source-val a=a_held.npz \\
             --source b=b.npz --source-val b=b_held.npz --target c.npz --target-val c_held.npz --anchor-test a=test.npz

models give logits [n, C] (or [n, 1] for squared error) for inputs [n, ...]. A .npz or .safetensors file holds x, the
inputs, and y, the labels from 0; for models that are not given logits and new_logits; and features for `--features
saved`, which stand in for x where no model is given. A table has one row per sample, a label and numbers. The files
of --source and --target are the data that Q and Q~ were trained on; rows that no model was trained on belong into
--source-val, --target-val and --anchor-test: without them gaps are not available, and the gate decides nothing on an
anchor's training rows. Where no model was trained on --source and --target either, --hold-out splits them. Labels on
--source-val or --anchor-test count: they show the change of the error, of every class's recall and of every --group.

The exit code is 0, or 3 after an error.
"""

import argparse

from ..escaping import markdown_text, one_line
from ..io.writing import check_outputs, sealed, strict_json
from ..report.brief import to_brief
from ..report.text import to_markdown, to_text
from ..report.words import sentences
from .case import FORMAT, Case, cases, page
from .options import add_input_arguments, add_output_arguments, input_paths, outputs_of, write_forms
from .record import versions
from .stages import seconds_line

SUMMARY = "attribute the risk change of a model update: two models and two samples in, every term out"


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
    check_outputs(outputs_of(arguments), input_paths(arguments))
    found = cases(arguments)
    write_forms(
        arguments,
        lambda: as_text(found) if arguments.verbose else as_brief(found),
        json=lambda: as_json(found),
        markdown=lambda: as_markdown(found),
        html=lambda: page("TRACE diagnostic", found, arguments),
    )
    return 0


def as_json(found: list[Case]) -> str:
    """``{"format": ..., "anchors": {NAME: Diagnostic.as_dict()}}``, with notes, digests of rows and files, versions."""
    record = {
        "format": FORMAT,
        "anchors": {case.anchor: case.diagnostic.as_dict() for case in found},
        "notes": {case.anchor: case.notes for case in found},
        "rows": {case.anchor: case.rows for case in found},
        "look": max(case.look for case in found),
        "seconds": {case.anchor: case.seconds for case in found},
        "files": dict(found[0].files),
        "versions": versions(),
    }
    return strict_json(sealed(record))


def as_brief(found: list[Case]) -> str:
    """The answer for a terminal."""
    return to_brief({case.anchor: case.diagnostic for case in found}, sentences(found[0].cautions))


def as_text(found: list[Case]) -> str:
    """All anchors for a terminal, with notes and seconds."""
    pages = []
    for case in found:
        title = [f"=== anchor {one_line(case.anchor)} ==="] if len(found) > 1 else []
        notes = ["", "notes:", *(f"  {one_line(note)}" for note in case.notes)] if case.notes else []
        pages.append("\n".join([*title, to_text(case.diagnostic), *notes, "", seconds_line(case.seconds)]))
    return "\n\n".join(pages)


def as_markdown(found: list[Case]) -> str:
    """The same for a pull request."""
    pages = []
    for case in found:
        title = [f"# Anchor {markdown_text(case.anchor)}"] if len(found) > 1 else []
        notes = ["Notes:\n\n" + "\n".join(f"- {markdown_text(note)}" for note in case.notes)] if case.notes else []
        pages.append("\n\n".join([*title, to_markdown(case.diagnostic), *notes, seconds_line(case.seconds) + "."]))
    return "\n\n".join(pages)
