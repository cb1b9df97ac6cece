"""From options to diagnostics of one update on several anchors: every model sees every sample once."""

import argparse
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..diagnostic import Diagnostic, diagnose
from ..estimators.sinkhorn import SelfTransport
from ..evidence import Known, View, shared_self
from ..io.errors import UserError
from ..io.models import AnyModel, load_model
from ..io.rows import Part
from ..sample import Sample
from .options import device_from, loss_from, settings_from
from .prepare import Prepared, Question, prepare, with_epsilon
from .samples import Anchor, Loader
from .stages import Stages, summed


class Case(NamedTuple):
    """One anchor with everything that was computed for it."""

    anchor: str
    diagnostic: Diagnostic
    source: Sample
    """The anchor's training inputs as loaded, with labels if any."""
    target: Sample
    source_features: Tensor
    target_features: Tensor
    """h of both samples, ``[n, k]`` and ``[m, k]``."""
    source_logits: tuple[Tensor, Tensor] | None
    target_logits: tuple[Tensor, Tensor]
    """Q and Q~ on each sample, ``[n, C]`` and ``[m, C]``; on the source only for a page, which shows its rows."""
    names: tuple[list[str], list[str]]
    """What to call the rows of source and target: file names, or row numbers."""
    seconds: dict[str, float]
    """By stage; what all anchors share is in each."""
    classes: tuple[str, ...] = ()
    """Names by output; none where only their numbers are known."""
    notes: tuple[str, ...] = ()
    """What was decided or noticed on the way, a sentence each."""


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Load everything and measure, one case per anchor.

    Raises:
        UserError, ValueError: for anything that a user can mend.
    """
    stages, device = Stages(), device_from(arguments.device)
    loss = loss_from(arguments.loss)
    settings = settings_from(arguments.settings, batch_size=arguments.batch_size)
    generator = torch.Generator().manual_seed(arguments.seed)
    with stages("models"):
        models = (
            load_model(arguments.model, "--model", trust=arguments.trust, device=device),
            load_model(arguments.new_model, "--new-model", trust=arguments.trust, device=device),
        )
    with stages("data"):
        loader = Loader(arguments, models, classification=loss.classification, device=device, generator=generator)
        anchors, target, target_val = loader.samples()
    classes = loader.classes or ()
    features = arguments.features or ("identity" if loader.has_inputs else "saved")
    if arguments.scale == "columns" and features == "saved":
        raise UserError("--scale columns changes inputs, but the shift is measured in saved features: save them scaled")
    if arguments.gradients == "features" and features in ("identity", "saved"):
        raise UserError("--gradients features needs --features SUBMODULE, where they are taken: name one of the models")
    question = Question(
        loss=loss,
        classes=classes,
        settings=settings,
        features=features,
        unit_features=arguments.unit_features,
        gradients=arguments.gradients,
        scale_columns=arguments.scale == "columns" or (arguments.scale == "auto" and loader.tables),
        page=bool(arguments.html),
        scale_epsilon=not arguments.unit_features and not any(s.startswith("epsilon=") for s in arguments.settings),
    )
    found = measure(models, anchors, target, target_val, question, generator=generator, stages=stages)
    return [case._replace(notes=(*loader.notes, *case.notes)) for case in found]


def measure(
    models: tuple[AnyModel, AnyModel],
    anchors: Sequence[Anchor],
    target: Part,
    target_val: Part | None,
    question: Question,
    *,
    generator: Generator,
    stages: Stages,
) -> list[Case]:
    """One case per anchor, each what it is without the others: columns have the units of their own source."""
    before, found = dict(stages.seconds), []
    groups = [[anchor] for anchor in anchors] if question.scale_columns else [anchors]
    for group in groups:
        stages.seconds = dict(before)
        prepared = prepare(models, group, target, target_val, question, stages)
        target_self = _target_self(prepared, question, stages) if len(group) > 1 else None
        shared = dict(stages.seconds)
        for anchor, views in zip(group, prepared.views, strict=True):
            try:
                case = _case(prepared, views, anchor, target, target_self, question, generator)
            except ValueError as error:
                if len(anchors) == 1:
                    raise
                raise UserError(f"anchor {anchor.name}: {error}") from error
            found.append(case._replace(seconds=summed(shared, case.seconds)))
    return found


def _target_self(prepared: Prepared, question: Question, stages: Stages) -> SelfTransport | None:
    """The target's own transport problem, which anchors share where they share epsilon."""
    if question.scale_epsilon:
        return None
    with stages("shift"):
        return shared_self(prepared.views[0]["target"].features, question.settings)


def _case(
    prepared: Prepared,
    views: dict[str, View],
    anchor: Anchor,
    target: Part,
    target_self: SelfTransport | None,
    question: Question,
    generator: Generator,
) -> Case:
    """The case of one anchor, with the library's warnings as notes."""
    update, source, stages, notes = prepared.update, views["source"], Stages(), list(prepared.notes)
    settings = question.settings
    if question.scale_epsilon:
        with stages("features"):
            settings, noted = with_epsilon(settings, source.features)
        notes += noted
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples = {name: view.sample for name, view in views.items()}
        diagnostic = diagnose(
            *update.models,
            samples["source"],
            samples["target"],
            source_val=samples.get("source_val"),
            target_val=samples.get("target_val"),
            anchor_test=samples.get("anchor_test"),
            loss=update.loss,
            feature_map=update.feature_map,
            gradient_at=update.gradient_at,
            settings=settings,
            generator=generator,
            known=Known(views=views, target_self=target_self, stage=stages),
        )
        with stages("outputs"):
            on_source = (source.outputs, source.new_outputs) if question.page else None
    return Case(
        anchor=anchor.name,
        diagnostic=diagnostic,
        source=anchor.source.sample,
        target=target.sample,
        source_features=source.features,
        target_features=views["target"].features,
        source_logits=on_source,
        target_logits=(views["target"].outputs, views["target"].new_outputs),
        names=(anchor.source.names, target.names),
        seconds=stages.seconds,
        classes=question.classes,
        notes=(*notes, *dict.fromkeys(str(warning.message) for warning in caught)),
    )
