"""Deployment gate (`app:domainnet-gate`): which of 20 fine-tuned candidates harms the anchor, without its labels.

    python -m experiments data emoji                           # once, the stand-in's images
    python -m experiments run gate --launcher local            # stand-in, cpu profile
    python -m experiments run gate profile=paper --launcher slurm --profile gpu       # DomainNet on a GPU cluster

One run is a seed with all candidates of `configs/gate/VARIANT.yaml`. Makes the tables `gate-tau-main` and `gate-tau`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from trace import baselines, diagnose
from trace.shift import Shift, measure_shift

from .cells import seeded
from .errors import UserError
from .execute import Context
from .pairs import LOSS, SETTINGS, columns, remainders, row
from .vision.controls import blind_harm, constant_logit
from .vision.finetune import TrainSpec, predict, train
from .vision.models import Classifier, at_depth
from .vision.study import Domain, Study, VisionConfig, sample


@dataclass(frozen=True)
class Candidate:
    """One update: how it was fine-tuned on the target."""

    name: str = ""
    depth: str = "head"
    """head, block or full."""
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


def run(config: Config, context: Context) -> dict[str, Any]:
    if not config.candidates:
        raise UserError("there are no candidates: name a variant that lists them, such as config=cpu")
    study = Study.of(config)
    heads = study.domain(config.source), study.domain(config.target)
    q = study.source_model(heads[0])
    shift = measure_shift(
        heads[0].train.x.float(), heads[1].train.x.float(), SETTINGS, generator=seeded("gate", config.seed)
    )
    blocks: tuple[Domain, Domain] | None = None
    rows = []
    for number, candidate in enumerate(config.candidates):
        domains = heads
        if candidate.depth == "block":
            blocks = blocks or (study.domain(config.source, "maps"), study.domain(config.target, "maps"))
            domains = blocks
        rows.append(_measured(candidate, config, study, q, domains, shift))
        context.log(number, risk_change=rows[-1]["risk_change"])
    return {
        "columns": columns(rows),
        "names": [c.name for c in config.candidates],
        "num_classes": len(study.dataset.classes),
        "skipped": study.skipped(config.source, config.target),
    }


def _measured(
    candidate: Candidate, config: Config, study: Study, q: Classifier, domains: tuple[Domain, Domain], shift: Shift
) -> dict[str, float]:
    """Train one candidate and measure it: diagnostic, anchor terms, baselines, and the true change."""
    source, target = domains
    rehearsed = blind_harm(source.train, candidate.relabelled, into=0) if candidate.relabelled else source.train
    found = train(
        candidate.spec(), q, target.train,
        source=rehearsed, backbone=study.backbone, generator=seeded("candidate", candidate.name, config.seed),
        device=config.device,
    )  # fmt: skip
    old = at_depth(q, found.model.depth, study.backbone).requires_grad_(False)
    new: nn.Module = constant_logit(found.model, candidate.constant) if candidate.constant else found.model
    report = diagnose(
        old, new, sample(source.train), sample(target.train),
        source_val=sample(source.val), target_val=sample(target.val), anchor_test=sample(source.test),
        loss=LOSS, feature_map=old.features, gradient_at=(old.features, found.model.features), shift=shift,
        settings=SETTINGS,
    )  # fmt: skip
    logits = {name: predict(new, part, device=config.device) for name, part in (
        ("source", source.val), ("target", target.val), ("target_test", target.test))}  # fmt: skip
    return {
        **row(report),
        **remainders(report),
        **label_free(logits["source"], logits["target"], target.val.y, source.train.y, len(study.dataset.classes)),
        "disagreement_target": baselines.disagreement(
            predict(old, target.val, device=config.device), logits["target"]
        ).value,
        "target_error": float((logits["target_test"].argmax(dim=1) != target.test.y).double().mean()),
    }


def label_free(
    source: Tensor, target: Tensor, target_labels: Tensor, source_labels: Tensor, num_classes: int
) -> dict[str, float]:
    """Baselines from the candidate's logits ``[n, C]`` on held-out inputs of both domains; higher is harm in all.

    ATC and DoC are calibrated on the labelled target and predict the source; COT takes the source's label marginal.
    """
    marginal = torch.bincount(source_labels, minlength=num_classes).double()
    scores = {
        "negative_msp_source": baselines.msp(source),
        "negative_msp_target": baselines.msp(target),
        "entropy_source": baselines.entropy(source),
        "energy_source": baselines.energy(source),
        "atc": baselines.atc(target, target_labels, source),
        "doc": baselines.doc(target, source),
        "cot": baselines.cot(source, marginal / marginal.sum()),
        "mano": baselines.mano(source),
    }
    return {name: score.harm for name, score in scores.items()}


if __name__ == "__main__":
    from experiments.entry import main

    main("gate")
