"""Deployment gate (`app:domainnet-gate`): which of 20 fine-tuned candidates harms the anchor, without its labels.

    python -m experiments data emoji                           # once, the stand-in's images
    python -m experiments run gate --launcher local            # stand-in, cpu profile
    python -m experiments run gate config=paper --launcher slurm --cluster gpu       # DomainNet on a GPU cluster

One run is a candidate of `configs/gate/VARIANT.yaml` and a seed; runs of a seed share Q, distances and what Q sees.
Beside the record stand the held-out outputs of both models (``outputs.npz``), for scores that come later. Makes the
tables `gate-tau-main`, `gate-tau`, `gate-paired` and `gate-controls`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Generic, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trace import Sample, Settings, diagnose
from trace.baselines import label_free
from trace.estimators.draws import TransportEstimate
from trace.estimators.mmd import MMDEstimate
from trace.evidence import Known, Shift, measure_shift

from .engine.errors import UserError
from .engine.records import significant
from .engine.run import Context
from .engine.seeds import seeded
from .engine.shared import tensor_digest
from .pairs.measure import DIGITS, row
from .pairs.settings import MeasureConfig
from .pairs.train import labels
from .vision.batches import Data, Rows
from .vision.classifier import Classifier, at_depth
from .vision.controls import blind_harm, constant_logit
from .vision.finetune import TrainSpec, train
from .vision.resume import Keeper, Trainings
from .vision.study import Domain, Study, VisionConfig, check_data, error
from .vision.views import HeadView, beside, features_of, heads


@dataclass(frozen=True)
class FineTune:
    """One update: how it was fine-tuned on the target."""

    name: str = ""
    depth: str = "head"
    """head or block, trained on cached features or maps; or full, the whole network on augmented images."""
    lr: float = 3e-4
    epochs: int = 5
    weight_decay: float = 0.0
    label_fraction: float = 1.0
    rehearsal: float = 0.0
    """Share of the source that is trained on beside the target."""
    distill: float = 0.0
    """Weight of staying near Q's logits on the target."""
    constant: float = 0.0
    """Added to all logits afterwards: changes outputs, never predictions."""
    relabelled: list[int] = field(default_factory=list)
    """Source classes that the rehearsal relabels into the first class: harm that the target does not show."""
    reference: bool = False
    """A plain fine-tune to compare controls with, and none of the updates that are gated."""

    def spec(self) -> TrainSpec:
        return TrainSpec(**{f.name: getattr(self, f.name) for f in fields(TrainSpec) if hasattr(self, f.name)})


@dataclass(frozen=True)
class Config(VisionConfig, MeasureConfig):
    target: str = "sketch"
    candidate: FineTune = field(default_factory=FineTune)
    """The update; a YAML file sweeps over them."""


class Models(NamedTuple, Generic[Data]):
    """Q at the candidate's depth, both domains there, and what Q's head sees of them."""

    q: Classifier
    source: Domain[Data]
    target: Domain[Data]
    source_view: HeadView
    target_view: HeadView


def check(config: Config) -> None:
    """Refuse what cannot be trained, and data that are not there."""
    if not config.candidate.name:
        raise UserError("there is no candidate: name a variant that lists them, such as config=cpu")
    config.candidate.spec()
    config.check_numbers()
    check_data(config, config.source, config.target)


def run(config: Config, context: Context) -> dict[str, Any]:
    check(config)
    study, trainings = Study.of(config), Trainings(context)
    source, target = study.domain(config.source), study.domain(config.target)
    q = study.source_model(source, context, trainings.of("source model"))
    shift = _shift(config, source, target, context)
    models = _at_depth(config, study, q, source, target, context)
    found, outputs = _measure(config, study, models, shift, trainings.of("candidate"))
    context.keep("outputs", **outputs)
    return {
        **significant(found, DIGITS),
        "num_classes": len(study.dataset.classes),
        "skipped": study.skipped(config.source, config.target),
    }


