"""The checkpoint of a training, marked with the training it belongs to, and that of a run of many."""

import hashlib
from typing import Any, NamedTuple, Protocol

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


class TrainingPart(NamedTuple):
    """Keeps the state of one training beside those of the others."""

    keeper: Keeper
    states: dict[str, dict[str, Any]]
    training: str

    def save(self, state: dict[str, Any]) -> None:
        self.states[self.training] = state
        self.keeper.save(self.states)

    def load(self) -> dict[str, Any] | None:
        return self.states.get(self.training)

    def drop(self) -> None:
        """Its training is over: the next state that is kept is without it."""
        self.states.pop(self.training, None)


def parts(keeper: Keeper, *trainings: str) -> list[TrainingPart]:
    """One checkpoint for a run of several trainings: the part of each, by its name."""
    states = dict(keeper.load() or {})
    return [TrainingPart(keeper, states, training) for training in trainings]
