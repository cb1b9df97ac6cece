"""Diagnostics of one update on several anchors: every model sees every sample once."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..diagnostic import Diagnostic, assemble
from ..estimators.transport import self_transport
from ..evidence import examine
from ..features import FeatureMap, identity, l2_normalised, layer_features
from ..losses import Loss
from ..probe import Features, Probe
from ..sample import Sample
from ..settings import Settings
from .errors import ToolError
from .models import AnyModel, SavedOutputs
from .rows import Part
from .stages import Stages, summed

_MOST_CACHED = 20_000
"""Largest target whose own transport problem is kept for the next anchor."""


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
    source_logits: tuple[Tensor, Tensor]
    target_logits: tuple[Tensor, Tensor]
    """Q and Q~ on each sample, ``[n, C]`` and ``[m, C]``."""
    names: tuple[list[str], list[str]]
    """What to call the rows of source and target: file names, or row numbers."""
    seconds: dict[str, float]
    """By stage; what all anchors share is in each."""
    classes: tuple[str, ...] = ()
    """Names by output; none where only their numbers are known."""
    notes: tuple[str, ...] = ()
    """What was decided or noticed on the way, a sentence each."""


class Anchor(NamedTuple):
    """The samples of one anchor."""

    name: str
    source: Part
    val: Part
    test: Part | None


class Question(NamedTuple):
    """Everything that decides the diagnostics, besides models and samples."""

    loss: Loss
    classes: tuple[str, ...]
    """Names by output; empty where only their numbers are known."""
    settings: Settings
    features: str
    """``identity``, ``saved``, or a submodule of the old model."""
    unit_features: bool
    gradients: str
    """``inputs`` or ``features``: where sensitivities are taken."""
    scale_epsilon: bool
    """Multiply the settings' epsilon by the features' total variance, for features that are not of unit length."""


def measure(
    models: tuple[AnyModel, AnyModel],
    anchors: Sequence[Anchor],
    target: Part,
    target_val: Part,
    question: Question,
    *,
    generator: Generator,
    stages: Stages,
) -> list[Case]:
    """One case per anchor."""
    q = question
    notes: list[str] = []
    parts = [target, target_val, *(p for a in anchors for p in (a.source, a.val, a.test) if p is not None)]
    _check_alike(parts)
    at = (models[0].layer(q.features), models[1].layer(q.features)) if q.gradients == "features" else None
    with stages("features"):
        features = _features(models[0], q, parts)
        spread = [features.of(part.sample) for part in (target, *(a.source for a in anchors))]
    if q.scale_epsilon and (variance := float(torch.cat(spread).double().var(dim=0).sum())) > 0:
        q = q._replace(settings=replace(q.settings, epsilon=q.settings.epsilon * variance))
        notes.append(
            f"the transport distance is smoothed with epsilon {q.settings.epsilon:.3g}, {question.settings.epsilon:g} "
            "of the features' total variance; choose it with --set epsilon=..."
        )
    probes = (Probe(models[0], "--model", q.loss, q.settings), Probe(models[1], "--new-model", q.loss, q.settings))
    for probe, key in zip(probes, ("logits", "new_logits"), strict=True):
        _know_outputs(probe, key, parts)
    with stages("outputs"):
        _check_classes(q, probes[0].outputs(target.sample).shape[1])
    target_self = None
    if len(anchors) > 1 and q.settings.distance == "sinkhorn" and len(spread[0]) <= _MOST_CACHED:
        with stages("shift"):
            target_self = self_transport(spread[0], epsilon=q.settings.epsilon, num_iters=q.settings.num_iters)
    shared = dict(stages.seconds)
    cases = []
    for anchor in anchors:
        own = Stages()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            evidence = examine(
                *probes, anchor.source.sample, target.sample,
                source_val=anchor.val.sample, target_val=target_val.sample, features=features, gradient_at=at,
                anchor_test=None if anchor.test is None else anchor.test.sample,
                target_self=target_self, generator=generator, stage=own,
            )  # fmt: skip
            with own("outputs"):
                on_source, on_target = (
                    (probes[0].outputs(part.sample), probes[1].outputs(part.sample)) for part in (anchor.source, target)
                )
        warned = dict.fromkeys(str(warning.message) for warning in caught)
        cases.append(
            Case(
                anchor.name, assemble(evidence, q.settings), anchor.source.sample, target.sample,
                features.of(anchor.source.sample), spread[0], on_source, on_target,
                (anchor.source.names, target.names), summed(shared, own.seconds), q.classes, (*notes, *warned),
            )
        )  # fmt: skip
    return cases


def _check_classes(q: Question, num_outputs: int) -> None:
    if q.loss.classification and q.classes and len(q.classes) != num_outputs:
        shown = ", ".join(q.classes[:6]) + (", ..." if len(q.classes) > 6 else "")
        raise ToolError(
            f"there are {len(q.classes)} classes ({shown}) and {num_outputs} outputs: list a name for every output, in "
            "their order, with --classes"
        )


def _check_alike(parts: Sequence[Part]) -> None:
    first, *others = parts
    for part in others:
        shapes = [list(p.sample.x.shape[1:]) for p in (part, first)]
        if shapes[0] != shapes[1]:
            raise ToolError(
                f"a row of {part.origin} has shape {shapes[0]}, one of {first.origin} {shapes[1]}: give all samples "
                "the same columns"
            )


def _features(model: AnyModel, q: Question, parts: Sequence[Part]) -> Features:
    """h, with what was saved of it."""
    h: FeatureMap = identity
    if q.features not in ("identity", "saved"):
        h = layer_features(model, model.layer(q.features))
    features = Features(l2_normalised(h) if q.unit_features else h, batch_size=q.settings.batch_size)
    for part in parts if q.features == "saved" else ():
        saved = _saved(part, "features", "--features saved")
        features.know(part.sample, nn.functional.normalize(saved, dim=1) if q.unit_features else saved)
    return features


def _know_outputs(probe: Probe, key: str, parts: Sequence[Part]) -> None:
    """The saved outputs, where they are all there is of a model."""
    if isinstance(probe.model, SavedOutputs):
        for part in parts:
            probe.know(part.sample, _saved(part, key, f"no {probe.name}"))


def _saved(part: Part, key: str, why: str) -> Tensor:
    if key not in part.saved:
        raise ToolError(f"{part.origin} holds no {key}, which {why} needs: save it there with one row per sample")
    return part.saved[key].to(part.sample.x.dtype)
