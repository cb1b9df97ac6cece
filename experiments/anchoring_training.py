"""Fine-tuning with something added to the task's loss, and the ways of moving less that need nothing added."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from trace import Sample
from trace.anchor_penalty import KINDS, AnchorPenalty

from .cells import labels
from .errors import UserError
from .pairs import LOSS
from .vision.finetune import distillation

MOMENTUM = 0.9
TEMPERATURE = 2.0
"""Of the distillation on the target, as in `experiments.vision.finetune`."""

WEIGHTED = (*KINDS, "rehearsal", "distillation")
"""Methods with a weight: 0 is the plain fine-tune, and the more the less it moves."""
SHARED = ("early_stop", "small_steps", "interpolation")
"""Trivial ways of moving less: a share of the epochs, of the step size, or of the way from Q's weights to Q~'s."""

Term = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""What is added to the loss of a batch, weight included: of the model in training, the batch's inputs and logits."""


@dataclass(frozen=True)
class Recipe:
    """A plain fine-tune on the target's labels."""

    optimiser: str = "adam"
    """adam, or sgd with momentum 0.9."""
    lr: float = 1e-3
    """A method's weight w divides it by 1 + w under sgd, whose steps would grow with the loss; adam's do not."""
    epochs: int = 20
    batch_size: int = 256
    """Of the target, and of the anchor where a method looks at it."""
    weight_decay: float = 1e-4


class Parts(NamedTuple):
    """The labelled samples of one domain."""

    train: Sample
    val: Sample
    test: Sample


class Case(NamedTuple):
    """Q with the anchor it was trained on, and the target that it is fine-tuned to."""

    old: nn.Module
    source: Parts
    target: Parts
    recipe: Recipe


class Update(NamedTuple):
    """One Q~ and how it came about."""

    method: str
    strength: float
    """A weight, or a share for the trivial ways; plain is a share of 1."""
    model: nn.Module


def updates(
    case: Case, strengths: dict[str, list[float]], *, order: Callable[[], Generator], batches: Callable[[], Generator]
) -> Iterator[Update]:
    """Every method at each of its strengths; all of them see the target in the same order.

    Args:
        order, batches: give a generator for the order of the target's samples, and one for the anchor's batches.
    """
    unknown = [name for name in strengths if name not in (*WEIGHTED, *SHARED)]
    if unknown:
        raise UserError(f"there is no method {unknown[0]!r}: take some of {', '.join((*WEIGHTED, *SHARED))}")
    stops: dict[int, list[float]] = {}
    for share in strengths.get("early_stop", []):
        stops.setdefault(max(1, round(share * case.recipe.epochs)), []).append(share)
    plain = case.old
    for epoch, plain in enumerate(fine_tune(case, case.recipe, generator=order()), start=1):
        for share in stops.get(epoch, []):
            yield Update("early_stop", share, copy.deepcopy(plain))
    yield Update("plain", 1.0, plain)
    for share in strengths.get("interpolation", []):
        yield Update("interpolation", share, interpolated(case.old, plain, share))
    for share in strengths.get("small_steps", []):
        *_, model = fine_tune(case, replace(case.recipe, lr=share * case.recipe.lr), generator=order())
        yield Update("small_steps", share, model)
    for method in (name for name in WEIGHTED if name in strengths):
        for weight in strengths[method]:
            term = added(method, weight, case, batches())
            *_, model = fine_tune(case, steadied(case.recipe, weight), term=term, generator=order())
            yield Update(method, weight, model)


def fine_tune(case: Case, recipe: Recipe, *, term: Term | None = None, generator: Generator) -> Iterator[nn.Module]:
    """Train a copy of Q on the target's labels; it is given out after each epoch and trained on afterwards."""
    model = copy.deepcopy(case.old).requires_grad_(True)
    optimiser = _optimiser(recipe, model)
    x_all, y_all = case.target.train.x, labels(case.target.train)
    for epoch in range(recipe.epochs):
        for rows in torch.randperm(len(x_all), generator=generator).split(recipe.batch_size):
            x = x_all[rows]
            logits = model(x)
            loss = cross_entropy(logits, y_all[rows])
            if term is not None:
                loss = loss + term(model, x, logits)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        if not loss.detach().isfinite():
            raise UserError(f"the training loss is not finite after epoch {epoch + 1}: lower lr={recipe.lr}")
        yield model


def steadied(recipe: Recipe, weight: float) -> Recipe:
    """The recipe for a loss that is ``1 + weight`` times as steep."""
    return replace(recipe, lr=recipe.lr / (1 + weight)) if recipe.optimiser == "sgd" else recipe


def added(method: str, weight: float, case: Case, generator: Generator) -> Term:
    """The term of a method that has a weight.

    The penalties look at the anchor's training inputs, rehearsal at their labels too, distillation at target inputs.
    """
    anchor, size = case.source.train, case.recipe.batch_size
    if method in KINDS:
        penalty = AnchorPenalty(
            case.old, anchor.x, kind=method, weight=weight, loss=LOSS, batch_size=size, generator=generator
        )
        return lambda model, _x, _logits: penalty(model)
    if method == "rehearsal":

        def rehearsal(model: nn.Module, _x: Tensor, _logits: Tensor) -> Tensor:
            rows = torch.randperm(len(anchor.x), generator=generator)[:size]
            return weight * cross_entropy(model(anchor.x[rows]), labels(anchor)[rows])

        return rehearsal

    def distilled(_model: nn.Module, x: Tensor, logits: Tensor) -> Tensor:
        with torch.no_grad():
            teacher = case.old(x)
        return weight * distillation(teacher, logits, TEMPERATURE)

    return distilled


def interpolated(old: nn.Module, new: nn.Module, share: float) -> nn.Module:
    """The model whose weights lie a share of the way from the old ones to the new ones."""
    between = copy.deepcopy(new)
    ends = old.state_dict(), new.state_dict()
    between.load_state_dict({name: torch.lerp(value, ends[1][name], share) for name, value in ends[0].items()})
    return between


def _optimiser(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    if recipe.optimiser == "adam":
        return torch.optim.Adam(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    if recipe.optimiser == "sgd":
        return torch.optim.SGD(model.parameters(), recipe.lr, MOMENTUM, weight_decay=recipe.weight_decay)
    raise UserError(f"optimiser must be adam or sgd, got {recipe.optimiser!r}")
