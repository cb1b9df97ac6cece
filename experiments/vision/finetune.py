"""Fine-tuning on cached features, cached maps or images: from Q to Q~.

The objective of a batch is ``CE(f(x), y) + distill T^2 KL(softmax(f_Q(x) / T) | softmax(f(x) / T))``, the second term
over its target inputs (learning without forgetting). Every draw comes from one generator, and a checkpoint after each
epoch holds its state: a training that was killed goes on to the same bits on a CPU.

A GPU computes in bfloat16 where it has that. One whose memory is short takes a batch in two halves whose gradients are
added up, which is the same step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ..engine.config import added
from ..engine.errors import UserError
from .backbone import Backbone
from .batches import Data, Pictures, Rows, in_order
from .classifier import DEPTHS, Classifier, Depth, at_depth
from .precision import mixed_precision, training_dtype
from .resume import Keeper, fingerprint, restore, snapshot
from .samples import share

Epoch = dict[str, float]
"""``epoch``, ``loss`` and ``accuracy`` in training; ``val_loss`` and ``val_accuracy`` where there is a val."""


@dataclass(frozen=True)
class TrainSpec:
    """How a model is trained; the defaults suit unit features of about 1,000 images."""

    depth: Depth = "head"
    """What is trained: ``head``: the linear classifier, on cached features; ``block``: and the last block, on cached
    maps; ``full``: the whole network, on augmented images."""
    lr: float = 0.3
    epochs: int = 5
    momentum: float = added(0.9)
    """Of SGD."""
    weight_decay: float = 0.0
    batch_size: int = added(32)
    label_fraction: float = 1.0
    """Share of the target's labels that is used, equal in every class."""
    rehearsal: float = 0.0
    """Share of the source sample that is trained on beside the target."""
    distill: float = 0.0
    """Weight of staying near Q's logits on the target inputs."""
    temperature: float = added(2.0)
    """T of the distillation."""
    patience: int = added(0)
    """Epochs without a lower validation loss before the best model is returned; 0: all epochs, the last model."""

    def __post_init__(self) -> None:
        if self.depth not in DEPTHS:
            raise UserError(f"depth {self.depth!r} is unknown: take one of {', '.join(DEPTHS)}")
        for name in ("lr", "epochs", "batch_size", "temperature"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} is {getattr(self, name)}: it must be positive")
        for name in ("momentum", "weight_decay", "distill", "patience"):
            if not getattr(self, name) >= 0:
                raise UserError(f"{name} is {getattr(self, name)}: it must not be negative")
        if not 0 < self.label_fraction <= 1 or not 0 <= self.rehearsal <= 1:
            raise UserError(
                f"label_fraction {self.label_fraction} must be in (0, 1] and rehearsal {self.rehearsal} in [0, 1]"
            )


class Trained(NamedTuple):
    """A frozen model on its device in eval mode, with how it came about."""

    model: Classifier
    history: list[Epoch]
    best_epoch: int
    """Whose weights the model has, from 1."""


def train(
    spec: TrainSpec,
    start: Classifier,
    target: Data,
    *,
    source: Data | None = None,
    val: Data | None = None,
    backbone: Backbone | None = None,
    generator: Generator,
    device: str | torch.device = "cpu",
    checkpoint: Keeper | None = None,
    compiled: bool = False,
) -> Trained:
    """Train a copy of ``start`` on the target's labels.

    Args:
        start: Q, or a new classifier to train Q itself; at depth ``head`` or the spec's own.
        target, source, val: inputs of the spec's depth: `Rows` of cached features or maps, `Pictures` for ``full``.
            The source is what rehearsal draws from; val is the target's, for the early stop.
        backbone: for a depth beyond the start's.
        generator: on the CPU; decides which labels and source samples are used, their order, and augmentations.
        checkpoint: is given the state after every epoch, and gives it back to an attempt that follows.
        compiled: train through `torch.compile`.

    Raises:
        UserError: for a spec that asks for a sample that is missing, a checkpoint of another training, a loss that is
            no longer finite, or a device with too little memory for half a batch.
    """
    _check_samples(spec, source, val)
    model = at_depth(start, spec.depth, backbone).to(device)
    teacher = at_depth(start, spec.depth, backbone).to(device).requires_grad_(False) if spec.distill > 0 else None
    origin = fingerprint(spec, start, generator, target.y)
    data, num_target = _training_set(spec, target, source, generator)
    optimiser = torch.optim.SGD(model.parameters(), lr=spec.lr, momentum=spec.momentum, weight_decay=spec.weight_decay)
    state = None if checkpoint is None else checkpoint.load()
    history, best = ([], {}) if state is None else restore(state, origin, model, optimiser, generator)
    step = TrainingStep(spec, torch.compile(model) if compiled else model, teacher, optimiser)
    while len(history) < spec.epochs and not _stopped(spec, history):
        epoch = _one_epoch(spec, step, data, num_target, generator, device)
        if val is not None:
            epoch |= _validated(model, val, device)
        history.append({"epoch": len(history) + 1, **epoch})
        if spec.patience > 0 and best_epoch(history) == len(history):
            best = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        if checkpoint is not None:
            checkpoint.save(snapshot(origin, model, optimiser, generator, history, best))
    if spec.patience > 0:
        model.load_state_dict(best)
    return Trained(model.requires_grad_(False), history, best_epoch(history) if spec.patience > 0 else len(history))


def best_epoch(history: list[Epoch]) -> int:
    """The first epoch with the lowest validation loss, from 1."""
    return 1 + min(range(len(history)), key=lambda i: history[i]["val_loss"])


