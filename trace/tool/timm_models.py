"""``timm:ARCH@WEIGHTS``: timm's network with the tensors of a file, as many classes as the file has."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from .errors import ToolError, require
from .images import Transform
from .weights import copy_weights, read_weights


def load_timm(spec: str) -> tuple[nn.Module, Callable[[int | None], Transform]]:
    """The network, and its preprocessing of images at a size or at its own.

    Raises:
        ToolError: for an unknown architecture, or weights that are missing or belong to another one.
    """
    arch, found, weights = spec.removeprefix("timm:").partition("@")
    if not found or not weights:
        raise ToolError(f"{spec} names no weights: write timm:ARCH@weights.safetensors (or .pth)")
    timm = require("timm", purpose=spec)
    if not timm.is_model(arch):
        near = difflib.get_close_matches(arch, timm.list_models(), n=3)
        similar = ", ".join(near) or "timm.list_models() has all"
        raise ToolError(f"timm knows no architecture {arch!r}: take another name ({similar})")
    tensors = read_weights(Path(weights))
    with torch.random.fork_rng(devices=[]):
        head = timm.create_model(arch, pretrained=False).pretrained_cfg.get("classifier")
        names = [head] if isinstance(head, str) else list(head or ())
        rows = next((len(tensors[f"{name}.weight"]) for name in names if f"{name}.weight" in tensors), None)
        if rows is None:
            raise ToolError(
                f"{weights} has no tensor {names[0] if names else 'classifier'}.weight, {arch}'s classifier"
            )
        model: nn.Module = timm.create_model(arch, pretrained=False, num_classes=rows)
    copy_weights(model, tensors, origin=weights, arch=arch)

    def transform(size: int | None) -> Transform:
        config = timm.data.resolve_data_config({} if size is None else {"input_size": (3, size, size)}, model=model)
        return timm.data.create_transform(**config, is_training=False)

    return model, transform
