"""Feature maps h: where in a model the shift is measured."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .estimators.lipschitz import evaluation_mode

FeatureMap = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    """``h(x) = x``, flattened to ``[n, d]``."""
    return x.flatten(start_dim=1)


def l2_normalised(features: FeatureMap) -> FeatureMap:
    """``h(x) / |h(x)|``: unit features, for which ``epsilon = 0.1`` is meant (``app:common-impl``)."""

    def normalised(x: Tensor) -> Tensor:
        return nn.functional.normalize(features(x), dim=1)

    return normalised


def layer_features(model: nn.Module, layer: nn.Module) -> FeatureMap:
    """The output of a submodule, flattened: with the layer before the head, the penultimate features."""

    def features(x: Tensor) -> Tensor:
        captured: list[Tensor] = []
        handle = layer.register_forward_hook(lambda _module, _inputs, output: captured.append(output))
        try:
            with evaluation_mode(model):
                model(x)
        finally:
            handle.remove()
        if len(captured) != 1:
            raise ValueError(f"layer was run {len(captured)} times by model: name a submodule that runs once per input")
        return captured[0].flatten(start_dim=1)

    return features


def extract(features: FeatureMap, x: Tensor, *, batch_size: int = 1024) -> Tensor:
    """``h(x)`` in batches without gradients, ``[n, k]``."""
    with torch.no_grad(), evaluation_mode(features):
        parts = [features(x[start : start + batch_size]) for start in range(0, len(x), batch_size)]
    for part in parts:
        if not isinstance(part, Tensor) or part.ndim != 2:
            got = list(part.shape) if isinstance(part, Tensor) else type(part).__name__
            raise ValueError(f"feature_map returned {got}: it must return one row of features per input, [n, k]")
    return torch.cat(parts)
