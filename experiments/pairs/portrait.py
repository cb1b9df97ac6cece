"""A two-dimensional world as a record keeps it for its figure: some points, and both models' scores on a grid."""

from typing import Any

import torch
from torch import Tensor, nn

from .train import Split

POINTS = 150
"""Of each sample."""
CELLS = 41
"""Grid points along each axis."""


def portrait(old: nn.Module, new: nn.Module, source: Split, target: Split) -> dict[str, Any]:
    """Points and labels of both samples, and of each class but the first the margin of both models on a grid.

    The margin of a class is its logit less the largest other one: where it is 0 lies the class's boundary.
    """
    shown = torch.cat([source.train.x[:POINTS], target.train.x[:POINTS]])
    low, high = shown.min(dim=0).values - 0.3, shown.max(dim=0).values + 0.3
    x, y = (torch.linspace(float(a), float(b), CELLS) for a, b in zip(low, high, strict=True))
    grid = torch.cartesian_prod(y, x).flip(1)
    return {
        "x": _short(x),
        "y": _short(y),
        "source": _points(source),
        "target": _points(target),
        "margins": _short(_margins(old, grid)),
        "new_margins": _short(_margins(new, grid)),
    }


@torch.no_grad()
def _margins(model: nn.Module, grid: Tensor) -> Tensor:
    """``[C - 1, CELLS, CELLS]``, rows along y."""
    logits = model(grid)
    own = torch.eye(logits.shape[1], dtype=torch.bool)
    margins = [logits[:, k] - logits[:, ~own[k]].amax(dim=1) for k in range(1, logits.shape[1])]
    return torch.stack(margins).clamp(-20, 20).view(-1, CELLS, CELLS)


def _points(split: Split) -> dict[str, Any]:
    assert split.train.y is not None
    return {"x": _short(split.train.x[:POINTS]), "y": split.train.y[:POINTS].tolist()}


def _short(values: Tensor) -> Any:
    """Two decimals, for drawing."""
    return torch.round(values.double(), decimals=2).tolist()
