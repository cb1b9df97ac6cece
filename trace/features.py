"""Feature maps h: where in a model the shift is measured."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .estimators.gradient_quantile import evaluation_mode, rows_of, watched

FeatureMap = Callable[[Tensor], Tensor]


def identity(x: Tensor) -> Tensor:
    """``h(x) = x``, flattened to ``[n, d]``."""
    return x.flatten(start_dim=1)


def l2_normalised(features: FeatureMap) -> FeatureMap:
    """``h(x) / |h(x)|``: unit features, for which ``epsilon = 0.1`` is meant (``app:common-impl``)."""

    def normalised(x: Tensor) -> Tensor:
        with evaluation_mode(features):
            return nn.functional.normalize(features(x), dim=1)

    return normalised


def layer_features(model: nn.Module, layer: nn.Module) -> FeatureMap:
    """The output of a submodule, flattened: with the layer before the head, the penultimate features."""

    def features(x: Tensor) -> Tensor:
        with watched(layer, "layer", by="model") as captured, evaluation_mode(model):
            model(x)
        return captured[0].flatten(start_dim=1)

    return features


def extract_with_outputs(
    model: nn.Module, layer: nn.Module, x: Tensor, *, batch_size: int = 1024
) -> tuple[Tensor, Tensor]:
    """`layer_features` ``[n, k]`` and the model's outputs ``[n, C]`` in batches, from one pass without gradients."""
    outputs: list[Tensor] = []
    with model.register_forward_hook(lambda _module, _inputs, output: outputs.append(output)):
        features = extract(layer_features(model, layer), x, batch_size=batch_size)
    return features, torch.cat(outputs)


def extract(features: FeatureMap, x: Tensor, *, batch_size: int = 1024, name: str = "feature_map") -> Tensor:
    """``h(x)`` in batches without gradients, ``[n, k]``; ``name`` is what messages call h."""
    with torch.no_grad(), evaluation_mode(features):
        batches = (x[start : start + batch_size].clone() for start in range(0, len(x), batch_size))
        return torch.cat([rows_of(features, batch, name) for batch in batches])
