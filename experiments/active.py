"""Active selection (`app:domainnet-active`): label 50 to 250 target images by policy, fine-tune, diagnose each round.

    python -m experiments data emoji                             # once, the stand-in's images
    python -m experiments run active --launcher local            # stand-in, cpu profile
    python -m experiments run active config=paper --launcher slurm --cluster gpu     # DomainNet on a GPU cluster

One run is a policy and a seed with all its rounds. A round trains the linear head alone, on cached features, or with
``depth=full`` the whole network, on images augmented as in the source's training, as the paper does. Makes the tables
`trace-domainnet-main`, `trace-domainnet-combined`, `active-terms` and `active-ranks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from trace import diagnose
from trace.estimators.sinkhorn import SelfTransport, Solution
from trace.evidence import Known, Shift, Update, measure_shift
from trace.features import FeatureMap, identity
from trace.hardware import wide
from trace.selection import names, policy

from .engine.errors import UserError
from .engine.rehearsal import Rehearsal, Stage, growing
from .engine.run import Context
from .engine.seeds import seeded
from .engine.shared import tensor_digest
from .pairs.measure import SourceFeatures, columns, row, source_features
from .pairs.settings import MeasureConfig
from .vision.batches import Rows
from .vision.classifier import Classifier, Depth
from .vision.finetune import TrainSpec, train
from .vision.rehearsal import ImageGrid, Training, image_rehearsal
from .vision.resume import Keeper, parts
from .vision.study import Domain, Study, VisionConfig, check_data, error, sample
from .vision.updates import Models, SideBySide, known_views, models_at, side_by_side

METRICS_VERSION = 2
"""Since constants under all labels, certified ones and held-out target rows are kept."""


@dataclass(frozen=True)
class Config(VisionConfig, MeasureConfig):
    target: str = "painting"
    policy: str = "w1min"
    """A file of trace/selection: w1min, mmdmin, random."""
    batch: int = 50
    """Labels that each round adds."""
    rounds: int = 5
    lr: float = 3e-4
    epochs: int = 5
    patience: int = 0
    """Epochs without a better loss before the best model is taken, on target validation rows that no term reads; 0
    trains all epochs."""
    depth: Depth = field(default="head", metadata={"added": "head"})
    """What a round trains: head, block or full."""
    development: bool = False
    """These rounds calibrate c_h and are never evaluated."""


def check(config: Config) -> None:
    """Refuse what cannot be run, and data that are not there."""
    if config.policy not in names():
        raise UserError(f"policy must be one of {', '.join(names())}, got {config.policy!r}")
    if config.batch < 1 or config.rounds < 1:
        raise UserError(f"batch is {config.batch} and rounds {config.rounds}: both must be at least 1")
    config.check_numbers()
    _spec(config)
    config.check_depth(config.depth)
    check_data(config, config.source, config.target)


def run(config: Config, context: Context) -> dict[str, Any]:
    check(config)
    study = Study.of(config, stopping=config.target if config.patience else None)
    of_q, of_rounds, of_training = parts(context, "source model", "rounds", "training")
    source, target = study.domain(config.source), study.domain(config.target)
    _check_pool(config, len(target.train))
    q = study.source_model(source, context, of_q).to(config.device)
    of_q.drop()
    models = models_at(study, config.depth, q, config.target, context)
    anchor, pool = _anchor(config, source, context), target.train.x.float().to(config.device)
    before = of_rounds.load() or {"rows": [], "labelled": []}
    rows, labelled = list(before["rows"]), torch.tensor(before["labelled"], dtype=torch.long)
    chosen_by = policy(config.policy)
    prepared = {} if chosen_by.prepare is None else {"prepared": chosen_by.prepare(anchor.u, pool)}
    for number in range(len(rows) + 1, config.rounds + 1):
        generator = seeded("choose", config.policy, config.seed, number)
        chosen = chosen_by.choose(anchor.u, pool, config.batch, chosen=labelled, generator=generator, **prepared)
        batch = chosen.indices.cpu()
        labelled = torch.cat([labelled, batch])
        distances = _distances(config, anchor, source, target.train.x[labelled], target.train.x[batch])
        rows.append(_round(config, study, models, labelled, distances, of_training) | {"floor": anchor.floor})
        context.log(number, **{name: float(value) for name, value in rows[-1].items()})
        of_training.drop()
        of_rounds.save({"rows": rows, "labelled": labelled.tolist()})
    return {
        "columns": columns(rows),
        "selected": labelled.tolist(),
        "num_classes": len(study.dataset.classes),
        "skipped": study.skipped(config.source, config.target),
    }


def rehearsal(configs: Sequence[Config]) -> Rehearsal:
    """What the runs with these configs would do, for `run --rehearse`."""
    (first, *_) = configs
    study, seeds = Study.of(first), len({config.seed for config in configs})
    source, pool = (len(study.pictures(name).train) for name in (first.source, first.target))
    rounds = [
        Training(_spec(config), config.epochs * config.batch * number)
        for config in configs
        for number in range(1, config.rounds + 1)
    ]
    labels = first.batch * first.rounds
    grid = ImageGrid(
        first.target, seeds, rounds, len(configs), labels, seeds, loss=first.loss(), settings=first.settings()
    )

    def choice(name: str) -> Stage:
        picks = sum(config.rounds for config in configs if config.policy == name)
        return growing(f"selection, {name}", max(source, pool), picks, lambda n: _chosen(study, name, n, first.batch))

    choices = [choice(name) for name in sorted({config.policy for config in configs})]
    per_round = len(RoundDistances._fields) * len(rounds)
    return image_rehearsal(
        study, grid, [growing("distances of rounds", source, per_round, lambda n: _apart(study, first, n)), *choices]
    )


def _apart(study: Study, config: Config, n: int) -> object:
    """The shift between ``n`` rows and as many as the last round has labels, with a self-transport that is known."""
    x = normalize(torch.randn(n, study.backbone.dim, generator=seeded("rehearsal"))).to(config.device)
    weights = torch.full((n,), 1 / n, dtype=wide(x.device), device=x.device)
    stand_in = SelfTransport(Solution(0.0, 0.0, 0.0, 0, True, weights, weights), config.epsilon, x, weights)
    labelled = x[: config.batch * config.rounds].flip(1)
    return measure_shift(
        x, labelled, config.settings(), source_self=stand_in, floors=False, generator=seeded("rehearsal", n)
    )


def _chosen(study: Study, name: str, n: int, count: int) -> object:
    """A batch out of ``n`` rows, by what a policy prepares once a run too."""
    x = normalize(torch.randn(n, study.backbone.dim, generator=seeded("rehearsal"))).to(study.config.device)
    return policy(name).choose(x, x.flip(1), min(count, n), generator=seeded("rehearsal", name))


def _check_pool(config: Config, size: int) -> None:
    """Refuse before anything is trained what the last round could not pay for."""
    if config.batch * config.rounds > size:
        raise UserError(
            f"{config.rounds} rounds of {config.batch} labels need {config.batch * config.rounds} images, and the pool "
            f"of {config.target} has {size}: lower batch or rounds, or raise train_share"
        )


def _anchor(config: Config, source: Domain[Rows], context: Context) -> SourceFeatures:
    """The source's training features with what no round changes, computed once for all runs of a seed."""
    x, s = source.train.x.float(), config.settings()
    key = {"rows": tensor_digest(x), "settings": asdict(s), "seed": config.seed}
    there = x.to(config.device)

    def measured() -> tuple[SelfTransport | None, float]:
        found = source_features(there, s, seeded("distance", "labelled", config.seed))
        return None if found.self_transport is None else found.self_transport.to("cpu"), found.floor

    kept, floor = context.shared("anchor", key, measured, classes=(SelfTransport, Solution))
    return SourceFeatures(there, None if kept is None else kept.to(config.device), floor)


