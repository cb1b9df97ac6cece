"""The checkpoint of a training, marked with the training it belongs to, and that of a run of many."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

import torch
from torch import Generator, Tensor, nn

from ..engine.errors import UserError
from .backbone import weights_digest


def fingerprint(spec: object, start: nn.Module, generator: Generator, y: Tensor) -> str:
    """SHA-256 of what decides a training besides its inputs: spec, first weights, state of the generator, labels."""
    total = hashlib.sha256(f"{spec!r} {weights_digest(start)} {y.tolist()}".encode())
    total.update(generator.get_state().numpy().tobytes())
    return total.hexdigest()


def snapshot(
    origin: str,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    generator: Generator,
    history: list[dict[str, float]],
    best: dict[str, Tensor],
) -> dict[str, Any]:
    """Everything that the next epoch depends on; ``torch.load(weights_only=True)`` reads it."""
    return {
        "origin": origin,
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "generator": generator.get_state(),
        "history": [dict(epoch) for epoch in history],
        "best": best,
    }


def restore(
    state: dict[str, Any], origin: str, model: nn.Module, optimiser: torch.optim.Optimizer, generator: Generator
) -> tuple[list[dict[str, float]], dict[str, Tensor]]:
    """Put a snapshot back in place; its history and its best weights.

    Raises:
        UserError: where it was taken from another training.
    """
    if state.get("origin") != origin:
        raise UserError(
            "the checkpoint belongs to a training with another spec, start, seed or labels: delete it, or give each "
            "training its own"
        )
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    generator.set_state(state["generator"])
    return list(state["history"]), dict(state["best"])


class Keeper(Protocol):
    """Keeps the last state it was given, as `experiments.engine.run.Context` does for a run.

    ``save`` writes at once: the next epoch changes the tensors it was given.
    """

    def save(self, state: dict[str, Any], /) -> None: ...

    def load(self) -> dict[str, Any] | None: ...


class Trainings:
    """One checkpoint for a run of several trainings: the state of each, by its name."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._states: dict[str, Any] = dict(keeper.load() or {})

    def of(self, training: str) -> Keeper:
        """The part of one training."""
        return _Part(self, training)

    def state(self, training: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._states.get(training)
        return found

    def save(self, training: str, state: dict[str, Any]) -> None:
        """Keep the state of one training beside those of the others."""
        self._states[training] = state
        self._keeper.save(self._states)


class _Part:
    def __init__(self, trainings: Trainings, training: str) -> None:
        self.trainings, self.training = trainings, training

    def save(self, state: dict[str, Any]) -> None:
        self.trainings.save(self.training, state)

    def load(self) -> dict[str, Any] | None:
        return self.trainings.state(self.training)
