"""Accept or reject a model update by a policy: a score of the diagnostic, with its interval, against a limit.

examples:
  gate --policy policy.yaml --diagnostic out.json         (out.json is made by `diagnose --json out.json`)
  gate --policy policy.yaml --model old.pt --new-model new.pt --source old.npz --target new.npz
  gate --policy policy.yaml --diagnostic out.json --json - --markdown verdict.md

a policy needs one line, such as `threshold: 0.05`: accept if at most 5% of the predictions on the anchor change. Other
scores, thresholds calibrated on past updates and sample sizes: see configs/policy/example.yaml. The exit code is 0 if
the update is accepted, 1 if it is rejected, 2 if the samples do not decide, 3 after an error.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..diagnostic import Diagnostic
from ..gate import Decision, Verdict, decide
from ..verdict_text import as_dict, to_markdown, to_text
from .errors import ToolError
from .past import read_json
from .policy import LoadedPolicy, load_policy
from .writing import strict_json, write

if TYPE_CHECKING:
    from .inputs import Case

SUMMARY = "accept or reject an update by a policy; the exit code is the answer"
FORMAT = "trace-verdict/1"
EXIT_CODES: dict[Decision, int] = {"accept": 0, "reject": 1, "inconclusive": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from .inputs import add_input_arguments

    add_gate_arguments(parser)
    own = set(parser._actions)
    add_input_arguments(parser)
    for action in parser._actions:
        if action not in own:
            action.required = False  # a diagnostic stands in for all of them


def add_gate_arguments(parser: argparse.ArgumentParser) -> None:
    """The options besides those that name models and data."""
    gate = parser.add_argument_group("gate")
    gate.add_argument("--policy", required=True, metavar="FILE", help="YAML: a threshold, or how to find one")
    gate.add_argument("--diagnostic", metavar="FILE", help="of `diagnose --json`, in place of models and samples")
    out = parser.add_argument_group("output", "- is the standard output, in place of the text")
    out.add_argument("--json", metavar="FILE", help="the verdict, for programs")
    out.add_argument("--markdown", metavar="FILE", help="the verdict, for a pull request")
    out.add_argument("--html", metavar="FILE", help="one page with verdict, figures and examples")


def main(arguments: argparse.Namespace) -> int:
    loaded = load_policy(arguments.policy)
    found = [] if arguments.diagnostic else _cases(arguments)
    diagnostics: Mapping[str, Diagnostic | Mapping[str, Any]] = {case.anchor: case.diagnostic for case in found}
    notes: Mapping[str, Sequence[str]] = {case.anchor: case.notes for case in found}
    if arguments.diagnostic:
        diagnostics, notes = _read_diagnostics(arguments)
    verdict = _with_notes(decide(diagnostics, loaded.policy), notes)
    if arguments.json:
        write(arguments.json, strict_json({"format": FORMAT, **as_dict(verdict)}))
    if arguments.markdown:
        write(arguments.markdown, to_markdown(verdict))
    if arguments.html:
        write(arguments.html, _page(found, verdict, loaded, arguments))
    if "-" not in (arguments.json, arguments.markdown, arguments.html):
        write("-", to_text(verdict))
    return EXIT_CODES[verdict.decision]


def _with_notes(verdict: Verdict, notes: Mapping[str, Sequence[str]]) -> Verdict:
    """The verdict with what was noticed while the diagnostics were made, such as which rows were held out."""
    anchors = tuple(a._replace(notes=(*a.notes, *notes.get(a.anchor, ()))) for a in verdict.anchors)
    return verdict._replace(anchors=anchors)


def _read_diagnostics(arguments: argparse.Namespace) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """The records by anchor, and their notes."""
    both = [f"--{name}" for name in ("source", "target", "model") if getattr(arguments, name, None)]
    if both:
        raise ToolError(f"--diagnostic and {both[0]} exclude each other: give the diagnostic, or models and samples")
    path = Path(arguments.diagnostic)
    record = read_json(path, "trace-diagnostic/1", "diagnose --json")
    anchors = record.get("anchors")
    if not isinstance(anchors, dict) or not all(isinstance(record, dict) for record in anchors.values()):
        raise ToolError(f"{path} holds no anchors: make it again with diagnose --json")
    return anchors, record.get("notes", {})


def _cases(arguments: argparse.Namespace) -> list[Case]:
    absent = [f"--{name}" for name in ("source", "target") if not getattr(arguments, name, None)]
    if absent:
        raise ToolError(f"there is nothing to judge without {' and '.join(absent)}: give them, or --diagnostic")
    from .inputs import cases

    return cases(arguments)


def _page(found: list[Case], verdict: Verdict, loaded: LoadedPolicy, arguments: argparse.Namespace) -> str:
    from ..report_html import report_case, to_html

    generator = torch.Generator().manual_seed(getattr(arguments, "seed", 0))
    shown = [report_case(*case[:9], generator=generator, classes=case.classes) for case in found]
    about = {"policy": arguments.policy}
    for name in ("diagnostic", "model", "new_model", "target"):
        if getattr(arguments, name, None):
            about[name.replace("_", " ")] = getattr(arguments, name)
    return str(to_html(shown, verdict=verdict, past=loaded.past, title="TRACE gate", about=about))
