"""A cell of the synthetic experiments: all pairs (Q, Q~) of one world and one pair of sample sizes, trained as stacks.

Every draw has a generator of its own, seeded by what it is for, so a pair is the same whatever else its cell holds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trace import Sample, stratified_split
from trace.features import FeatureMap, identity, l2_normalised
from trace.training.fit import Progress, fit, fit_logistic
from trace.training.stack import Stack
from trace.worlds import ShiftWorld, num_classes

from ..engine.errors import UserError
from ..engine.seeds import seeded

BATCH_SIZE = 256
GROUP = 66
"""Members that train as one stack: larger ones leave the cache, and are slower."""


@dataclass(frozen=True)
class ModelSpec:
    """How Q and Q~ are built and trained."""

    name: str = "mlp"
    """``logistic`` is fitted to convergence; anything else is a perceptron trained with Adam."""
    hidden: list[int] = field(default_factory=lambda: [64, 64])
    activation: str = "tanh"
    features: str = "penultimate"
    """h: ``penultimate`` is Q's last hidden layer, l2-normalised; ``identity`` the inputs."""
    weight_decays: list[float] = field(default_factory=lambda: [0.0, 1e-4, 1e-3])
    lr: float = 1e-2
    epochs: int = 20
    finetune_lr: float = 1e-3
    finetune_epochs: int = 20
    """Q~ starts from Q and trains this long; 0: Q~ is trained like Q, from the same first weights."""

    @property
    def logistic(self) -> bool:
        return self.name == "logistic"


PROTOCOLS = {
    "blobs_shift": [
        ModelSpec("logistic", [], "relu", "identity", [1e-6, 1e-5, 1e-4], 0.0, 0, 0.0, 0),
        ModelSpec("mlp", [32], "relu", "identity", finetune_epochs=0),
    ],
}
"""What is trained on a world; on all others, `ModelSpec` with its defaults."""


def protocol(world: str) -> list[ModelSpec]:
    return PROTOCOLS.get(world, [ModelSpec()])


class Member(NamedTuple):
    """One pair of a cell."""

    severity: float
    weight_decay: float
    seed: int
    finetune_lr: float


class Split(NamedTuple):
    train: Sample
    val: Sample


def draw_source(world: ShiftWorld, n: int, seed: int) -> Split:
    """S and its validation split V (``app:common-impl``: 15%, stratified)."""
    sample = check_classes(world, world.source(n, generator=seeded("base", seed)))
    return Split(*stratified_split(sample, generator=seeded("source split", seed)))


def draw_target(world: ShiftWorld, n: int, seed: int, *, shared: bool = False) -> Split:
    """S~ and V~; ``shared`` moves the very points that the source drew, else they are drawn afresh."""
    base = ("base", seed) if shared else ("target", seed, world.severity)
    sample = check_classes(world, world.target(n, generator=seeded(*base)))
    return Split(*stratified_split(sample, generator=seeded("target split", seed)))


def members(severities: Iterable[float], spec: ModelSpec, seeds: Iterable[int]) -> list[Member]:
    return [
        Member(severity, decay, seed, spec.finetune_lr)
        for severity in severities
        for decay in spec.weight_decays
        for seed in seeds
    ]


class Sources(NamedTuple):
    """The source models of a cell: member ``position[decay, seed]`` of the stack."""

    stack: Stack
    position: dict[tuple[float, int], int]


def fit_sources(
    spec: ModelSpec, sources: dict[int, Split], *, classes: int = 2, progress: Progress | None = None
) -> Sources:
    """Q for every weight decay and seed, with one output a class."""
    keys = [(decay, seed) for decay in spec.weight_decays for seed in sources]
    stack = _trained(
        spec,
        _first(spec, sources, [seed for _, seed in keys], classes),
        [sources[seed].train for _, seed in keys],
        [(decay, spec.lr, ("order", seed)) for decay, seed in keys],
        spec.epochs,
        progress,
    )
    return Sources(stack, {key: i for i, key in enumerate(keys)})


