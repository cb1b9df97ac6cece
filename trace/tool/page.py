"""The HTML page of a command."""

import argparse
from collections.abc import Sequence

import torch

from ..gate.verdict import Verdict
from ..report.page import ReportCase, report_case, to_html
from ..stats.conformal import PastUpdate
from .case import Case


def page(
    title: str,
    found: Sequence[Case],
    arguments: argparse.Namespace,
    *,
    verdict: Verdict | None = None,
    past: Sequence[PastUpdate] = (),
    harm_above: float = 0.0,
) -> str:
    """Everything about the cases, and the verdict on them if there is one; its notes hold those of the cases."""
    generator = torch.Generator().manual_seed(getattr(arguments, "seed", 0))
    shown = [_shown(case, generator) for case in found]
    if verdict is None:
        shown = [each._replace(notes=case.notes) for each, case in zip(shown, found, strict=True)]
    return to_html(
        shown, verdict=verdict, past=past, harm_above=harm_above, title=title, about=_about(found, arguments)
    )


def _shown(case: Case, generator: torch.Generator) -> ReportCase:
    assert case.source_logits is not None
    return report_case(
        anchor=case.anchor,
        diagnostic=case.diagnostic,
        source=case.source,
        target=case.target,
        source_features=case.source_features,
        target_features=case.target_features,
        source_logits=case.source_logits,
        target_logits=case.target_logits,
        names=case.names,
        generator=generator,
        classes=case.classes,
    )


def _about(found: Sequence[Case], arguments: argparse.Namespace) -> dict[str, str]:
    """Which files the page is about."""
    about = {name: getattr(arguments, name) for name in ("policy", "diagnostic") if getattr(arguments, name, None)}
    if found:
        about |= {"old model": arguments.model or "saved outputs", "new model": arguments.new_model or "saved outputs"}
        about |= {f"anchor {case.anchor}": path for case, path in zip(found, arguments.source, strict=True)}
        about |= {"target": arguments.target, "seed": str(arguments.seed)}
    return about
