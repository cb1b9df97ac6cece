"""From options to diagnostics of one update on several anchors: every model sees every sample once.

What has to be settled before anything is measured, columns, features, what is already known and epsilon, is settled in
`prepare`.
"""

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..checks import check_labels
from ..diagnostic import Diagnostic, diagnose
from ..estimators.sinkhorn import SelfTransport
from ..evidence import Known, Update, View, shared_self
from ..features import extract_with_outputs, identity
from ..gate.verdict import Verdict
from ..io.errors import UserError
from ..io.models import AnyModel, SavedOutputs, load_model
from ..io.rows import Part
from ..losses import Loss
from ..sample import Sample
from ..settings import Settings
from ..stats.conformal import PastUpdate
from .options import device_from, loss_from, settings_from
from .samples import Loader, Parts, Scaling
from .stages import Stages, summed

_PROBABILITIES = "the outputs of {} look like probabilities, but the loss takes logits: save or return their logarithms"


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
    views: dict[str, dict[str, View]]
    """Of every anchor, by the names that `trace.diagnose` has for its samples; those of the target are shared."""
    notes: list[str]


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
        anchors, targets = loader.samples()
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
    found = measure(models, anchors, targets, question, generator=generator, stages=stages)
    return [case._replace(notes=(*loader.notes, *case.notes)) for case in found]


def measure(
    models: tuple[AnyModel, AnyModel],
    anchors: Mapping[str, Parts],
    targets: Parts,
    question: Question,
    *,
    generator: Generator,
    stages: Stages,
) -> list[Case]:
    """One case per anchor, each what it is without the others: columns have the units of their own source."""
    before, found = dict(stages.seconds), []
    groups = [{name: parts} for name, parts in anchors.items()] if question.scale_columns else [anchors]
    for group in groups:
        stages.seconds = dict(before)
        prepared = prepare(models, group, targets, question, stages)
        target_self = _target_self(prepared, question, stages) if len(group) > 1 else None
        shared = dict(stages.seconds)
        for anchor, parts in group.items():
            try:
                case = _case(prepared, anchor, {**parts, **targets}, target_self, question, generator)
            except ValueError as error:
                if len(anchors) == 1:
                    raise
                raise UserError(f"anchor {anchor}: {error}") from error
            found.append(case._replace(seconds=summed(shared, case.seconds)))
    return found


def _target_self(prepared: Prepared, question: Question, stages: Stages) -> SelfTransport | None:
    """The target's own transport problem, which anchors share where they share epsilon."""
    if question.scale_epsilon:
        return None
    with stages("shift"):
        return shared_self(next(iter(prepared.views.values()))["target"].features, question.settings)


def _case(
    prepared: Prepared,
    anchor: str,
    parts: Parts,
    target_self: SelfTransport | None,
    question: Question,
    generator: Generator,
) -> Case:
    """The case of one anchor, with the library's warnings as notes."""
    update, views, stages, notes = prepared.update, prepared.views[anchor], Stages(), list(prepared.notes)
    source = views["source"]
    settings = question.settings
    if question.scale_epsilon:
        with stages("features"):
            settings, noted = with_epsilon(settings, source.features)
        notes += noted
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples: dict[str, Any] = {name: view.sample for name, view in views.items()}
        diagnostic = diagnose(
            *update.models,
            **samples,
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
        anchor=anchor,
        diagnostic=diagnostic,
        source=parts["source"].sample,
        target=parts["target"].sample,
        source_features=source.features,
        target_features=views["target"].features,
        source_logits=on_source,
        target_logits=(views["target"].outputs, views["target"].new_outputs),
        names=(parts["source"].names, parts["target"].names),
        seconds=stages.seconds,
        classes=question.classes,
        notes=(*notes, *dict.fromkeys(str(warning.message) for warning in caught)),
    )


def prepare(
    models: tuple[AnyModel, AnyModel],
    anchors: Mapping[str, Parts],
    targets: Parts,
    question: Question,
    stages: Stages,
) -> Prepared:
    """Settle everything that anchors share."""
    q, notes = question, []
    _check_alike([part for parts in (targets, *anchors.values()) for part in parts.values()])
    at = (models[0].layer(q.features), models[1].layer(q.features)) if q.gradients == "features" else None
    run: tuple[nn.Module, nn.Module] = models
    if q.scale_columns:
        scaling = Scaling.of([parts["source"] for parts in anchors.values()])
        targets, *scaled = (
            {name: scaling.scale(part) for name, part in parts.items()} for parts in (targets, *anchors.values())
        )
        anchors = dict(zip(anchors, scaled, strict=True))
        run = (scaling.undo_before(models[0]), scaling.undo_before(models[1]))
        notes.append("columns count in units of their standard deviation in the source; --scale none keeps their own")
    target = targets["target"]
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

        def views(parts: Parts) -> dict[str, View]:
            return {
                name: View(part.sample, update, **_known(part, models, run[0], layer, q, like=target))
                for name, part in parts.items()
            }

        on_target = views(targets)
        on_anchors = {name: views(parts) for name, parts in anchors.items()}
        outputs = (on_target["target"].outputs, on_target["target"].new_outputs)
        widths = [z.shape[1] for z in outputs]
        if widths[0] != widths[1]:
            raise UserError(f"--model has {widths[0]} outputs, --new-model {widths[1]}: compare models of one task")
        _check_classes(q, widths[0])
        if q.loss.classification:
            for parts in (targets, *anchors.values()):
                _check_labels(parts, widths[0])
        notes += [_PROBABILITIES.format(n) for n, z in zip(update.names, outputs, strict=True) if _sums_to_one(z)]
    return Prepared(update, {name: {**own, **on_target} for name, own in on_anchors.items()}, notes)


def with_epsilon(settings: Settings, u: Tensor) -> tuple[Settings, list[str]]:
    """Settings whose epsilon is that share of the total variance of the source's features ``u``, and a note of it."""
    if (variance := _total_variance(u)) == 0:
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


def _check_labels(parts: Parts, num_outputs: int) -> None:
    """Labels that fit the models, and more than one class where a risk is read off them; the file is named."""
    for name, part in parts.items():
        if (y := part.sample.y) is None:
            continue
        check_labels(y, f"{part.origin}: y", length=len(y), num_classes=num_outputs)
        if name in ("source", "anchor_test") and len(y.unique()) < 2:
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
    from ..report.page import report_case, to_html  # seconds to import

    generator = torch.Generator().manual_seed(getattr(arguments, "seed", 0))
    shown = []
    for case in found:
        material = {name: value for name, value in case._asdict().items() if name not in ("seconds", "notes")}
        shown.append(report_case(**material, generator=generator)._replace(notes=case.notes if verdict is None else ()))
    return to_html(
        shown, verdict=verdict, past=past, harm_above=harm_above, title=title, about=_about(found, arguments)
    )


def _about(found: Sequence[Case], arguments: argparse.Namespace) -> dict[str, str]:
    """Which files the page is about."""
    about = {name: getattr(arguments, name) for name in ("policy", "diagnostic") if getattr(arguments, name, None)}
    if found:
        about |= {"old model": arguments.model or "saved outputs", "new model": arguments.new_model or "saved outputs"}
        about |= {f"anchor {case.anchor}": path for case, path in zip(found, arguments.source, strict=True)}
        about |= {"target": arguments.target, "seed": str(arguments.seed)}
    return about
