"""Deployment gate (`app:domainnet-gate`): which of 20 fine-tuned candidates harms the anchor, without its labels.

    python -m experiments data emoji                           # once, the stand-in's images
    python -m experiments run gate --launcher local            # stand-in, cpu profile
    python -m experiments run gate config=paper --launcher slurm --cluster gpu       # DomainNet on a GPU cluster
    python -m experiments run gate config=acs --launcher local # a table of people, a year and its followers

One run is a candidate of `configs/gate/VARIANT.yaml` and a seed; runs of a seed share Q, distances and what Q sees.
Beside the record stand the held-out outputs of both models (``outputs.npz``), for scores that come later. Makes the
tables `gate-tau-main`, `gate-tau`, `gate-paired` and `gate-controls`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trace import Sample, Settings, diagnose
from trace.baselines import cbpe, label_free
from trace.estimators.draws import TransportEstimate
from trace.estimators.mmd import MMDEstimate
from trace.evidence import Known, Shift, Update, measure_shift
from trace.features import FeatureMap, identity
from trace.losses import ZeroOne

from .engine.errors import UserError
from .engine.records import significant
from .engine.rehearsal import Rehearsal
from .engine.run import Context
from .engine.seeds import seeded
from .engine.shared import tensor_digest
from .pairs.measure import DIGITS, row
from .pairs.settings import MeasureConfig
from .pairs.train import labels
from .tabular.study import TableStudy
from .tabular.table import check_domain, tables
from .tabular.updates import TableSpec, updated
from .vision.batches import Data, Rows
from .vision.finetune import train
from .vision.rehearsal import ImageGrid, Training, image_rehearsal
from .vision.resume import Keeper, parts
from .vision.study import Domain, Study, VisionConfig, check_data, error, sample
from .vision.updates import Models, Views, known_views, models_at, side_by_side

METRICS_VERSION = 3
"""Since the plug-in of the error and the changes on two halves of the test rows are kept."""


@dataclass(frozen=True)
class FineTune(TableSpec):
    """One update: how it was fine-tuned on the target, and what was done to it afterwards."""

    lr: float = 3e-4
    name: str = ""
    constant: float = 0.0
    """Added to all logits afterwards: changes outputs, never predictions."""
    relabelled: list[int] = field(default_factory=list)
    """Source classes that the rehearsal relabels into the first class: harm that the target does not show."""
    reference: bool = False
    """A plain fine-tune to compare controls with, and none of the updates that are gated."""


@dataclass(frozen=True)
class Config(VisionConfig, MeasureConfig):
    target: str = "sketch"
    candidate: FineTune = field(default_factory=FineTune)
    """The update; a YAML file sweeps over them."""


class ConstantLogit(nn.Module):
    """``f(x) + c`` on every logit: a harmless change that an uncentred output distance takes for a large one.

    The prediction and its cross-entropy stay, the output distance is ``c sqrt(C)``.
    """

    def __init__(self, model: nn.Module, constant: float) -> None:
        super().__init__()
        self.model = model
        self.constant = constant

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x) + self.constant


def blind_harm(source: Data, classes: Collection[int], *, into: int) -> Data:
    """The source with every label of ``classes`` replaced by ``into``.

    Rehearsed beside correct target labels (`TrainSpec.rehearsal`, and `TrainSpec.distill` to hold the outputs on the
    target), it harms the model on the source where no target input shows it. Raising one logit by the domain is linear
    in features that tell the domains apart; a permutation of classes would be beyond a linear head.
    """
    if into in classes:
        raise UserError(f"blind_harm relabels class {into} into itself: leave it out of classes")
    absent = sorted(set(classes) - set(source.y.tolist()))
    if absent:
        raise UserError(f"the source has no sample of classes {absent}: name classes that occur")
    y = source.y.clone()
    y[torch.isin(y, torch.tensor(sorted(classes)))] = into
    return replace(source, y=y)


class Pair(NamedTuple):
    """Q and the candidate as functions of the same inputs, with the samples that they are measured on."""

    q: nn.Module
    update: nn.Module
    source: Sample
    target: Sample
    """What they were trained on; Q reads the source's inputs, both read all others."""
    held_out: dict[str, Sample]
    """``source_val``, ``source_test``, ``target_val``, ``target_test``."""
    shift: Shift
    feature_map: FeatureMap
    gradient_at: tuple[nn.Module, nn.Module] | None
    """A layer of each, or the inputs."""
    views: Views
    num_classes: int
    skipped: dict[str, dict[str, int]]
    """Images that were left out, by domain and split."""


