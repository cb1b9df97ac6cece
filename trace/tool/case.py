"""From options to diagnostics of one update on several anchors: every model sees every sample once.

What has to be settled before anything is measured, columns, features, what is already known and epsilon, is settled in
`prepare`.
"""

import argparse
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ..checks import check_labels
from ..diagnostic import Diagnostic, diagnose
from ..evidence import Known, Update, View, shared_self
from ..features import extract_with_outputs, identity
from ..gate.policy import Verdict
from ..hardware import doubled, wide
from ..io.checksum import sha256
from ..io.errors import UserError, explain
from ..io.extension import digests, extends
from ..io.models import NamedModel, SavedOutputs, load_model
from ..io.rows import Part
from ..io.writing import read_json
from ..losses import Loss
from ..settings import Settings
from ..stats.conformal import PastUpdate
from .options import device_from, loss_from, settings_from
from .record import model_digests
from .samples import Loader, Parts, Scaling, Unscaled
from .stages import Stages

FORMAT = "trace-diagnostic/1"
"""Of what `diagnose --json` writes."""

_STORED = {"saved": "features", "logits": "logits"}
"""Features that are read and not computed: their keys in a file."""
_PROBABILITIES = "the outputs of {} look like probabilities, but the loss takes logits: save or return their logarithms"


class Case(NamedTuple):
    """One anchor with everything that was computed for it."""

    anchor: str
    diagnostic: Diagnostic
    material: dict[str, Any]
    """What a page shows beside it, as arguments of `trace.report.page.report_case`; empty where none is asked for."""
    seconds: dict[str, float]
    """By stage; what all anchors share is in each."""
    notes: tuple[str, ...] = ()
    """What was decided or noticed on the way, a sentence each."""
    cautions: tuple[str, ...] = ()
    """What would make the numbers wrong, and what asking again costs; among the notes too."""
    rows: Mapping[str, Any] = MappingProxyType({})
    """Digests of the held-out rows, see `trace.io.extension`."""
    look: int = 1
    """Which draw of fresh rows these are."""
    files: Mapping[str, str] = MappingProxyType({})
    """SHA-256 of the models and samples of all cases."""


class Question(NamedTuple):
    """Everything that decides the diagnostics, besides models and samples."""

    loss: Loss
    classes: tuple[str, ...]
    """Names by output; empty where only their numbers are known."""
    settings: Settings
    features: str
    """``identity``, ``saved``, ``logits``, or a submodule of the old model."""
    unit_features: bool
    gradients: str
    """``inputs`` or ``features``: where sensitivities are taken."""
    scale_columns: bool
    """Measure inputs in units of each column's standard deviation in the sources."""
    columns: tuple[str, ...]
    """Names of a table's inputs; empty for others."""
    page: bool
    """Keep what a page shows beside the diagnostic."""
    scale_epsilon: bool
    """Multiply the settings' epsilon by the total variance of the source's features, unless they are of unit length."""


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
        models = load_models(arguments, device)
    with stages("data"):
        loader = Loader(
            arguments,
            models,
            classification=loss.classification,
            device=device,
            generator=generator,
            progress=stages.progress,
        )
        anchors, targets = loader.samples()
    classes = loader.classes or ()
    features = arguments.features or loader.default_features()
    if arguments.scale == "columns" and features in _STORED:
        raise UserError("--scale columns changes inputs, but the shift is measured in saved features: save them scaled")
    if arguments.gradients == "features" and features in ("identity", *_STORED):
        raise UserError("--gradients features needs --features SUBMODULE, where they are taken: name one of the models")
    question = Question(
        loss=loss,
        classes=classes,
        settings=settings,
        features=features,
        unit_features=arguments.unit_features,
        gradients=arguments.gradients,
        scale_columns=arguments.scale == "columns" or (arguments.scale == "auto" and loader.tables),
        columns=(loader.columns or ()) if loader.tables else (),
        page=bool(arguments.html),
        scale_epsilon=not arguments.unit_features and not any(s.startswith("epsilon=") for s in arguments.settings),
    )
    looks = {name: look_at({**parts, **targets}, name, arguments.previous) for name, parts in anchors.items()}
    found = measure(models, anchors, targets, question, faults=loader.faults, generator=generator, stages=stages)
    files = {**model_digests(models), **loader.files}
    return [
        case._replace(
            notes=(*loader.notes, *looks[case.anchor].notes, *case.notes),
            cautions=(*looks[case.anchor].notes, *case.cautions),
            rows=digests({**anchors[case.anchor], **targets}),
            look=looks[case.anchor].number,
            files=files,
        )
        for case in found
    ]


