"""Labels that are told one by one, at the gate: read as evidence, and asked for where they would decide."""

import argparse
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..diagnostic import Diagnostic
from ..gate.intervals import tally_at
from ..gate.policy import AnchorVerdict, Policy
from ..io.errors import UserError
from ..scores import GATE_SCORES
from .options import named_paths
from .record import check_same
from .samples import ANCHOR
from .state import SavedLabelling, read_state

States = Mapping[str, tuple[str, SavedLabelling]]
"""By anchor: the file and what it holds."""
_REPEATED = ("model", "new_model", "arch", "label", "id", "classes")
"""Options that both commands have."""
_ANSWERED = ("error_change", "risk_change")
"""What such labels answer for."""


def read_labels(texts: list[str], anchors: Mapping[str, Any], files: Mapping[str, str]) -> States:
    """The labels of ``[NAME=]STATE`` texts, about the models and anchors of a diagnostic and not about training rows.

    Raises:
        UserError: for another anchor, other models, or the rows that the old model was trained on.
    """
    only = next(iter(anchors)) if len(anchors) == 1 else ANCHOR
    found: dict[str, tuple[str, SavedLabelling]] = {}
    for anchor, path in named_paths(texts, "--labels", only).items():
        if anchor not in anchors:
            raise UserError(f"--labels is for {anchor!r}, which is no anchor: name one of {', '.join(anchors)}")
        saved = read_state(Path(path))
        models = {name: saved.files[name] for name in ("model", "new_model") if name in saved.files}
        check_same(files, models, "the diagnostic", f"in {path} the")
        if saved.files.get("rows") in (files.get(f"source:{anchor}"), files.get("target")):
            raise UserError(f"the rows of {path} are training rows, which decide nothing: label held-out ones")
        found[anchor] = path, saved
    return found


def with_command(
    verdict: AnchorVerdict,
    diagnostic: Diagnostic | Mapping[str, Any],
    confidence: float,
    policy: Policy,
    arguments: argparse.Namespace,
    states: States,
) -> str:
    """What to do next, with the command that asks for labels where these would decide.

    ``confidence`` is what a rule's interval needs for itself, so that all hold together.
    """
    if verdict.decision != "inconclusive" or verdict.role == "advisory":
        return verdict.next
    asked = [f"--threshold={verdict.threshold:g}", f"--confidence={math.ceil(1e6 * confidence) / 1e6:g}"]
    if verdict.sample == "labels" and verdict.needed is not None:
        path, _ = states[verdict.anchor]
        return f"Label these {verdict.needed - verdict.size} rows: {_command(verdict.anchor, arguments, path, asked)}"
    score = _answered_by(verdict, policy)
    record = diagnostic.estimates() if isinstance(diagnostic, Diagnostic) else diagnostic
    rows = tally_at(record, "anchor", "disagreement", "tally")
    if verdict.anchor in states or score != "error_change" or rows is None or verdict.size == 0:
        return verdict.next
    differ = round(sum(count for value, count in zip(rows.values, rows.counts, strict=True) if value > 0))
    command = _command(verdict.anchor, arguments, "labels.json", asked)
    then = f"label these {differ} rows on which the models disagree, or fewer: {command} (then --labels labels.json)"
    return f"{verdict.next.removesuffix('.')}; or {then}." if verdict.next else f"{then[:1].upper()}{then[1:]}."


def _answered_by(verdict: AnchorVerdict, policy: Policy) -> str:
    """The score that labels told one by one would answer for in place of this one; empty where they change nothing."""
    if verdict.score in _ANSWERED:
        return verdict.score
    stand_ins = {(rule.unlabelled, rule.limit): rule.score for rule in policy.all_rules if rule.unlabelled}
    score = stand_ins.get((verdict.score, verdict.threshold), "")
    if not score and policy.labels == "decide":
        score = GATE_SCORES[verdict.score].with_labels
    return score if score in _ANSWERED else ""


def _command(anchor: str, arguments: argparse.Namespace, state: str, asked: list[str]) -> str:
    """The command line of `label`; files that are not known here are in capitals."""
    held_out = named_paths(arguments.source_val or [], "--source-val", anchor).get(anchor, "HELD_OUT")
    unknown = {"model": "OLD", "new_model": "NEW"} if arguments.diagnostic else {}
    known = {name: getattr(arguments, name) or unknown.get(name) for name in _REPEATED}
    given = [f"--{name.replace('_', '-')}={value}" for name, value in known.items() if value]
    trust = ["--trust"] if arguments.trust else []
    return shlex.join(["trace-shift", "label", *given, *trust, f"--rows={held_out}", f"--state={state}", *asked])
