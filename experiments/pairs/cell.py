"""Train and measure all pairs of a cell, with everything that pairs share computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import nn

from trace import Sample, Settings
from trace.features import FeatureMap
from trace.losses import Loss
from trace.training.fit import Progress
from trace.worlds import ShiftWorld, num_classes

from ..engine.seeds import seeded
from .measure import (
    SIZES_ALONE,
    Distances,
    Losses,
    Row,
    SourceFeatures,
    anchor_losses,
    diagnose_pair,
    distances,
    row,
    source_features,
)
from .settings import MeasureConfig
from .train import (
    Member,
    ModelSpec,
    Split,
    check_classes,
    draw_source,
    draw_target,
    feature_map,
    fit_sources,
    fit_updates,
)


@dataclass
class Cell:
    """The samples of a cell, and the distances between them that were measured so far.

    In the inputs themselves distances do not depend on the model, so several models share them.
    """

    sources: dict[int, Split]
    targets: dict[tuple[float, int], Split]
    test: Sample
    loss: Loss
    settings: Settings
    num_classes: int = 2
    exact: bool = False
    """Measure the exact W1 as well, between inputs: in features it would cost a solve for every model."""
    features: dict[object, SourceFeatures] = field(default_factory=dict)
    measured: dict[object, Distances] = field(default_factory=dict)

    @classmethod
    def draw(
        cls,
        worlds: dict[float, ShiftWorld],
        seeds: Sequence[int],
        *,
        sizes: tuple[int, int],
        test_size: int,
        keys: MeasureConfig,
        shared: bool = False,
        exact: bool = False,
    ) -> Cell:
        """The samples of all severities and seeds; the source does not depend on the severity."""
        any_world = next(iter(worlds.values()))
        return cls(
            sources={seed: draw_source(any_world, sizes[0], seed) for seed in seeds},
            targets={
                (severity, seed): draw_target(made, sizes[1], seed, shared=shared)
                for severity, made in worlds.items()
                for seed in seeds
            },
            test=check_classes(any_world, any_world.source(test_size, generator=seeded("test"))),
            loss=keys.loss(),
            settings=keys.settings(),
            num_classes=num_classes(any_world),
            exact=exact,
        )

    def distances(self, spec: ModelSpec, member: Member, h: FeatureMap) -> Distances:
        """Between the features of a pair's samples."""
        on_inputs = spec.features == "identity"
        space = () if on_inputs else (spec.name, member.weight_decay)
        near, far = (space, member.seed), (space, member.seed, member.severity)
        if near not in self.features:
            self.features[near] = source_features(h, self.sources[member.seed], member.seed, self.settings)
        if far not in self.measured:
            target = self.targets[member.severity, member.seed]
            exact = self.exact and on_inputs
            self.measured[far] = distances(h, self.features[near], target, self.settings, exact=exact)
        return self.measured[far]


class Measured(NamedTuple):
    """The models of a cell and one row per pair."""

    old: list[nn.Sequential]
    new: list[nn.Sequential]
    rows: list[Row]
    remainders: dict[str, float]
    """Statistical terms that depend on the sample sizes alone."""


def measure(spec: ModelSpec, cell: Cell, pairs: Sequence[Member], progress: Progress | None = None) -> Measured:
    """Q and Q~ of every pair, and the row that a record keeps of it."""
    q = fit_sources(spec, cell.sources, classes=cell.num_classes)
    updates = fit_updates(spec, q, cell.targets, pairs, progress)
    models = {key: q.stack.member(i) for key, i in q.position.items()}
    losses = {key: anchor_losses(model, cell.test, cell.loss) for key, model in models.items()}
    old, new, rows = [], [], []
    sizes_alone: dict[str, float] = {}
    for i, member in enumerate(pairs):
        key = (member.weight_decay, member.seed)
        old.append(models[key])
        new.append(updates.member(i))
        found = _pair(spec, cell, member, models[key], new[i], losses[key])
        sizes_alone = {name: found.pop(name) for name in SIZES_ALONE}
        rows.append({**member._asdict(), **found})
    return Measured(old, new, rows, sizes_alone)


def _pair(spec: ModelSpec, cell: Cell, member: Member, old: nn.Sequential, new: nn.Sequential, losses: Losses) -> Row:
    h = feature_map(spec, old)
    between = cell.distances(spec, member, h)
    source, target = cell.sources[member.seed], cell.targets[member.severity, member.seed]
    both = (losses, anchor_losses(new, cell.test, cell.loss))
    diagnostic = diagnose_pair(old, new, source, target, between, h, both, cell.loss, cell.settings)
    found = {**row(diagnostic), "floor": between.floor}
    return found if between.w1 is None else {**found, "wasserstein1": between.w1}
