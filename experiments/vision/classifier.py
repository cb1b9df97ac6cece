"""Classifiers on a backbone: a linear head on unit penultimate features, with as much unfrozen below it as wanted.

``logits(x) = s W h(x) / |h(x)| + b``. Unit features make the gradient in h and the distances in h, which the paper
takes between l2-normalised features (``app:common-impl``), lengths in one space. The scale s is a number, not learned.
It decides what a step size means: from zero weights, steps of ``lr`` with scale s are steps of ``lr s^2`` without. The
paper's 3e-4 moves a head on unit features by nothing, but with s = 17, the mean length of EfficientNet-Lite0's
features, it is 0.09. Layers below the head want 0.001 to 0.01 with any s, and diverge at 0.3.

Below the head Q and an update differ, so they share no input but the image, and every term of the diagnostic would run
both of them from there again. Their unit features side by side, ``[n, 2 k]``, are inputs that both heads can read
(`beside`, `heads`), and nothing but the heads is run after that.
"""

import copy
import math
from typing import Literal

import torch
from torch import Tensor, nn

from trace import Sample

from ..engine.errors import UserError
from .backbone import Backbone
from .batches import Pictures, Rows, in_order

Depth = Literal["head", "block", "full"]
DEPTHS: tuple[Depth, ...] = ("head", "block", "full")

IMAGES = 32
"""Maps or pictures at once through what is below the head: more leave the processor's cache."""


class Unit(nn.Module):
    """``h / |h|`` of every row, ``[n, k]``."""

    def forward(self, h: Tensor) -> Tensor:
        return nn.functional.normalize(h, dim=1)


class Classifier(nn.Module):
    """From cached inputs to logits ``[n, C]``.

    Inputs are penultimate features ``[n, dim]`` at depth ``head``, normalised or not; maps ``[n, C, H, W]`` at
    ``block``; images at ``full``; float32 at all of them. ``features`` gives the unit features ``[n, dim]``: the point
    for `trace.diagnose`'s ``gradient_at``, and Q's own the feature map h.
    """

    scale: Tensor

    def __init__(self, depth: Depth, features: nn.Module, head: nn.Linear, scale: Tensor) -> None:
        super().__init__()
        self.depth = depth
        self.features = features
        self.head = head
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        return self.head(self.scale * self.features(x))


def new_classifier(dim: int, num_classes: int, *, scale: float = 1.0) -> Classifier:
    """A head of zeros: softmax regression is convex, so a random start would add nothing but noise."""
    if not 0 < scale < math.inf:
        raise UserError(f"scale is {scale}: it must be positive, such as mean_length of the source's features")
    head = nn.Linear(dim, num_classes)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return Classifier("head", Unit(), head, torch.tensor(scale)).eval()


def mean_length(features: Tensor) -> float:
    """Mean of ``|h|`` over rows ``[n, dim]``: the scale that leaves step sizes as they are on h itself."""
    return float(torch.linalg.vector_norm(features, dim=1, dtype=torch.float64).mean())


def at_depth(model: Classifier, depth: Depth, backbone: Backbone | None = None) -> Classifier:
    """A copy that computes the same from the inputs of a greater depth, with its own weights all trainable.

    It stays in eval mode, in training too: batch normalisation uses the backbone's statistics, so that a prediction
    depends on its own image alone and what lies before a frozen layer can be cached.
    """
    if model.depth == depth:
        return copy.deepcopy(model).eval().requires_grad_(True)
    if model.depth != "head":
        raise UserError(f"a model of depth {model.depth} cannot start a training of depth {depth}: start from a head")
    if backbone is None:
        raise UserError(f"depth {depth} needs the backbone whose layers it unfreezes: pass backbone")
    layers = copy.deepcopy(backbone.tail() if depth == "block" else backbone.model)
    lifted = Classifier(depth, nn.Sequential(layers, Unit()), copy.deepcopy(model.head), model.scale.clone())
    return lifted.to(memory_format=torch.channels_last).eval().requires_grad_(True)


class Columns(nn.Module):
    """Columns ``[start, stop)`` of every row."""

    def __init__(self, start: int, stop: int) -> None:
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, x: Tensor) -> Tensor:
        return x[:, self.start : self.stop]


@torch.no_grad()
def features_of(model: Classifier, rows: Rows | Pictures, *, device: str) -> Tensor:
    """Unit features ``[n, k]`` of all rows in their order, on the device."""
    batches = rows.stream(in_order(len(rows), IMAGES))
    return torch.cat([model.features(x.to(device, non_blocking=True)) for x in batches])


def beside(old: Tensor, new: Tensor, y: Tensor) -> Sample:
    """Features under Q and under the update as the inputs ``[n, 2 k]`` of `heads`, where they are."""
    return Sample(torch.cat([old, new], dim=1), y.to(old.device))


def heads(old: Classifier, new: Classifier) -> tuple[Classifier, Classifier]:
    """Both models on rows of `beside`; their ``features`` are their own halves. Q reads rows ``[n, k]`` as well."""
    k = old.head.in_features
    q, update = (
        Classifier("head", half, copy.deepcopy(model.head), model.scale).eval()
        for model, half in ((old, Columns(0, k)), (new, Columns(k, 2 * k)))
    )
    return q, update
