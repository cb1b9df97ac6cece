"""Anchor-aware training (`sec:conclusion`): fine-tune with a penalty on the anchor terms, against simpler ways.

    python -m experiments data emoji                             # once, the images of the second study
    python -m experiments run anchoring --launcher local         # both studies, two cores: about 2 minutes

One run is a study and a seed with every method at all its strengths. `moons_warp` is the synthetic world whose labels
travel, at severity 1; `images` the deployment gate's head on cached features, real to sketch. Makes the table and the
figure `anchoring`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy

from trace import Sample
from trace.estimators.anchor import anchor_terms
from trace.estimators.output_distance import output_distance
from trace.features import extract
from trace.losses import Loss, ZeroOne
from trace.training.anchor_penalty import KINDS, AnchorPenalty
from trace.worlds import world

from .engine.errors import UserError
from .engine.run import Context
from .engine.seeds import seeded
from .pairs.measure import Row, anchor_upper, columns
from .pairs.settings import LossConfig
from .pairs.train import ModelSpec, draw_source, draw_target, fit_sources, labels
from .vision.batches import Rows
from .vision.finetune import distillation
from .vision.study import Domain, Study, VisionConfig, check_data

MOMENTUM = 0.9
TEMPERATURE = 2.0
"""Of the distillation on the target, as in `experiments.vision.finetune`."""

WEIGHTED = (*KINDS, "rehearsal", "distillation")
"""Methods with a weight: 0 is the plain fine-tune, and the more the less it moves."""
SHARED = ("early_stop", "small_steps", "interpolation")
"""Trivial ways of moving less: a share of the epochs, of the step size, or of the way from Q's weights to Q~'s."""

STUDIES = ("moons_warp", "images")

DELTA = 0.05
"""How often the upper end of the anchor bound may fail."""

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


class Adaptation(NamedTuple):
    """Q with the anchor it was trained on, and the target that it is fine-tuned to."""

    old: nn.Module
    source: Parts
    target: Parts
    recipe: Recipe
    loss: Loss


class AdaptedModel(NamedTuple):
    """One Q~ and how it came about."""

    method: str
    strength: float
    """A weight, or a share for the trivial ways; plain is a share of 1."""
    model: nn.Module


def updates(
    case: Adaptation,
    strengths: dict[str, list[float]],
    *,
    order: Callable[[], Generator],
    batches: Callable[[], Generator],
) -> Iterator[AdaptedModel]:
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
            yield AdaptedModel("early_stop", share, copy.deepcopy(plain))
    yield AdaptedModel("plain", 1.0, plain)
    for share in strengths.get("interpolation", []):
        yield AdaptedModel("interpolation", share, interpolated(case.old, plain, share))
    for share in strengths.get("small_steps", []):
        *_, model = fine_tune(case, replace(case.recipe, lr=share * case.recipe.lr), generator=order())
        yield AdaptedModel("small_steps", share, model)
    for method in (name for name in WEIGHTED if name in strengths):
        for weight in strengths[method]:
            term = added(method, weight, case, batches())
            *_, model = fine_tune(case, steadied(case.recipe, weight), term=term, generator=order())
            yield AdaptedModel(method, weight, model)


def fine_tune(
    case: Adaptation, recipe: Recipe, *, term: Term | None = None, generator: Generator
) -> Iterator[nn.Module]:
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


def added(method: str, weight: float, case: Adaptation, generator: Generator) -> Term:
    """The term of a method that has a weight.

    The penalties look at the anchor's training inputs, rehearsal at their labels too, distillation at target inputs.
    """
    anchor, size = case.source.train, case.recipe.batch_size
    if method in KINDS:
        penalty = AnchorPenalty(
            case.old, anchor.x, kind=method, weight=weight, loss=case.loss, batch_size=size, generator=generator
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


ERROR = ZeroOne()
WEIGHTS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]
SHARES = [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9]


STRENGTHS = {
    **dict.fromkeys(WEIGHTED, WEIGHTS),
    "early_stop": SHARES,
    "interpolation": SHARES,
    "small_steps": [0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85],
}


@dataclass(frozen=True)
class Config(VisionConfig, LossConfig):
    study: str = "moons_warp"
    """moons_warp, whose keys are severity, n, test_size and model; or images, with all others."""
    severity: float = 1.0
    n: int = 2000
    test_size: int = 20_000
    model: ModelSpec = field(default_factory=lambda: ModelSpec(weight_decays=[1e-4]))
    """How Q is trained on moons_warp."""
    target: str = "sketch"
    recipes: dict[str, Recipe] = field(
        default_factory=lambda: {"moons_warp": Recipe(), "images": Recipe("sgd", 0.01, 20, 32, 0.0)}
    )
    """How each study fine-tunes; on images it is `plain-2` of the gate's controls."""
    strengths: dict[str, list[float]] = field(default_factory=STRENGTHS.copy)
    """Weights of the penalties, of rehearsal and of distillation; shares of the trivial ways of moving less."""


