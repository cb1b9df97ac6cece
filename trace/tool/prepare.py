"""What has to be settled before anything is measured: columns, features, what is already known, and epsilon."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..checks import check_labels
from ..evidence import Update, View
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
    """An update and the views of all samples, ready to be measured."""

    update: Update
    views: list[dict[str, View]]
    """Of every anchor, by the names that `trace.diagnose` has for its samples; those of the target are shared."""
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
    update = Update(
        models=run,
        loss=q.loss,
        settings=q.settings,
        feature_map=lambda x: _of_length(identity(x), q),
        gradient_at=at,
        names=("--model", "--new-model"),
    )
    with stages("outputs"):
        layer = models[0].layer(q.features) if q.features not in ("identity", "saved") else None

        def views(**parts: Part | None) -> dict[str, View]:
            return {
                name: View(part.sample, update, **_known(part, models, run[0], layer, q, like=target))
                for name, part in parts.items()
                if part is not None
            }

        on_target = views(target=target, target_val=target_val)
        on_anchors = [views(source=a.source, source_val=a.val, anchor_test=a.test) for a in anchors]
        outputs = (on_target["target"].outputs, on_target["target"].new_outputs)
        widths = [z.shape[1] for z in outputs]
        if widths[0] != widths[1]:
            raise UserError(f"--model has {widths[0]} outputs, --new-model {widths[1]}: compare models of one task")
        _check_classes(q, widths[0])
        if q.loss.classification:
            with_risk = [a.source for a in anchors] + [a.test for a in anchors if a.test]
            _check_labels(_parts(target, target_val, anchors), with_risk, widths[0])
        notes += [_PROBABILITIES.format(n) for n, z in zip(update.names, outputs, strict=True) if _sums_to_one(z)]
    return Prepared(update, [{**own, **on_target} for own in on_anchors], notes)


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


def _of_length(u: Tensor, q: Question) -> Tensor:
    return nn.functional.normalize(u, dim=1) if q.unit_features else u


def _known(
    part: Part, models: tuple[AnyModel, AnyModel], old: nn.Module, layer: nn.Module | None, q: Question, *, like: Part
) -> dict[str, Tensor]:
    """What was saved of a part; features at a submodule come from the same pass as the old model's outputs."""
    known = {
        name: _saved(part, key, f"no {model.option}", like=like)
        for model, name, key in zip(models, ("outputs", "new_outputs"), ("logits", "new_logits"), strict=True)
        if isinstance(model, SavedOutputs)
    }
    if q.features == "saved":
        known["features"] = _of_length(_saved(part, "features", "--features saved"), q)
    elif layer is not None:
        u, known["outputs"] = extract_with_outputs(old, layer, part.sample.x, batch_size=q.settings.batch_size)
        known["features"] = _of_length(u, q)
    return known


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
