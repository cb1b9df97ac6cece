"""Accept or reject a model update by a policy: a score of the diagnostic, with its interval, against a limit.

examples:

    gate --policy policy.yaml --diagnostic out.json         (out.json is made by `diagnose --json out.json`)
    gate --policy policy.yaml --model old.skops --new-model new.skops --source old.csv --source-val held.csv \\
         --target new.csv
    gate --policy policy.yaml --diagnostic out.json --json - --markdown verdict.md
    gate --diagnostic out.json --labels labels.json         (labels.json is made by `label --state labels.json`)

The exit code is 0 if the update is accepted, 1 if it is rejected, 2 if the samples do not decide, 3 after an error.

Without a policy the mean and the worst class decide: where held-out anchor rows have labels, the change of the error
rate (at most 5%) and the largest fall of a class's recall (10%), elsewhere the predictions that change, in all and in
any predicted class. A policy is a YAML file with one `key: value` a line, and limits from one of

    threshold: 0.05                one limit: here at most 5% of the predictions on the anchor may change
    rules:                         any number of them
      - {score: error_change, limit: 0.02, unlabelled: anchor_disagreement}
      - {score: recall_drop, limit: 0.1, anchor: photos}
      - {score: trace_w, limit: 5.0, role: advisory}     shown, decides nothing
    past: past.csv                 past updates (name, score, risk_change), with
      max_harmful_accepted: 0.1    how often a harmful one may pass; also harm_above, guarantee, delta: see `calibrate`
    calibration: calibration.json  what `calibrate --out` wrote

and may have

    score: anchor_disagreement     what a threshold is for; `gate --help` ends with all scores
    confidence: 0.95               of all intervals that decide, together
    min_source: 100                fewer held-out anchor rows decide nothing; min_target: 100 likewise
    anchors: [photos, maps]        must be among the diagnosed; any others are judged too
    labels: decide                 labels may overrule scores that cannot tell harm from help (default: guard)
    looks: 2                       how often fresh rows may be drawn to ask again (default 1)
    files:                         SHA-256 of files that must be the diagnosed ones: model, new_model, target,
      model: 3b1f...                 source:NAME, source_val:NAME, ..., as `files` in the JSON of `diagnose` has them

Where labels show harm, a significant rise of the error rate or fall of a class's recall, the answer is never accept,
unless a required rule tolerates it. Rows may be added and the gate asked again at no cost in confidence: put them
after the earlier ones, and give the earlier diagnostic with --previous. Distances (transport, MMD) promise nothing
across reruns.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..diagnostic import Diagnostic
from ..gate.labelling import Labelling
from ..gate.policy import AnchorVerdict, Decision, Policy, Verdict, decide
from ..io.errors import UserError, first_line
from ..io.writing import check_outputs, read_json, sealed, strict_json
from ..report.junit import to_junit
from ..report.verdict import as_dict, to_brief, to_markdown, to_text
from .asking import read_labels, with_command
from .case import FORMAT as DIAGNOSTIC
from .case import Case, cases, page
from .options import (
    add_input_arguments,
    add_output_arguments,
    input_defaults,
    input_paths,
    outputs_of,
    score_list,
    write_forms,
)
from .policy import LoadedPolicy, load_policy
from .record import check_ranges, check_same, digests_of, versions

SUMMARY = "accept or reject an update by a policy; the exit code is the answer"
FORMAT = "trace-verdict/1"
_COMPARED = ("--model", "--new-model", "--source", "--source-val", "--target", "--target-val", "--anchor-test")
EXIT_CODES: dict[Decision, int] = {"accept": 0, "reject": 1, "inconclusive": 2}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: policy, diagnostic and outputs, then those of `diagnose`."""
    gate = parser.add_argument_group("gate")
    gate.add_argument("--policy", metavar="FILE", help="YAML: a threshold, or rules; the default ones if absent")
    gate.add_argument(
        "--diagnostic",
        metavar="FILE",
        help="of `diagnose --json`, in place of models and samples; those that are given too must be the same files",
    )
    gate.add_argument(
        "--labels",
        action="append",
        default=[],
        metavar="[NAME=]STATE",
        help="of `label --state`: labels of an anchor's rows that were told one by one; repeat for several anchors",
    )
    add_output_arguments(
        parser,
        json="the verdict, for programs",
        markdown="the verdict, for a pull request",
        html="one page with verdict, figures and examples",
        junit="the verdict as JUnit XML, for CI systems",
    )
    add_input_arguments(parser, required=False)
    parser.epilog = score_list()


