"""Accept or reject a model update by a policy: a score of the diagnostic, with its interval, against a limit.

examples:

    gate --policy policy.yaml --diagnostic out.json         (out.json is made by `diagnose --json out.json`)
    gate --policy policy.yaml --model old.pt --new-model new.pt --source old.npz --target new.npz --source-val held.npz
    gate --policy policy.yaml --diagnostic out.json --json - --markdown verdict.md

The exit code is 0 if the update is accepted, 1 if it is rejected, 2 if the samples do not decide, 3 after an error.

A policy is a YAML file with one `key: value` a line. It needs a threshold, from one of

    threshold: 0.05                the limit itself: here at most 5% of the predictions on the anchor may change
    past: past.csv                 past updates (name, score, risk_change), with
      max_harmful_accepted: 0.1    how often a harmful one may pass; also harm_above, guarantee, delta: see `calibrate`
    calibration: calibration.json  what `calibrate --out` wrote

and may have

    score: anchor_disagreement     what is compared with it; `gate --help` ends with all scores
    confidence: 0.95               of all intervals together
    min_source: 100                fewer held-out anchor rows decide nothing; min_target: 100 likewise
    anchors: [photos, maps]        must be among the diagnosed; any others are judged too
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..diagnostic import Diagnostic
from ..gate.policy import Policy, decide
from ..gate.verdict import Decision, Verdict
from ..io.errors import UserError, first_line
from ..io.writing import check_outputs, read_json, strict_json
from ..report.verdict import as_dict, to_markdown, to_text
from .case import Case, cases, page
from .diagnose import FORMAT as DIAGNOSTIC
from .options import add_input_arguments, add_output_arguments, input_defaults, score_list, write_forms
from .policy import load_policy

SUMMARY = "accept or reject an update by a policy; the exit code is the answer"
FORMAT = "trace-verdict/1"
EXIT_CODES: dict[Decision, int] = {"accept": 0, "reject": 1, "inconclusive": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: policy, diagnostic and outputs, then those of `diagnose`."""
    gate = parser.add_argument_group("gate")
    gate.add_argument("--policy", required=True, metavar="FILE", help="YAML: a threshold, or how to find one")
    gate.add_argument("--diagnostic", metavar="FILE", help="of `diagnose --json`, in place of models and samples")
    add_output_arguments(
        parser,
        json="the verdict, for programs",
        markdown="the verdict, for a pull request",
        html="one page with verdict, figures and examples",
    )
    add_input_arguments(parser, required=False)
    parser.epilog = score_list()


def main(arguments: argparse.Namespace) -> int:
    """Decide and write what was asked for; the exit code is the decision (`EXIT_CODES`)."""
    check_outputs({f"--{name}": getattr(arguments, name) for name in ("json", "markdown", "html")})
    loaded = load_policy(arguments.policy)
    found = [] if arguments.diagnostic else _cases(arguments)
    diagnostics: Mapping[str, Diagnostic | Mapping[str, Any]] = {case.anchor: case.diagnostic for case in found}
    notes: Mapping[str, Sequence[str]] = {case.anchor: case.notes for case in found}
    if arguments.diagnostic:
        diagnostics, notes = _read_diagnostics(arguments)
    verdict = _with_notes(_decide(diagnostics, loaded.policy, arguments.diagnostic), notes)
    write_forms(
        arguments,
        lambda: to_text(verdict),
        json=lambda: strict_json({"format": FORMAT, **as_dict(verdict)}),
        markdown=lambda: to_markdown(verdict),
        html=lambda: page(
            "TRACE gate", found, arguments, verdict=verdict, past=loaded.past, harm_above=loaded.harm_above
        ),
    )
    return EXIT_CODES[verdict.decision]


def _with_notes(verdict: Verdict, notes: Mapping[str, Sequence[str]]) -> Verdict:
    """The verdict with what was noticed while the diagnostics were made, such as which rows were held out."""
    anchors = tuple(a._replace(notes=(*a.notes, *notes.get(a.anchor, ()))) for a in verdict.anchors)
    return verdict._replace(anchors=anchors)


def _read_diagnostics(arguments: argparse.Namespace) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """The records by anchor, and their notes."""
    stray = next(
        (
            option
            for option, (dest, default) in input_defaults().items()
            if getattr(arguments, dest, default) != default
        ),
        None,
    )
    if stray is not None:
        raise UserError(f"--diagnostic and {stray} exclude each other: give the diagnostic, or models and samples")
    path = Path(arguments.diagnostic)
    record = read_json(path, DIAGNOSTIC, "diagnose --json")
    anchors, notes = record.get("anchors"), record.get("notes")
    if not isinstance(anchors, dict) or not all(isinstance(record, dict) for record in anchors.values()):
        raise UserError(f"{path} holds no anchors: make it again with diagnose --json")
    return anchors, notes if isinstance(notes, dict) else {}


def _decide(diagnostics: Mapping[str, Diagnostic | Mapping[str, Any]], policy: Policy, path: str | None) -> Verdict:
    try:
        return decide(diagnostics, policy)
    except ValueError as error:
        raise error if path is None else UserError(f"{path}: {error}") from error
    except (TypeError, KeyError, AttributeError) as error:
        if path is None:
            raise
        raise UserError(f"{path} is damaged ({first_line(error)}): make it again with diagnose --json") from error


def _cases(arguments: argparse.Namespace) -> list[Case]:
    if absent := [f"--{name}" for name in ("source", "target") if not getattr(arguments, name, None)]:
        raise UserError(f"there is nothing to judge without {' and '.join(absent)}: give them, or --diagnostic")
    return cases(arguments)
