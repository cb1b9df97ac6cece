"""Where the domains lie in feature space: unit features on the two principal axes of the source.

    python -m experiments data emoji                             # once, the stand-in's images
    python -m experiments run embedding                          # stand-in, cpu profile
    python -m experiments run embedding config=paper --launcher slurm --cluster gpu     # DomainNet on a GPU cluster

One run is a data set; the record keeps some points of every domain, with their classes. Makes the figure `embedding`.
"""

from dataclasses import dataclass, field, fields
from typing import Any

import torch

from trace.report.embedding import Axes, principal_axes

from .engine.errors import UserError
from .engine.records import significant
from .engine.run import Context
from .engine.seeds import seeded
from .vision.study import ImageConfig, Study, VisionConfig, check_data

DIGITS = 4
"""Significant digits of stored coordinates."""


@dataclass(frozen=True)
class Config(ImageConfig):
    domains: list[str] = field(default_factory=lambda: ["real", "painting", "sketch"])
    """The domains that are shown, on the principal axes of ``source``."""
    points: int = 300
    """Images of each of them, drawn from its training split by ``seed``."""

    def shared(self) -> VisionConfig:
        """The keys that the case studies have, too."""
        return VisionConfig(**{f.name: getattr(self, f.name) for f in fields(ImageConfig)})


def check(config: Config) -> None:
    """Refuse data that are not there, and a picture without points."""
    if config.points < 1:
        raise UserError(f"points is {config.points}: show at least one image of each domain")
    check_data(config, config.source, *config.domains)


def run(config: Config, context: Context) -> dict[str, Any]:
    check(config)
    study = Study.of(config.shared())
    axes = principal_axes(study.rows(config.source, "train").x)
    return {
        "points": {name: _points(study, config, axes, name) for name in config.domains},
        "explained": [significant(float(share), DIGITS) for share in axes.explained],
        "classes": list(study.dataset.classes),
        "skipped": study.skipped(*config.domains),
    }


def _points(study: Study, config: Config, axes: Axes, domain: str) -> dict[str, list[float]]:
    """Coordinates and labels of a random part of a domain's training split, in the order of the split."""
    rows = study.rows(domain, "train")
    order = torch.randperm(len(rows), generator=seeded("embedding", domain, config.seed))
    shown = rows.select(order[: config.points].sort().values)
    first, second = axes.coordinates(shown.x).T.tolist()
    return {
        "first": [significant(value, DIGITS) for value in first],
        "second": [significant(value, DIGITS) for value in second],
        "labels": shown.y.tolist(),
    }


if __name__ == "__main__":
    from experiments.engine.entry import main

    main("embedding")