def main(arguments: argparse.Namespace) -> int:
    """Decide and write what was asked for; the exit code is the decision (`EXIT_CODES`)."""
    check_outputs(outputs_of(arguments), input_paths(arguments))
    loaded = load_policy(arguments.policy) if arguments.policy else LoadedPolicy(Policy(), ())
    check_outputs(outputs_of(arguments), loaded.read)
    found = [] if arguments.diagnostic else _cases(arguments)
    diagnostics: Mapping[str, Diagnostic | Mapping[str, Any]] = {case.anchor: case.diagnostic for case in found}
    notes: Mapping[str, Sequence[str]] = {case.anchor: case.notes for case in found}
    look = max((case.look for case in found), default=1)
    files = dict(found[0].files) if found else {}
    if arguments.diagnostic:
        diagnostics, notes, look, files = _read_diagnostics(arguments)
    check_same(files, loaded.files, arguments.diagnostic or "the update", f"{arguments.policy} asks for a file whose")
    files |= {"policy": loaded.sha256} if loaded.sha256 else {}
    states = read_labels(arguments.labels, diagnostics, files)
    labellings = {anchor: saved.labelling for anchor, (_, saved) in states.items()}
    verdict = _decide(diagnostics, loaded.policy, look, arguments.diagnostic, labellings)
    files |= {f"labels:{anchor}": saved.digest for anchor, (_, saved) in states.items()}

    deciding = loaded.policy.looks * sum(rule.role != "advisory" for rule in verdict.rules)

    def noted(judged: Sequence[AnchorVerdict]) -> tuple[AnchorVerdict, ...]:
        return tuple(
            a._replace(
                notes=(*a.notes, *notes.get(a.anchor, ())),
                next=with_command(
                    a, diagnostics[a.anchor], 1 - loaded.policy.delta / deciding, loaded.policy, arguments, states
                ),
            )
            for a in judged
        )

    verdict = verdict._replace(anchors=noted(verdict.anchors), rules=noted(verdict.rules))
    write_forms(
        arguments,
        lambda: to_text(verdict) if arguments.verbose else to_brief(verdict, diagnostics),
        json=lambda: strict_json(
            sealed({"format": FORMAT, **as_dict(verdict), "files": files, "versions": versions()})
        ),
        markdown=lambda: to_markdown(verdict, diagnostics),
        junit=lambda: to_junit(verdict),
        html=lambda: page(
            "TRACE gate", found, arguments, verdict=verdict, past=loaded.past, harm_above=loaded.harm_above
        ),
    )
    return EXIT_CODES[verdict.decision]


def _read_diagnostics(
    arguments: argparse.Namespace,
) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]], int, dict[str, str]]:
    """The records by anchor, their notes, which draw of fresh rows they are about, and the digests of their files.

    Models and samples that are given beside the diagnostic must be those.
    """
    given = input_defaults().items()
    stray = [option for option, (dest, default) in given if getattr(arguments, dest, default) != default]
    if other := [option for option in stray if option not in _COMPARED]:
        raise UserError(f"--diagnostic and {other[0]} exclude each other: give the diagnostic, or models and samples")
    path = Path(arguments.diagnostic)
    record = read_json(path, DIAGNOSTIC, "diagnose --json", seal=True)
    anchors, notes, files = record.get("anchors"), record.get("notes"), record.get("files")
    look = record.get("look", 1)
    if isinstance(look, bool) or not isinstance(look, int) or look < 1:
        raise UserError(f"{path} has look = {look!r}, no whole number from 1: make it again with diagnose --json")
    if not isinstance(anchors, dict) or not all(isinstance(record, dict) for record in anchors.values()):
        raise UserError(f"{path} holds no anchors: make it again with diagnose --json")
    if not isinstance(files, dict):
        raise UserError(f"{path} does not say which files it is about: make it again with diagnose --json")
    for name, entry in anchors.items():
        check_ranges(entry, f"{path}, anchor {name}")
    if stray:
        check_same(files, digests_of(arguments), str(path), "the given")
    said = notes if isinstance(notes, dict) and all(isinstance(each, list) for each in notes.values()) else {}
    return (
        anchors,
        {name: [str(note) for note in each] for name, each in said.items()},
        look,
        {**files, "diagnostic": record["digest"]},
    )


def _decide(
    diagnostics: Mapping[str, Diagnostic | Mapping[str, Any]],
    policy: Policy,
    look: int,
    path: str | None,
    labellings: Mapping[str, Labelling],
) -> Verdict:
    try:
        return decide(diagnostics, policy, look=look, labellings=labellings)
    except ValueError as error:
        raise error if path is None else UserError(f"{path}: {error}") from error
    except (TypeError, LookupError, AttributeError, ArithmeticError) as error:
        if path is None:
            raise
        raise UserError(f"{path} is damaged ({first_line(error)}): make it again with diagnose --json") from error


def _cases(arguments: argparse.Namespace) -> list[Case]:
    if absent := [f"--{name}" for name in ("source", "target") if not getattr(arguments, name, None)]:
        raise UserError(f"there is nothing to judge without {' and '.join(absent)}: give them, or --diagnostic")
    return cases(arguments)