def fit_updates(
    spec: ModelSpec,
    sources: Sources,
    targets: dict[tuple[float, int], Split],
    pairs: Sequence[Member],
    progress: Progress | None = None,
) -> Stack:
    """Q~ for every pair, on ``targets[severity, seed]``."""
    samples = [targets[m.severity, m.seed].train for m in pairs]
    if spec.finetune_epochs:
        first = sources.stack.select([sources.position[m.weight_decay, m.seed] for m in pairs])
        epochs, steps = spec.finetune_epochs, [m.finetune_lr for m in pairs]
    else:
        first = _first(spec, targets, [m.seed for m in pairs], sources.stack.weights[-1].shape[-1])
        epochs, steps = spec.epochs, [spec.lr] * len(pairs)
    orders = [(m.weight_decay, lr, ("target order", m.seed)) for m, lr in zip(pairs, steps, strict=True)]
    return _trained(spec, first, samples, orders, epochs, progress)


def _first(
    spec: ModelSpec, splits: dict[int, Split] | dict[tuple[float, int], Split], seeds: list[int], classes: int
) -> Stack:
    """Untrained members, one per seed."""
    if spec.logistic and classes > 2:
        raise UserError(f"model {spec.name} is fitted for two classes, and the world has {classes}: take a perceptron")
    dim = next(iter(splits.values())).train.x.shape[1]
    return Stack.draw(
        [dim, *spec.hidden, classes], [seeded("first", seed) for seed in seeds], activation=spec.activation
    )


def _trained(
    spec: ModelSpec,
    first: Stack,
    samples: list[Sample],
    recipes: list[tuple[float, float, tuple[str, int]]],
    epochs: int,
    progress: Progress | None,
) -> Stack:
    """The stack after training; a recipe is a weight decay, a step size, and the seed of the order of samples."""
    x, y = torch.stack([s.x for s in samples]), torch.stack([labels(s) for s in samples])
    decay = torch.tensor([recipe[0] for recipe in recipes])
    if spec.logistic:
        return fit_logistic(x, y, weight_decay=decay).stack()
    lr = torch.tensor([recipe[1] for recipe in recipes])
    generators = [seeded(*recipe[2]) for recipe in recipes]
    groups = [slice(start, start + GROUP) for start in range(0, len(samples), GROUP)]
    parts = [
        fit(
            first.select(range(len(first))[group]),
            x[group],
            y[group],
            lr=lr[group],
            weight_decay=decay[group],
            epochs=epochs,
            batch_size=BATCH_SIZE,
            generators=generators[group],
            progress=progress if group.start == 0 else None,
        )
        for group in groups
    ]
    return Stack.joined(parts)


def labels(sample: Sample) -> Tensor:
    """The labels of a world's sample, which must have them."""
    if sample.y is None:
        raise ValueError("a world's samples must have labels: return Sample(x, y)")
    return sample.y


def check_classes(world: ShiftWorld, sample: Sample) -> Sample:
    """A sample of a world, if its labels are classes that the world declares."""
    low, high = (int(end) for end in labels(sample).aminmax())
    if low < 0 or high >= num_classes(world):
        name = type(world).__module__.rpartition(".")[2]
        raise UserError(
            f"world {name} draws labels from {low} to {high} and declares {num_classes(world)} classes: make them 0 to "
            f"{num_classes(world) - 1}, or set num_classes in its file"
        )
    return sample


def check_some(experiment: str, **lists: Sequence[object]) -> None:
    """Refuse a list of a config that leaves nothing to compute."""
    for name, values in lists.items():
        if not values:
            raise UserError(
                f"{experiment}: {name} is empty, so there is nothing to compute: give it at least one value"
            )


def feature_map(spec: ModelSpec, model: nn.Sequential) -> FeatureMap:
    """h of a source model."""
    if spec.features == "identity":
        return identity
    if spec.features == "penultimate" and spec.hidden:
        return l2_normalised(model[:-1])
    raise ValueError(f"features must be identity, or penultimate for a model with hidden layers, got {spec.features!r}")
