"""Blobs-Shift, Moons-Warp and further worlds: score and bound against the true risk change (`app:synth-details`).

    python -m experiments run synthetic --launcher local                # every world, two cores: about 9 minutes
    python -m experiments run synthetic world=NAME --launcher local     # one world, also your own

One run is a cell: a world and a pair of sample sizes with all severities, weight decays and seeds. Makes the tables
`combined-excerpt`, `rank-power` and `coverage` and the figures of the worlds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trace import worlds
from trace.worlds import ShiftWorld, world

from .engine.errors import UserError
from .engine.run import Context
from .pairs.cell import Cell, measure
from .pairs.measure import columns
from .pairs.portrait import portrait
from .pairs.settings import MeasureConfig
from .pairs.train import ModelSpec, check_some, members, protocol

METRICS_VERSION = 3
"""Since the share of predictions that clipping changes is kept."""


@dataclass(frozen=True)
class Config(MeasureConfig):
    profile: str = "cpu"
    world: str = "blobs_shift"
    """A file of trace/worlds."""
    options: dict[str, float] = field(default_factory=dict)
    """Further fields of the world, such as {rotation: 30}."""
    labels: str = "travel"
    """Moved points keep their labels (travel), or get new ones from the source's P(y|x) (invariant); of a world that
    leaves no choice and keeps P(y|x), fixed."""
    n: int = 2000
    n_target: int = 2000
    severities: list[float] = field(default_factory=lambda: [0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0])
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3])
    seed: int = 0
    """Added to each of the seeds."""
    models: list[ModelSpec] = field(default_factory=list)
    """Empty: what `experiments.pairs.train.PROTOCOLS` says for the world."""
    development: bool = False
    """These candidates calibrate c_h and are never evaluated."""
    shared_draw: bool = False
    """The target moves the very points that the source drew, as in the paper's table."""
    details: bool = False
    """Also the exact W1 where the inputs are the features, and decision boundaries for the figure of the worlds."""
    test_size: int = 100_000

    def __post_init__(self) -> None:
        if not self.models:
            object.__setattr__(self, "models", protocol(self.world))
        if self.world in worlds.names() and "labels" not in worlds.fields_of(self.world):
            object.__setattr__(self, "labels", "fixed")
        check_some("synthetic", severities=self.severities, seeds=self.seeds)
        for spec in self.models:
            check_some("synthetic", **{f"weight_decays of model {spec.name}": spec.weight_decays})
        names = [spec.name for spec in self.models]
        if len(set(names)) < len(names):
            raise UserError(f"synthetic: models are named {', '.join(names)}: give each a name of its own")


def check(config: Config) -> None:
    """Refuse numbers out of range, a world that does not exist, or options that it does not take."""
    config.check_numbers()
    for severity in config.severities:
        _world(config, severity)


def run(config: Config, context: Context) -> dict[str, Any]:
    seeds = [config.seed + seed for seed in config.seeds]
    made = {severity: _world(config, severity) for severity in config.severities}
    cell = Cell.draw(
        made,
        seeds,
        sizes=(config.n, config.n_target),
        test_size=config.test_size,
        keys=config,
        shared=config.shared_draw,
        exact=config.details,
    )
    return {spec.name: _measured(spec, cell, config, context) for spec in config.models}


def _measured(spec: ModelSpec, cell: Cell, config: Config, context: Context) -> dict[str, Any]:
    """Columns of all pairs of one model; with details, the first seed's worlds as drawn."""
    pairs = members(config.severities, spec, [config.seed + seed for seed in config.seeds])
    found = measure(spec, cell, pairs, lambda epoch, losses: context.log(epoch, **{spec.name: float(losses.mean())}))
    kept: dict[str, Any] = {"columns": columns(found.rows), "remainders": found.remainders}
    if config.details and cell.test.x.shape[1] == 2:
        kept["portraits"] = {
            str(m.severity): portrait(old, new, cell.sources[m.seed], cell.targets[m.severity, m.seed])
            for m, old, new in zip(pairs, found.old, found.new, strict=True)
            if (m.seed, m.weight_decay) == (config.seed + config.seeds[0], spec.weight_decays[0])
        }
    return kept


def _world(config: Config, severity: float) -> ShiftWorld:
    fields: dict[str, Any] = {**config.options, "severity": severity}
    if "labels" in worlds.fields_of(config.world):
        fields["labels"] = config.labels
    return world(config.world, **fields)


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("synthetic")