def check(config: Config) -> None:
    """Refuse a study that nobody knows, and data that are not there."""
    if config.study not in STUDIES:
        raise UserError(f"study must be one of {', '.join(STUDIES)}, got {config.study!r}")
    config.loss()
    if config.study == "images":
        check_data(config, config.source, config.target)


def run(config: Config, context: Context) -> dict[str, Any]:
    check(config)
    case = _moons(config) if config.study == "moons_warp" else _images(config, context)
    found = updates(
        case,
        config.strengths,
        order=lambda: seeded("anchoring order", config.seed),
        batches=lambda: seeded("anchoring batches", config.seed),
    )
    methods: list[str] = []
    rows: list[Row] = []
    old = _Seen.by(case.old, case)
    for number, update in enumerate(found):
        methods.append(update.method)
        rows.append({"strength": update.strength, **_measured(case, old, _Seen.by(update.model, case))})
        context.log(number, risk_change=rows[-1]["risk_change"])
    return {"columns": columns(rows), "methods": methods}


def _moons(config: Config) -> Adaptation:
    made = world("moons_warp", severity=config.severity)
    source, target = (draw(made, config.n, config.seed) for draw in (draw_source, draw_target))
    old = fit_sources(config.model, {config.seed: source}).stack.member(0).requires_grad_(False)
    tests = (
        made.source(config.test_size, generator=seeded("test")),
        made.target(config.test_size, generator=seeded("target test")),
    )
    return Adaptation(
        old, Parts(*source, tests[0]), Parts(*target, tests[1]), config.recipes["moons_warp"], config.loss()
    )


def _images(config: Config, context: Context) -> Adaptation:
    study = Study.of(config)
    source, target = study.domain(config.source), study.domain(config.target)
    old = study.source_model(source, context).to(config.device)
    return Adaptation(
        old, _parts(source, config.device), _parts(target, config.device), config.recipes["images"], config.loss()
    )


def _parts(domain: Domain[Rows], device: str) -> Parts:
    return Parts(*(Sample(rows.x.float().to(device), rows.y.to(device)) for rows in domain))


class _Seen(NamedTuple):
    """A model's logits on everything that is measured."""

    anchor: Tensor
    anchor_held_out: Tensor
    target: Tensor
    target_val: Tensor
    target_test: Tensor

    @classmethod
    def by(cls, model: nn.Module, case: Adaptation) -> _Seen:
        parts = (case.source.test, case.source.val, *case.target)
        return cls(*(extract(model, part.x) for part in parts))


def _measured(case: Adaptation, old: _Seen, new: _Seen) -> Row:
    """The change on the anchor's test sample, the target's errors, and the terms on held-out anchor inputs."""
    y = labels(case.source.test)
    terms = anchor_terms(old.anchor_held_out, new.anchor_held_out, case.loss)
    return {
        "risk_change": _mean(case.loss, new.anchor, y) - _mean(case.loss, old.anchor, y),
        "error_change": _mean(ERROR, new.anchor, y) - _mean(ERROR, old.anchor, y),
        "anchor_error_before": _mean(ERROR, old.anchor, y),
        "target_error_before": _mean(ERROR, old.target_test, labels(case.target.test)),
        "target_error": _mean(ERROR, new.target_test, labels(case.target.test)),
        "target_val_error": _mean(ERROR, new.target_val, labels(case.target.val)),
        "output_distance": output_distance(old.target, new.target).value,
        "anchor_worst_label": terms.worst_label.value,
        "anchor_upper": anchor_upper(terms, DELTA),
        "anchor_lipschitz": terms.lipschitz.value,
        "anchor_disagreement": terms.disagreement.value,
        "anchor_plug_in": terms.plug_in.value,
    }


def _mean(loss: Loss, logits: Tensor, y: Tensor) -> float:
    return float(loss(logits, y).cpu().double().mean())


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("anchoring")