def check(config: Config) -> None:
    """Refuse what cannot be trained, and data that are not there."""
    if not config.candidate.name:
        raise UserError("there is no candidate: name a variant that lists them, such as config=cpu")
    config.check_numbers()
    if config.data in tables():
        TableStudy.of(config)
        for domain in (config.source, config.target):
            check_domain(config.data, domain)
        if config.candidate.depth != "head" or config.candidate.relabelled:
            raise UserError("a candidate of a table has no depth to choose and no blind harm: leave both out")
        return
    config.check_depth(config.candidate.depth)
    check_data(config, config.source, config.target)
    if config.candidate.of_tables:
        raise UserError("learner, noise and lost belong to candidates of tables: leave them out for images")


def run(config: Config, context: Context) -> dict[str, Any]:
    check(config)
    pair = trained(config, context)
    found, outputs = _measure(config, pair)
    context.keep("outputs", **outputs)
    return {**significant(found, DIGITS), "num_classes": pair.num_classes, "skipped": pair.skipped}


def trained(config: Config, context: Context) -> Pair:
    """Q and the candidate, with what runs share."""
    return _of_tables(config, context) if config.data in tables() else _of_images(config, context)


def rehearsal(configs: Sequence[Config]) -> Rehearsal:
    """What the runs with these configs would do, for `run --rehearse`."""
    (first, *_) = configs
    if first.data in tables():
        raise UserError(f"{first.data} is a table, whose runs take seconds: --dry-run says what they cost")
    study, seeds = Study.of(first), len({config.seed for config in configs})
    source, target = (len(study.pictures(name).train) for name in (first.source, first.target))
    updates = [
        Training(
            config.candidate,
            config.candidate.epochs * (config.candidate.label_fraction * target + config.candidate.rehearsal * source),
        )
        for config in configs
    ]
    grid = ImageGrid(
        first.target, seeds, updates, len(configs), target, seeds, loss=first.loss(), settings=first.settings()
    )
    return image_rehearsal(study, grid)


def _of_tables(config: Config, context: Context) -> Pair:
    """Both models on the rows themselves."""
    study, (of_q, of_candidate) = TableStudy.of(config), parts(context, "source model", "candidate")
    source, target = study.domain(config.source), study.domain(config.target)
    q = study.source_model(source, context, of_q)
    generator = seeded("candidate", config.candidate.name, config.seed)
    update = updated(
        config.candidate,
        q,
        study.new_model(generator),
        target.train,
        source=source.train,
        columns=study.table.COLUMNS,
        generator=generator,
        checkpoint=of_candidate,
    )
    return Pair(
        q,
        _with_constant(update, config.candidate),
        sample(source.train),
        sample(target.train),
        {
            "source_val": sample(source.val),
            "source_test": sample(source.test),
            "target_val": sample(target.val),
            "target_test": sample(target.test),
        },
        _shift(config, source, target, context),
        identity,
        None,
        lambda _: {},
        len(study.table.CLASSES),
        {},
    )


def _with_constant(update: nn.Module, candidate: FineTune) -> nn.Module:
    return ConstantLogit(update, candidate.constant) if candidate.constant else update


def _of_images(config: Config, context: Context) -> Pair:
    """Both heads on the features that each of them sees."""
    study = Study.of(config, stopping=config.target if config.candidate.patience else None)
    of_q, of_candidate = parts(context, "source model", "candidate")
    source, target = study.domain(config.source), study.domain(config.target)
    q = study.source_model(source, context, of_q)
    of_q.drop()
    shift = _shift(config, source, target, context)
    models = models_at(study, config.candidate.depth, q, config.target, context)
    return _fine_tuned(config, study, models, shift, of_candidate)


def _shift(config: Config, source: Domain[Rows], target: Domain[Rows], context: Context) -> Shift:
    """Between the training samples; every candidate of a seed has the same."""
    x, y, settings = source.train.x.float(), target.train.x.float(), config.settings()
    key = {"source": tensor_digest(x), "target": tensor_digest(y), "settings": asdict(settings), "seed": config.seed}
    return context.shared(
        "shift",
        key,
        lambda: measure_shift(
            x.to(config.device), y.to(config.device), settings, generator=seeded("gate", config.seed)
        ),
        classes=(Shift, TransportEstimate, MMDEstimate, Settings),
    )