def load_models(arguments: argparse.Namespace, device: torch.device) -> tuple[NamedModel, NamedModel]:
    """The two models that the options name; one where both names mean the same."""
    how: dict[str, Any] = {"trust": arguments.trust, "device": device, "arch": arguments.arch}
    old = load_model(arguments.model, "--model", **how)
    same = _same(arguments.model, arguments.new_model)
    models = (old, old if same else load_model(arguments.new_model, "--new-model", **how))
    if arguments.arch is not None and all(model.arch is None for model in models):
        raise UserError("--arch is for models that are state dicts, and neither is one: leave it out")
    return models


class Look(NamedTuple):
    """Which draw of fresh rows this is, and what to say of it."""

    number: int
    notes: tuple[str, ...] = ()


def look_at(parts: Parts, anchor: str, previous: str | None) -> Look:
    """Whether held-out rows extend those of an earlier diagnostic, or were drawn afresh."""
    if previous is None:
        return Look(1)
    record = read_json(Path(previous), FORMAT, "diagnose --json", seal=True)
    with explain(f"{previous} is damaged", "make it again with diagnose --json", KeyError, TypeError, ValueError):
        earlier, number = record["rows"], int(record["look"])
        if anchor not in earlier:
            return Look(1, (f"{previous} is about other anchors than {anchor}",))
        if extends(parts, earlier[anchor]):
            return Look(
                number, (f"the held-out rows begin with those of {previous}: asking again costs no confidence",)
            )
    note = (
        f"the held-out rows do not begin with those of {previous}: draw {number + 1} of fresh rows, which spends error"
    )
    return Look(number + 1, (f"{note} of its own; put new rows after the earlier ones",))


def _same(model: str | None, new_model: str | None) -> bool:
    """Whether two names mean one model: the same text, or files of the same bytes."""
    if model is None or new_model is None:
        return False
    files = Path(model), Path(new_model)
    return model == new_model or (all(f.is_file() for f in files) and sha256(files[0]) == sha256(files[1]))


def measure(
    models: tuple[NamedModel, NamedModel],
    anchors: Mapping[str, Parts],
    targets: Parts,
    question: Question,
    *,
    faults: Mapping[str, Mapping[str, str]],
    generator: Generator,
    stages: Stages,
) -> list[Case]:
    """One case per anchor, each what it is without the others: columns have the units of their own source.

    ``faults`` says by anchor which samples do not count as held out, and why.
    """
    before, found = dict(stages.seconds), []
    groups = [{name: parts} for name, parts in anchors.items()] if question.scale_columns else [anchors]
    for group in groups:
        stages.seconds = dict(before)
        update, views, notes = prepare(models, group, targets, question, stages)
        target_self = None
        if len(group) > 1 and not question.scale_epsilon:  # anchors share it where they share epsilon
            with stages("shift"):
                target_self = shared_self(next(iter(views.values()))["target"].features, question.settings)
        shared = dict(stages.seconds)
        for anchor, parts in group.items():
            stages.seconds = dict(shared)
            try:
                known = Known(
                    views=views[anchor],
                    target_self=target_self,
                    classes=question.classes,
                    faults=faults[anchor],
                    stage=stages,
                )
                case = _case(anchor, {**parts, **targets}, update, known, question, generator, stages)
                found.append(case._replace(notes=(*notes, *case.notes)))
            except ValueError as error:
                if len(anchors) == 1:
                    raise
                raise UserError(f"anchor {anchor}: {error}") from error
    return found


def _case(
    anchor: str,
    parts: Parts,
    update: Update,
    known: Known,
    question: Question,
    generator: Generator,
    stages: Stages,
) -> Case:
    """The case of one anchor, with the library's warnings as notes."""
    source, target = known.views["source"], known.views["target"]
    settings, notes = question.settings, list[str]()
    if question.scale_epsilon:
        with stages("features"):
            settings, notes = with_epsilon(settings, source.features)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples: dict[str, Any] = {name: view.sample for name, view in known.views.items()}
        diagnostic = diagnose(
            *update.models,
            **samples,
            loss=update.loss,
            feature_map=update.feature_map,
            gradient_at=update.gradient_at,
            settings=settings,
            generator=generator,
            known=known,
        )
        with stages("outputs"):
            material: dict[str, Any] = (
                {
                    "source": parts["source"].sample,
                    "target": parts["target"].sample,
                    "source_features": source.features,
                    "target_features": target.features,
                    "source_logits": (source.outputs, source.new_outputs),
                    "target_logits": (target.outputs, target.new_outputs),
                    "names": (parts["source"].names, parts["target"].names),
                    "classes": question.classes,
                    "held_out": _held_out_rows(parts, known),
                    "columns": question.columns,
                }
                if question.page
                else {}
            )
    cautions = tuple(probability_notes(update.names, (target.outputs, target.new_outputs)))
    return Case(
        anchor=anchor,
        diagnostic=diagnostic,
        material=material,
        seconds=stages.seconds,
        notes=(*notes, *dict.fromkeys(str(warning.message) for warning in caught), *cautions),
        cautions=cautions,
    )


