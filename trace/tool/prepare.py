"""What has to be settled before anything is measured: columns, features, what is already known, and epsilon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..checks import check_labels
from ..evidence import Features, Probe
from ..features import extract_with_outputs, identity
from ..io.errors import UserError
from ..io.models import AnyModel, SavedOutputs
from ..io.rows import Part
from ..losses import Loss
from ..settings import Settings
from .samples import Anchor, Scaling
from .stages import Stages

_PROBABILITIES = "the outputs of {} look like probabilities, but the loss takes logits: save or return their logarithms"


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
    scale_columns: bool
    """Measure inputs in units of each column's standard deviation in the sources."""
    page: bool
    """Keep what a page shows beside the diagnostic."""
    scale_epsilon: bool
    """Multiply the settings' epsilon by the total variance of the source's features, unless they are of unit length."""


class Prepared(NamedTuple):
    """Samples, probed models and features, ready to be measured."""

    anchors: list[Anchor]
    target: Part
    target_val: Part | None
    probes: tuple[Probe, Probe]
    features: Features
    gradient_at: tuple[nn.Module, nn.Module] | None
    notes: list[str]


def prepare(
    models: tuple[AnyModel, AnyModel],
    anchors: Sequence[Anchor],
    target: Part,
    target_val: Part | None,
    question: Question,
    stages: Stages,
) -> Prepared:
    """Settle everything that anchors share."""
    q, notes = question, []
    _check_alike(_parts(target, target_val, anchors))
    at = (models[0].layer(q.features), models[1].layer(q.features)) if q.gradients == "features" else None
    run: tuple[nn.Module, nn.Module] = models
    if q.scale_columns:
        scaling = Scaling.of([anchor.source for anchor in anchors])
        anchors = [anchor.scale(scaling) for anchor in anchors]
        target = scaling.scale(target)
        target_val = None if target_val is None else scaling.scale(target_val)
        run = (scaling.undo_before(models[0]), scaling.undo_before(models[1]))
        notes.append("columns count in units of their standard deviation in the source; --scale none keeps their own")
    if q.features == "identity" and target.sample.x.ndim > 2:
        notes.append(
            "the shift is measured in raw pixels; a layer says more about images, such as --features global_pool"
        )
    parts = _parts(target, target_val, anchors)
    probes = (Probe(run[0], "--model", q.loss, q.settings), Probe(run[1], "--new-model", q.loss, q.settings))
    for probe, model, key in zip(probes, models, ("logits", "new_logits"), strict=True):
        if isinstance(model, SavedOutputs):
            for part in parts:
                probe.know(part.sample, _saved(part, key, f"no {probe.name}", like=target))
    with stages("outputs"):
        layer = models[0].layer(q.features) if q.features not in ("identity", "saved") else None
        features = _features(run[0], layer, probes[0], q, parts)
        widths = [probe.outputs(target.sample).shape[1] for probe in probes]
        if widths[0] != widths[1]:
            raise UserError(f"--model has {widths[0]} outputs, --new-model {widths[1]}: compare models of one task")
        _check_classes(q, widths[0])
        if q.loss.classification:
            _check_labels(parts, [a.source for a in anchors] + [a.test for a in anchors if a.test], widths[0])
        notes += [_PROBABILITIES.format(p.name) for p in probes if _sums_to_one(p.outputs(target.sample))]
    return Prepared(list(anchors), target, target_val, probes, features, at, notes)


def with_epsilon(settings: Settings, u: Tensor) -> tuple[Settings, list[str]]:
    """Settings whose epsilon is that share of the total variance of the source's features ``u``, and a note of it."""
    variance = _total_variance(u)
    if variance == 0:
        return settings, []
    epsilon = settings.epsilon * variance
    note = (
        f"the transport distance is smoothed with epsilon {epsilon:.3g}, {settings.epsilon:g} of the total variance of "
        "the source's features; choose it with --set epsilon=..."
    )
    return replace(settings, epsilon=epsilon), [note]


def _total_variance(u: Tensor, rows: int = 1024) -> float:
    """Sum over columns of the variance, in float64, a few rows at a time."""
    mean = u.mean(dim=0, dtype=torch.float64)
    return sum(float((part.double() - mean).square().sum()) for part in u.split(rows)) / len(u)


def _parts(target: Part, target_val: Part | None, anchors: Sequence[Anchor]) -> list[Part]:
    held = [] if target_val is None else [target_val]
    return [target, *held, *(part for anchor in anchors for part in anchor.parts())]


def _features(model: nn.Module, layer: nn.Module | None, probe: Probe, q: Question, parts: Sequence[Part]) -> Features:
    """h, with what was saved of it; at a submodule, from the same pass as the old model's outputs."""
    size = q.settings.batch_size

    def of_length(u: Tensor) -> Tensor:
        return nn.functional.normalize(u, dim=1) if q.unit_features else u

    features = Features(lambda x: of_length(identity(x)), batch_size=size)
    for part in parts if q.features != "identity" else ():
        if layer is None:
            u = _saved(part, "features", "--features saved")
        else:
            u, z = extract_with_outputs(model, layer, part.sample.x, batch_size=size)
            probe.know(part.sample, z)
        features.know(part.sample, of_length(u))
    return features


def _check_classes(q: Question, num_outputs: int) -> None:
    if q.loss.classification and q.classes and len(q.classes) != num_outputs:
        shown = ", ".join(q.classes[:6]) + (", ..." if len(q.classes) > 6 else "")
        raise UserError(
            f"there are {len(q.classes)} classes ({shown}) and {num_outputs} outputs: list a name for every output, in "
            "their order, with --classes"
        )


def _check_labels(parts: Sequence[Part], with_risk: Sequence[Part], num_outputs: int) -> None:
    """Labels that fit the models, and more than one class where a risk is read off them; the file is named."""
    for part in parts:
        y = part.sample.y
        if y is None:
            continue
        check_labels(y, f"{part.origin}: y", length=len(y), num_classes=num_outputs)
        if any(part is one for one in with_risk) and len(y.unique()) < 2:
            raise UserError(f"{part.origin} holds one class only, so its risk says nothing: give rows of two classes")


def _check_alike(parts: Sequence[Part]) -> None:
    first, *others = parts
    for part in others:
        shapes = [list(p.sample.x.shape[1:]) for p in (part, first)]
        if shapes[0] != shapes[1]:
            raise UserError(
                f"a row of {part.origin} has shape {shapes[0]}, one of {first.origin} {shapes[1]}: give all samples "
                "the same columns"
            )


def _saved(part: Part, key: str, why: str, like: Part | None = None) -> Tensor:
    if key not in part.saved:
        raise UserError(f"{part.origin} holds no {key}, which {why} needs: save it there with one row per sample")
    widths = [p.saved[key].shape[1] for p in (part, like or part)]
    if like is not None and widths[0] != widths[1]:
        raise UserError(
            f"{key} has {widths[0]} columns in {part.origin} and {widths[1]} in {like.origin}: save one model's outputs"
        )
    return part.saved[key].to(part.sample.x.dtype)


def _sums_to_one(outputs: Tensor) -> bool:
    """Whether every row is a distribution over at least two classes."""
    sums = outputs.double().sum(dim=1)
    return outputs.shape[1] > 1 and bool((outputs >= 0).all()) and bool(((sums - 1).abs() < 1e-4).all())
