"""Active selection (`app:domainnet-active`): label 50 to 250 target images by policy, fine-tune, diagnose each round.

    python -m experiments data emoji                             # once, the stand-in's images
    python -m experiments run active --launcher local            # stand-in, cpu profile
    python -m experiments run active config=paper --launcher slurm --cluster gpu     # DomainNet on a GPU cluster

One run is a policy and a seed with all its rounds. A round trains the linear head alone, on cached features of images
that are not augmented; the paper augments them as in the source's training. Makes the tables `trace-domainnet-main`,
`trace-domainnet-combined`, `active-terms` and `active-ranks`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trace import diagnose
from trace.estimators.sinkhorn import SelfTransport, Solution, sinkhorn_floor
from trace.evidence import Known, Shift, measure_shift, shared_self
from trace.features import identity
from trace.selection import names, policy

from .engine.errors import UserError
from .engine.run import Context
from .engine.seeds import seeded
from .engine.shared import tensor_digest
from .pairs.measure import columns, row
from .pairs.settings import MeasureConfig
from .vision.batches import Rows
from .vision.classifier import Classifier
from .vision.finetune import TrainSpec, train
from .vision.study import Domain, Study, VisionConfig, check_data, error, sample


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
    """Epochs without a better target validation loss before the best model is taken; 0 trains all epochs."""
    development: bool = False
    """These rounds calibrate c_h and are never evaluated."""


def check(config: Config) -> None:
    """Refuse what cannot be run, and data that are not there."""
    if config.policy not in names():
        raise UserError(f"policy must be one of {', '.join(names())}, got {config.policy!r}")
    if config.batch < 1 or config.rounds < 1:
        raise UserError(f"batch is {config.batch} and rounds {config.rounds}: both must be at least 1")
    config.check_numbers()
    check_data(config, config.source, config.target)


def run(config: Config, context: Context) -> dict[str, Any]:
    check(config)
    study = Study.of(config)
    source, target = study.domain(config.source), study.domain(config.target)
    _check_pool(config, len(target.train))
    q = study.source_model(source, context)
    anchor, pool = SourceSide.of(config, source, context), target.train.x.float()
    labelled = torch.empty(0, dtype=torch.long)
    chosen_by = policy(config.policy)
    prepared = {} if chosen_by.prepare is None else {"prepared": chosen_by.prepare(anchor.x, pool)}
    rows = []
    for number in range(1, config.rounds + 1):
        generator = seeded("choose", config.policy, config.seed, number)
        batch = chosen_by.choose(anchor.x, pool, config.batch, chosen=labelled, generator=generator, **prepared).indices
        labelled = torch.cat([labelled, batch])
        distances = _distances(config, anchor, source, target.train.x[labelled], target.train.x[batch])
        rows.append(_round(config, q, source, target, labelled, distances) | {"floor": anchor.floor})
        context.log(number, **{name: float(value) for name, value in rows[-1].items()})
    return {
        "columns": columns(rows),
        "selected": labelled.tolist(),
        "num_classes": len(study.dataset.classes),
        "skipped": study.skipped(config.source, config.target),
    }


def _check_pool(config: Config, size: int) -> None:
    """Refuse before anything is trained what the last round could not pay for."""
    if config.batch * config.rounds > size:
        raise UserError(
            f"{config.rounds} rounds of {config.batch} labels need {config.batch * config.rounds} images, and the pool "
            f"of {config.target} has {size}: lower batch or rounds, or raise train_share"
        )


class SourceSide(NamedTuple):
    """The source's training features ``[n, k]``, with what no round changes."""

    x: Tensor
    self_transport: SelfTransport | None
    floor: float
    """Sinkhorn divergence between halves of it."""

    @classmethod
    def of(cls, config: Config, source: Domain[Rows], context: Context) -> SourceSide:
        """Computed once for all runs of a seed."""
        x, s = source.train.x.float(), config.settings()

        def measure() -> tuple[SelfTransport | None, float]:
            half = sinkhorn_floor(
                x,
                epsilon=s.epsilon,
                num_iters=s.num_iters,
                num_splits=1,
                generator=seeded("distance", "labelled", config.seed),
            )
            return shared_self(x, s), half.value

        key = {"rows": tensor_digest(x), "settings": asdict(s), "seed": config.seed}
        return cls(x, *context.shared("anchor", key, measure, classes=(SelfTransport, Solution)))


class RoundDistances(NamedTuple):
    """To the source's training features."""

    labelled: Shift
    """All labels so far."""
    batch: Shift
    """This round's labels alone."""
    held_out: Shift
    """As many held-out images of the source as there are labels: what no shift looks like at this size."""


def _distances(
    config: Config, anchor: SourceSide, source: Domain[Rows], labelled: Tensor, batch: Tensor
) -> RoundDistances:
    order = torch.randperm(len(source.test), generator=seeded("held out", config.seed))
    rows = {"labelled": labelled, "batch": batch, "held_out": source.test.x[order[: len(labelled)]]}
    return RoundDistances(
        **{
            name: measure_shift(
                anchor.x,
                x.float(),
                config.settings(),
                source_self=anchor.self_transport,
                floors=False,
                generator=seeded("distance", name, config.seed),
            )
            for name, x in rows.items()
        }
    )


def _round(
    config: Config,
    q: Classifier,
    source: Domain[Rows],
    target: Domain[Rows],
    labelled: Tensor,
    distances: RoundDistances,
) -> dict[str, float]:
    """Re-train Q~ from Q on all labels so far, and measure."""
    spec = TrainSpec(lr=config.lr, epochs=config.epochs, patience=config.patience)
    own = target.train.select(labelled)
    generator = seeded("round", config.policy, config.seed, len(labelled))
    new = train(spec, q, own, val=target.val, generator=generator, device=config.device).model.cpu()
    report = diagnose(
        q,
        new,
        sample(source.train),
        sample(own),
        source_val=sample(source.val),
        target_val=sample(target.val),
        anchor_test=sample(source.test),
        loss=config.loss(),
        feature_map=identity,
        gradient_at=(q.features, new.features),
        settings=config.settings(),
        known=Known(shift=distances.labelled),
    )
    return {
        "labeled": len(labelled),
        **row(report),
        "batch_transport": distances.batch.transport.value,
        "batch_mmd_squared": distances.batch.mmd.squared,
        "held_out_transport": distances.held_out.transport.value,
        "held_out_mmd_squared": distances.held_out.mmd.squared,
        "anchor_error_before": error(q, sample(source.test)),
        "target_error_before": error(q, sample(target.test)),
        "target_error": error(new, sample(target.test)),
    }


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("active")