class RoundDistances(NamedTuple):
    """To the source's training features."""

    labelled: Shift
    """All labels so far."""
    batch: Shift
    """This round's labels alone."""
    held_out: Shift
    """As many held-out images of the source as there are labels: what no shift looks like at this size."""


def _distances(
    config: Config, anchor: SourceFeatures, source: Domain[Rows], labelled: Tensor, batch: Tensor
) -> RoundDistances:
    order = torch.randperm(len(source.test), generator=seeded("held out", config.seed))
    rows = {"labelled": labelled, "batch": batch, "held_out": source.test.x[order[: len(labelled)]]}
    return RoundDistances(
        **{
            name: measure_shift(
                anchor.u,
                x.float().to(config.device),
                config.settings(),
                source_self=anchor.self_transport,
                floors=False,
                generator=seeded("distance", name, config.seed),
            )
            for name, x in rows.items()
        }
    )


def _spec(config: Config) -> TrainSpec:
    return TrainSpec(depth=config.depth, lr=config.lr, epochs=config.epochs, patience=config.patience)


def _seen(models: Models[Any], new: Classifier, labelled: Tensor, device: str) -> SideBySide:
    """Both models on the rows that a round measures; the target's are those labelled so far."""
    source, target = models.source, models.target._replace(train=models.target.train.select(labelled))
    if models.q.depth != "head":
        view = models.target_view._replace(train=models.target_view.train[labelled])
        return side_by_side(models._replace(target=target, target_view=view), new, device=device)
    here = partial(sample, device=device)
    held_out = {
        "source_val": here(source.val),
        "source_test": here(source.test),
        "target_val": here(target.val),
        "target_test": here(target.test),
    }
    return SideBySide(models.q, new, here(source.train), here(target.train), held_out)


def _round(
    config: Config,
    study: Study,
    models: Models[Any],
    labelled: Tensor,
    distances: RoundDistances,
    checkpoint: Keeper,
) -> dict[str, float]:
    """Re-train Q~ from Q on all labels so far, and measure."""
    trained = train(
        _spec(config),
        models.q,
        models.target.train.select(labelled),
        val=models.stop,
        backbone=study.backbone,
        generator=seeded("round", config.policy, config.seed, len(labelled)),
        device=config.device,
        checkpoint=checkpoint,
        compiled=config.compiled,
    ).model
    seen = _seen(models, trained, labelled, config.device)
    loss, settings, held_out = config.loss(), config.settings(), seen.held_out
    q, new, at = seen.q, seen.update, (seen.q.features, seen.update.features)
    feature_map: FeatureMap = identity if config.depth == "head" else seen.q.features
    views = known_views(study, config.target, models.q, trained, held_out, loss, settings)
    report = diagnose(
        q,
        new,
        seen.source,
        seen.target,
        source_val=held_out["source_val"],
        target_val=held_out["target_val"],
        anchor_test=held_out["source_test"],
        loss=loss,
        feature_map=feature_map,
        gradient_at=at,
        settings=settings,
        known=Known(views=views(Update((q, new), loss, settings, feature_map, at)), shift=distances.labelled),
    )
    return {
        "labeled": len(labelled),
        **row(report),
        "batch_transport": distances.batch.transport.value,
        "batch_mmd_squared": distances.batch.mmd.squared,
        "held_out_transport": distances.held_out.transport.value,
        "held_out_mmd_squared": distances.held_out.mmd.squared,
        "anchor_error_before": error(q, held_out["source_test"]),
        "target_error_before": error(q, held_out["target_test"]),
        "target_error": error(new, held_out["target_test"]),
    }


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("active")