def _held_out_rows(parts: Parts, known: Known) -> Any:
    """Those that both models are compared on, as `AnchorRows`: labelled ones first, as in the diagnostic."""
    from ..report.case import AnchorRows  # seconds to import

    here = [name for name in ("anchor_test", "source_val") if name in parts and not (known.faults or {}).get(name)]
    named = next((name for name in here if parts[name].sample.y is not None), here[-1] if here else "")
    if not named:
        return None
    view = known.views[named]
    return AnchorRows(parts[named].sample, (view.outputs, view.new_outputs), parts[named].names)


def prepare(
    models: tuple[NamedModel, NamedModel],
    anchors: Mapping[str, Parts],
    targets: Parts,
    question: Question,
    stages: Stages,
) -> tuple[Update, dict[str, dict[str, View]], list[str]]:
    """Settle everything that anchors share: the update, every anchor's views of all its samples, and notes.

    Views have the names of `trace.diagnose`'s arguments; those of the target are shared.
    """
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
        old = Unscaled(models[0], scaling)
        run = (old, old if models[0] is models[1] else Unscaled(models[1], scaling))
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
        layer = models[0].layer(q.features) if q.features not in ("identity", *_STORED) else None

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
        check_classes(q.loss, q.classes, widths[0])
        if q.loss.classification:
            for parts in (targets, *anchors.values()):
                _check_labels(parts, widths[0])
    return update, {name: {**own, **on_target} for name, own in on_anchors.items()}, notes


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
    mean = u.mean(dim=0, dtype=wide(u.device))
    return sum(float((part.to(mean.dtype) - mean).square().sum()) for part in u.split(rows)) / len(u)


def _of_length(u: Tensor, q: Question) -> Tensor:
    return nn.functional.normalize(u, dim=1) if q.unit_features else u


def _known(
    part: Part,
    models: tuple[NamedModel, NamedModel],
    old: nn.Module,
    layer: nn.Module | None,
    q: Question,
    *,
    like: Part,
) -> dict[str, Tensor]:
    """What was saved of a part; features at a submodule come from the same pass as the old model's outputs."""
    known = {
        name: _saved(part, key, f"must be there without {model.name}", like=like)
        for model, name, key in zip(models, ("outputs", "new_outputs"), ("logits", "new_logits"), strict=True)
        if isinstance(model, SavedOutputs)
    }
    if (key := _STORED.get(q.features)) is not None:
        known["features"] = _of_length(_saved(part, key, f"--features {q.features} needs"), q)
    elif layer is not None:
        u, known["outputs"] = extract_with_outputs(old, layer, part.sample.x, batch_size=q.settings.batch_size)
        known["features"] = _of_length(u, q)
    return known


def probability_notes(names: Sequence[str], outputs: Sequence[Tensor]) -> list[str]:
    """Which models' outputs look like probabilities, a sentence each."""
    return [_PROBABILITIES.format(name) for name, z in zip(names, outputs, strict=True) if _sums_to_one(z)]


def check_classes(loss: Loss, classes: Sequence[str], num_outputs: int) -> None:
    """As many names as outputs, where there are any."""
    if loss.classification and classes and len(classes) != num_outputs:
        shown = ", ".join(classes[:6]) + (", ..." if len(classes) > 6 else "")
        raise UserError(
            f"there are {len(classes)} classes ({shown}) and {num_outputs} outputs: list a name for every output, in "
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
        raise UserError(f"{part.origin} holds no {key}, which {why}: save it there with one row per sample")
    widths = [p.saved[key].shape[1] for p in (part, like or part)]
    if like is not None and widths[0] != widths[1]:
        raise UserError(
            f"{key} has {widths[0]} columns in {part.origin} and {widths[1]} in {like.origin}: save one model's outputs"
        )
    return part.saved[key].to(part.sample.x.dtype)


def _sums_to_one(outputs: Tensor) -> bool:
    """Whether every row is a distribution over at least two classes."""
    sums = doubled(outputs).sum(dim=1)
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
    shown = [
        report_case(case.anchor, case.diagnostic, **case.material, generator=generator)._replace(
            notes=case.notes if verdict is None else ()
        )
        for case in found
    ]
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
