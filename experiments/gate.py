"""Deployment gate (`app:domainnet-gate`): which of 20 fine-tuned candidates harms the anchor, without its labels.

    python -m experiments data emoji                           # once, the stand-in's images
    python -m experiments run gate --launcher local            # stand-in, cpu profile
    python -m experiments run gate profile=paper --launcher slurm --profile gpu       # DomainNet on a GPU cluster

One run is a seed with all candidates of `configs/gate/VARIANT.yaml`. Makes the tables `gate-tau-main`, `gate-tau`,
`gate-paired` and `gate-controls`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor, nn

from trace import Sample, diagnose
from trace.baselines import label_free
from trace.evidence import Known, Shift, measure_shift

from .engine.errors import UserError
from .engine.run import Context
from .engine.seeds import seeded
from .pairs.measure import LOSS, SETTINGS, columns, row
from .vision.batches import Data
from .vision.classifier import Classifier, Depth, at_depth
from .vision.controls import blind_harm, constant_logit
from .vision.finetune import TrainSpec, train
from .vision.resume import Keeper, Progress
from .vision.study import Domain, Study, VisionConfig, error
from .vision.views import View, beside, features_of, heads, view


@dataclass(frozen=True)
class Candidate:
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

    def spec(self) -> TrainSpec:
        return TrainSpec(**{f.name: getattr(self, f.name) for f in fields(TrainSpec) if hasattr(self, f.name)})


@dataclass(frozen=True)
class Config(VisionConfig):
    target: str = "sketch"
    candidates: list[Candidate] = field(default_factory=list)
    """The updates; a YAML file lists them."""


class Stage(NamedTuple, Generic[Data]):
    """Q and both domains at one depth, with what Q's head sees of them."""

    q: Classifier
    source: Domain[Data]
    target: Domain[Data]
    source_view: View
    target_view: View


def run(config: Config, context: Context) -> dict[str, Any]:
    if not config.candidates:
        raise UserError("there are no candidates: name a variant that lists them, such as config=cpu")
    for candidate in config.candidates:
        candidate.spec()  # refuses before anything is trained
    progress, study = Progress(context), Study.of(config)
    source, target = study.domain(config.source), study.domain(config.target)
    q = study.source_model(source, progress.of("source model"))
    shift = measure_shift(
        source.train.x.float(), target.train.x.float(), SETTINGS, generator=seeded("gate", config.seed)
    )
    stages: dict[str, Stage[Any]] = {"head": _stage(q, source, target, config.device)}
    for number, candidate in enumerate(config.candidates):
        if number < len(progress.rows):
            continue
        if candidate.depth not in stages:
            stages[candidate.depth] = _below_the_head(config, study, q, candidate.spec().depth)
        found = _measured(candidate, config, study, stages[candidate.depth], shift, progress.of("candidate"))
        context.log(number, risk_change=found["risk_change"])
        progress.measured(found, "candidate")
    return {
        "columns": columns(progress.rows),
        "names": [c.name for c in config.candidates],
        "num_classes": len(study.dataset.classes),
        "skipped": study.skipped(config.source, config.target),
    }


def _below_the_head(c: Config, study: Study, q: Classifier, depth: Depth) -> Stage[Any]:
    lifted = at_depth(q, depth, study.backbone)
    if depth == "full":
        return _stage(lifted, study.pictures(c.source), study.pictures(c.target), c.device)
    return _stage(lifted, study.domain(c.source, "maps"), study.domain(c.target, "maps"), c.device)


def _stage(q: Classifier, source: Domain[Data], target: Domain[Data], device: str) -> Stage[Data]:
    q = q.to(device).requires_grad_(False)
    return Stage(q, source, target, view(q, source, device=device), view(q, target, device=device))


def _measured(
    candidate: Candidate, config: Config, study: Study, stage: Stage[Data], shift: Shift, checkpoint: Keeper
) -> dict[str, float]:
    """Train one candidate and measure it: diagnostic, anchor terms, baselines, and the true change."""
    source, target = stage.source, stage.target
    rehearsed = blind_harm(source.train, candidate.relabelled, into=0) if candidate.relabelled else source.train
    found = train(
        candidate.spec(),
        stage.q,
        target.train,
        source=rehearsed,
        backbone=study.backbone,
        generator=seeded("candidate", candidate.name, config.seed),
        device=config.device,
        checkpoint=checkpoint,
    )

    def both(rows: Data, seen: Tensor) -> Sample:
        return beside(seen, features_of(found.model, rows, device=config.device), rows.y)

    (_, q_val, q_test), q_target = stage.source_view, stage.target_view
    source_val, source_test = both(source.val, q_val), both(source.test, q_test)
    target_train, target_val, target_test = (both(rows, seen) for rows, seen in zip(target, q_target, strict=True))
    old, update = heads(stage.q, found.model)
    new: nn.Module = constant_logit(update, candidate.constant) if candidate.constant else update
    report = diagnose(
        old,
        new,
        Sample(stage.source_view.train, source.train.y),
        target_train,
        source_val=source_val,
        target_val=target_val,
        anchor_test=source_test,
        loss=LOSS,
        feature_map=old.features,
        gradient_at=(old.features, update.features),
        settings=SETTINGS,
        known=Known(shift=shift),
    )
    marginal = torch.bincount(source.train.y, minlength=len(study.dataset.classes)).double()
    with torch.no_grad():
        seen = {
            "source": new(source_val.x),
            "target": new(target_val.x),
            "old_target": old(target_val.x),
            "target_labels": target.val.y,
            "label_marginal": marginal / marginal.sum(),
        }
    return {
        **row(report),
        **label_free(seen),
        "floor": float("nan") if shift.floor is None else shift.floor.value,
        "anchor_error_before": error(old, source_test),
        "target_error_before": error(old, target_test),
        "target_error": error(new, target_test),
    }


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("gate")