def predict(model: nn.Module, data: Rows | Pictures, *, batch_size: int = 256, device: str | torch.device) -> Tensor:
    """Logits ``[n, C]`` of all rows in their order, on the CPU."""
    with torch.inference_mode():
        batches = data.stream(in_order(len(data), batch_size))
        return torch.cat([model(x.to(device, non_blocking=True)) for x in batches]).cpu()


def _check_samples(spec: TrainSpec, source: Rows | Pictures | None, val: Rows | Pictures | None) -> None:
    if spec.rehearsal > 0 and source is None:
        raise UserError(f"rehearsal={spec.rehearsal} needs source samples: pass source, or set rehearsal=0")
    if spec.patience > 0 and val is None:
        raise UserError(f"patience={spec.patience} needs a validation split: pass val, or set patience=0")


def _training_set(spec: TrainSpec, target: Data, source: Data | None, generator: Generator) -> tuple[Data, int]:
    """What is trained on, target rows first, then rehearsed source rows; and how many are the target's."""
    labelled = target if spec.label_fraction == 1 else target.select(share(target.y, spec.label_fraction, generator))
    if source is None or spec.rehearsal == 0:
        return labelled, len(labelled)
    rehearsed = source if spec.rehearsal == 1 else source.select(share(source.y, spec.rehearsal, generator))
    return labelled.joined(rehearsed), len(labelled)


def _one_epoch(
    spec: TrainSpec,
    step: TrainingStep,
    data: Rows | Pictures,
    num_target: int,
    generator: Generator,
    device: str | torch.device,
) -> Epoch:
    """One pass over the training set in a new order; mean loss and accuracy of the models along the way.

    What is to be reported stays on the device until the end, so that no step waits for it.
    """
    n = len(data)
    batches = list(torch.randperm(n, generator=generator).split(spec.batch_size))
    losses, hits = [], []
    for rows, x in zip(batches, data.stream(batches, generator), strict=True):
        x, y = x.to(device, non_blocking=True), data.y[rows].to(device, non_blocking=True)
        loss, right = step(x, y, rows < num_target)
        losses.append(loss)
        hits.append(right)
    total = sum(loss * len(rows) / n for loss, rows in zip(torch.stack(losses).tolist(), batches, strict=True))
    if not math.isfinite(total):
        raise UserError(f"the training loss is not finite at depth {spec.depth}: lower lr={spec.lr}")
    return {"loss": total, "accuracy": sum(count / n for count in torch.stack(hits).tolist())}


class TrainingStep:
    """One step of the optimiser on a batch, in one part, or in halves since the device first ran out of memory."""

    def __init__(
        self,
        spec: TrainSpec,
        model: Callable[[Tensor], Tensor],
        teacher: Classifier | None,
        optimiser: torch.optim.Optimizer,
    ) -> None:
        self.spec, self.model, self.teacher, self.optimiser = spec, model, teacher, optimiser
        self.num_parts = 1

    def __call__(self, x: Tensor, y: Tensor, ours: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of the batch and how many predictions are right, on the device; ``ours [b]`` marks target rows."""
        try:
            return self._step(x, y, ours)
        except torch.OutOfMemoryError as error:
            if self.num_parts > 1 or len(x) == 1:
                raise UserError(
                    f"the device has too little memory for {-(-len(x) // self.num_parts)} inputs {list(x.shape[1:])} "
                    f"at depth {self.spec.depth}: lower batch_size={self.spec.batch_size} or size, or take a device "
                    "with more"
                ) from error
        print(f"the device ran out of memory: batches of {self.spec.batch_size} go on in two halves")
        self.num_parts = 2
        if x.device.type == "cuda":
            torch.cuda.empty_cache()
        return self(x, y, ours)

    def _step(self, x: Tensor, y: Tensor, ours: Tensor) -> tuple[Tensor, Tensor]:
        self.optimiser.zero_grad(set_to_none=True)
        losses, hits = [], []
        for part in torch.arange(len(x)).chunk(self.num_parts):
            rows = slice(int(part[0]), int(part[-1]) + 1)
            with mixed_precision(x.device, training_dtype(x.device)):
                logits = self.model(x[rows]).float()
                loss = F.cross_entropy(logits, y[rows]) * (len(part) / len(x))
                if self.teacher is not None and bool(ours[rows].any()):
                    on_target = ours[rows].to(x.device)
                    weight = self.spec.distill * (int(ours[rows].sum()) / int(ours.sum()))
                    kept = distillation(self.teacher(x[rows][on_target]), logits[on_target], self.spec.temperature)
                    loss = loss + weight * kept
            loss.backward()
            losses.append(loss.detach())
            hits.append((logits.argmax(dim=1) == y[rows]).sum())
        self.optimiser.step()
        return torch.stack(losses).sum(), torch.stack(hits).sum()


def distillation(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """``T^2 KL(softmax(z_Q / T) | softmax(z / T))``, mean over rows of ``[n, C]``."""
    p, q = (F.log_softmax(z / temperature, dim=1) for z in (teacher, student))
    return temperature**2 * F.kl_div(q, p, reduction="batchmean", log_target=True)


def _validated(model: Classifier, val: Rows | Pictures, device: str | torch.device) -> Epoch:
    logits = predict(model, val, device=device)
    return {
        "val_loss": float(F.cross_entropy(logits, val.y)),
        "val_accuracy": float((logits.argmax(dim=1) == val.y).double().mean()),
    }


def _stopped(spec: TrainSpec, history: list[Epoch]) -> bool:
    return spec.patience > 0 and bool(history) and len(history) - best_epoch(history) >= spec.patience
