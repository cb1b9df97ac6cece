"""Train and measure all pairs of a cell, with everything that pairs share computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import nn

from trace import Sample, Settings, diagnose
from trace.evidence import InputDistance, Known, RiskChange
from trace.features import FeatureMap, extract
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
    distances,
    inputs_apart,
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

FEWER = 5
"""The target's test sample, for COSP alone, is this many times smaller than the anchor's."""


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
    """Keep the exact W1 as the distance between features as well, where these are the inputs."""
    target_tests: dict[float, Sample] = field(default_factory=dict)
    """By severity."""
    features: dict[object, SourceFeatures] = field(default_factory=dict)
    measured: dict[object, Distances] = field(default_factory=dict)
    apart: dict[tuple[float, int], InputDistance | str] = field(default_factory=dict)

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
            target_tests={
                severity: check_classes(
                    made, made.target(test_size // FEWER, generator=seeded("target test", severity))
                )
                for severity, made in worlds.items()
            },
        )

    def inputs_apart(self, member: Member) -> InputDistance | str:
        """W1 between the inputs of a pair's samples, which all models share."""
        key = (member.severity, member.seed)
        if key not in self.apart:
            self.apart[key] = inputs_apart(self.sources[member.seed], self.targets[key])
        return self.apart[key]

    def distances(self, spec: ModelSpec, member: Member, h: FeatureMap) -> Distances:
        """Between the features of a pair's samples."""
        on_inputs = spec.features == "identity"
        space = () if on_inputs else (spec.name, member.weight_decay)
        near, far = (space, member.seed), (space, member.seed, member.severity)
        if near not in self.features:
            u = extract(h, self.sources[member.seed].train.x)
            self.features[near] = source_features(u, self.settings, seeded("floor", member.seed))
        if far not in self.measured:
            target = self.targets[member.severity, member.seed]
            self.measured[far] = distances(h, self.features[near], target, self.settings)
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
    """The full diagnostic as a row; Q's losses on the anchor test sample are the same for all its updates."""
    h = feature_map(spec, old)
    between = cell.distances(spec, member, h)
    source, target = cell.sources[member.seed], cell.targets[member.severity, member.seed]
    after = anchor_losses(new, cell.test, cell.loss)
    diagnostic = diagnose(
        old,
        new,
        source.train,
        target.train,
        source_val=source.val,
        target_val=target.val,
        loss=cell.loss,
        feature_map=h,
        settings=cell.settings,
        known=Known(
            shift=between.shift,
            spectrum=between.spectrum,
            wasserstein1_input=cell.inputs_apart(member),
            risk_change=RiskChange.of(after.values - losses.values, float((after.wrong - losses.wrong).mean())),
        ),
    )
    on_target = anchor_losses(new, cell.target_tests[member.severity], cell.loss)
    found = {**row(diagnostic), "floor": between.floor, "clip_changed": after.clipped}
    found["cosp"] = abs(float(on_target.values.mean()) - float(after.values.mean()))
    if cell.exact and spec.features == "identity":
        found["wasserstein1"] = found["wasserstein1_input"]
    return found
