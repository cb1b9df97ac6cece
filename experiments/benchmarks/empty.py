"""An experiment that computes nothing: what is left of its runs is the engine's own cost."""

from __future__ import annotations

from dataclasses import dataclass

from ..engine.run import Context


@dataclass(frozen=True)
class Config:
    """What tells one empty run from another."""

    seed: int = 0


def run(config: Config, context: Context) -> dict[str, float]:
    return {"seed": float(config.seed)}