def _fine_tuned(config: Config, study: Study, models: Models[Data], shift: Shift, checkpoint: Keeper) -> Pair:
    """Train the candidate; what lies below the heads is run once."""
    candidate, source, target = config.candidate, models.source, models.target
    made = train(
        candidate,
        models.q,
        target.train,
        source=blind_harm(source.train, candidate.relabelled, into=0) if candidate.relabelled else source.train,
        val=models.stop if candidate.patience else None,
        backbone=study.backbone,
        generator=seeded("candidate", candidate.name, config.seed),
        device=config.device,
        checkpoint=checkpoint,
        compiled=config.compiled,
    ).model
    seen = side_by_side(models, made, device=config.device)
    return Pair(
        seen.q,
        _with_constant(seen.update, candidate),
        seen.source,
        seen.target,
        seen.held_out,
        shift,
        seen.q.features,
        (seen.q.features, seen.update.features),
        known_views(study, config.target, models.q, made, seen.held_out, config.loss(), config.settings()),
        len(study.dataset.classes),
        study.skipped(config.source, config.target),
    )


def _measure(config: Config, pair: Pair) -> tuple[dict[str, float], dict[str, NDArray[Any]]]:
    """Diagnostic, anchor terms, baselines and the true change; held-out outputs."""
    old, new, held_out = pair.q, pair.update, pair.held_out
    update = Update((old, new), config.loss(), config.settings(), pair.feature_map, pair.gradient_at)
    report = diagnose(
        old,
        new,
        pair.source,
        pair.target,
        source_val=held_out["source_val"],
        target_val=held_out["target_val"],
        anchor_test=held_out["source_test"],
        loss=config.loss(),
        feature_map=pair.feature_map,
        gradient_at=pair.gradient_at,
        settings=config.settings(),
        known=Known(views=pair.views(update), shift=pair.shift),
    )
    with torch.no_grad():
        logits = {name: (old(sample.x), new(sample.x)) for name, sample in held_out.items()}
    marginal = torch.bincount(labels(pair.source), minlength=pair.num_classes).double()
    seen = {
        "source": logits["source_val"][1],
        "target": logits["target_val"][1],
        "old_target": logits["target_val"][0],
        "target_labels": labels(held_out["target_val"]),
        "label_marginal": marginal / marginal.sum(),
    }
    found = {
        **row(report),
        "anchor_error_plug_in": report.evidence.anchor.error_plug_in.value,
        **label_free(seen),
        **_on_halves(*logits["source_test"], labels(held_out["source_test"]), seeded("halves", config.seed)),
        "floor": float("nan") if pair.shift.floor is None else pair.shift.floor.value,
        "anchor_error_before": error(old, held_out["source_test"]),
        "target_error_before": error(old, held_out["target_test"]),
        "target_error": error(new, held_out["target_test"]),
    }
    if config.data in tables():
        found["cbpe"] = cbpe(seen["target"], seen["target_labels"], seen["source"])
    return found, _outputs(logits) | {f"{name}_y": labels(sample).cpu().numpy() for name, sample in held_out.items()}


def _on_halves(old: Tensor, new: Tensor, y: Tensor, generator: torch.Generator) -> dict[str, float]:
    """The change of the error on two halves of the rows, the same for every update: how well one tells the other."""
    change = (ZeroOne()(new, y).double() - ZeroOne()(old, y).double()).cpu()
    first, second = change[torch.randperm(len(y), generator=generator)].tensor_split(2)
    return {"error_change_first": float(first.mean()), "error_change_second": float(second.mean())}


def _outputs(logits: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, NDArray[Any]]:
    """Logits ``[n, C]`` of Q and of the update by split: of the rows that scores look at as the scores see them.

    Those of test rows, which are many, are in half precision, with the predictions ``[n]`` beside them.
    """
    kept: dict[str, NDArray[Any]] = {}
    for name, outputs in logits.items():
        for model, z in zip(("q", "update"), outputs, strict=True):
            kept[f"{name}_{model}"] = (z.half() if name.endswith("_test") else z.float()).cpu().numpy()
            if name.endswith("_test"):
                kept[f"{name}_{model}_class"] = z.argmax(dim=1).to(torch.int16).cpu().numpy()
    return kept


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("gate")
