"""One cause at a time: the learning rate moves the model change, the severity the shift, the sample size the gap.

    python -m experiments run isolation --launcher local      # about 1 minute on two cores

`app:synth-details`, "Validating Individual TRACE Components": `vary=lr` fixes the shift and fine-tunes with step sizes
from 1e-4 to 1e-2; `vary=severity` fixes the training and sweeps the shift. `vary=n`, which is not in the paper, fixes
both and gives Q~ fewer samples to overfit. Makes the table and figure `isolation`.
"""

from dataclasses import dataclass, field
from typing import Any

from trace.worlds import world

from .engine.config import added
from .engine.errors import UserError
from .engine.run import Context
from .pairs.cell import Cell, measure
from .pairs.measure import columns
from .pairs.settings import MeasureConfig
from .pairs.train import Member, ModelSpec, check_some

METRICS_VERSION = 3
"""Since the share of predictions that clipping changes is kept."""


@dataclass(frozen=True)
class Config(MeasureConfig):
    profile: str = "cpu"
    world: str = "blobs_shift"
    vary: str = "lr"
    """``lr``: the severity stays at ``severity``. ``severity``: the step size stays at ``model.finetune_lr``.
    ``n``: both stay, and the target sample has ``n_target`` rows; one run is one size."""
    lrs: list[float] = field(default_factory=lambda: [1e-4, 1.8e-4, 3.2e-4, 5.6e-4, 1e-3, 1.8e-3, 3.2e-3, 5.6e-3, 1e-2])
    severity: float = 1.0
    """At 0.5, which was tried first, |Delta R| on Moons is no larger than without any shift."""
    severities: list[float] = field(default_factory=lambda: [0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0, 1.25, 1.5, 2.0])
    n: int = 2000
    n_target: int = added(0)
    """Of ``vary=n``; 0: as ``n``."""
    seeds: list[int] = field(default_factory=lambda: list(range(8)))
    seed: int = 0
    """Added to each of the seeds."""
    model: ModelSpec = field(default_factory=lambda: ModelSpec(weight_decays=[1e-4], finetune_epochs=5))
    """Few fine-tuning epochs: after many, the outputs have moved as far as they will at any step size."""
    test_size: int = 100_000

    def __post_init__(self) -> None:
        if self.vary not in ("lr", "severity", "n"):
            raise UserError(f"isolation: vary must be lr, severity or n, got {self.vary!r}")
        if (self.n_target > 0) != (self.vary == "n"):
            raise UserError(f"isolation: n_target goes with vary=n, got vary={self.vary} and n_target={self.n_target}")
        if len(self.model.weight_decays) != 1:
            raise UserError(
                f"isolation moves one cause at a time: model.weight_decays must hold one value, got "
                f"{self.model.weight_decays}"
            )
        check_some("isolation", lrs=self.lrs, severities=self.severities, seeds=self.seeds)


def check(config: Config) -> None:
    """Refuse numbers out of range, and a world that does not exist."""
    config.check_numbers()
    world(config.world, severity=config.severity)


def run(config: Config, context: Context) -> dict[str, Any]:
    seeds = [config.seed + seed for seed in config.seeds]
    (decay,) = config.model.weight_decays
    if config.vary == "lr":
        points = [(config.severity, lr) for lr in config.lrs]
    else:
        severities = config.severities if config.vary == "severity" else [config.severity]
        points = [(severity, config.model.finetune_lr) for severity in severities]
    worlds = {severity: world(config.world, severity=severity) for severity, _ in points}
    cell = Cell.draw(
        worlds, seeds, sizes=(config.n, config.n_target or config.n), test_size=config.test_size, keys=config
    )
    pairs = [Member(severity, decay, seed, lr) for severity, lr in points for seed in seeds]
    found = measure(config.model, cell, pairs, lambda epoch, losses: context.log(epoch, loss=float(losses.mean())))
    return {"columns": columns(found.rows), "remainders": found.remainders}


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("isolation")