def _shift(config: Config, source: Domain[Rows], target: Domain[Rows], context: Context) -> Shift:
    """Between the training samples; every candidate of a seed has the same."""
    x, y, settings = source.train.x.float(), target.train.x.float(), config.settings()
    key = {"source": tensor_digest(x), "target": tensor_digest(y), "settings": asdict(settings), "seed": config.seed}
    return context.shared(
        "shift",
        key,
        lambda: measure_shift(x, y, settings, generator=seeded("gate", config.seed)),
        classes=(Shift, TransportEstimate, MMDEstimate, Settings),
    )


def _at_depth(
    config: Config, study: Study, q: Classifier, source: Domain[Rows], target: Domain[Rows], context: Context
) -> Models[Any]:
    depth = config.candidate.spec().depth
    domains: tuple[Domain[Any], Domain[Any]] = source, target
    if depth == "full":
        domains = study.pictures(config.source), study.pictures(config.target)
    elif depth == "block":
        domains = study.domain(config.source, "maps"), study.domain(config.target, "maps")
    lifted = at_depth(q, depth, study.backbone).to(config.device).requires_grad_(False)
    names = (config.source, config.target)
    views = (study.view(lifted, name, domain, context) for name, domain in zip(names, domains, strict=True))
    return Models(lifted, *domains, *views)


def _measure(
    config: Config, study: Study, models: Models[Data], shift: Shift, checkpoint: Keeper
) -> tuple[dict[str, float], dict[str, NDArray[Any]]]:
    """Train the candidate and measure it: diagnostic, anchor terms, baselines, the true change; held-out outputs."""
    candidate, source, target = config.candidate, models.source, models.target
    made = train(
        candidate.spec(),
        models.q,
        target.train,
        source=blind_harm(source.train, candidate.relabelled, into=0) if candidate.relabelled else source.train,
        backbone=study.backbone,
        generator=seeded("candidate", candidate.name, config.seed),
        device=config.device,
        checkpoint=checkpoint,
    )

    def both(rows: Data, seen: Tensor) -> Sample:
        return beside(seen, features_of(made.model, rows, device=config.device), rows.y)

    (q_train, q_val, q_test), q_target = models.source_view, models.target_view
    held_out = {
        "source_val": both(source.val, q_val),
        "source_test": both(source.test, q_test),
        "target_val": both(target.val, q_target.val),
        "target_test": both(target.test, q_target.test),
    }
    old, update = heads(models.q, made.model)
    new: nn.Module = constant_logit(update, candidate.constant) if candidate.constant else update
    report = diagnose(
        old,
        new,
        Sample(q_train, source.train.y),
        both(target.train, q_target.train),
        source_val=held_out["source_val"],
        target_val=held_out["target_val"],
        anchor_test=held_out["source_test"],
        loss=config.loss(),
        feature_map=old.features,
        gradient_at=(old.features, update.features),
        settings=config.settings(),
        known=Known(shift=shift),
    )
    with torch.no_grad():
        logits = {name: (old(sample.x), new(sample.x)) for name, sample in held_out.items()}
    marginal = torch.bincount(source.train.y, minlength=len(study.dataset.classes)).double()
    seen = {
        "source": logits["source_val"][1],
        "target": logits["target_val"][1],
        "old_target": logits["target_val"][0],
        "target_labels": target.val.y,
        "label_marginal": marginal / marginal.sum(),
    }
    found = {
        **row(report),
        **label_free(seen),
        "floor": float("nan") if shift.floor is None else shift.floor.value,
        "anchor_error_before": error(old, held_out["source_test"]),
        "target_error_before": error(old, held_out["target_test"]),
        "target_error": error(new, held_out["target_test"]),
    }
    return found, _outputs(logits) | {f"{name}_y": labels(sample).numpy() for name, sample in held_out.items()}


def _outputs(logits: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, NDArray[Any]]:
    """Logits ``[n, C]`` of Q and of the update in half precision, by split."""
    models = ("q", "update")
    return {
        f"{name}_{model}": z.half().numpy()
        for name, outputs in logits.items()
        for model, z in zip(models, outputs, strict=True)
    }


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("gate")
