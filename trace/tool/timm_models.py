"""``timm:ARCH@WEIGHTS``: timm's network with the tensors of a file, as many classes as the file has."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from .errors import ToolError, first_line, require
from .images import Transform


def load_timm(spec: str) -> tuple[nn.Module, Callable[[int | None], Transform]]:
    """The network, and its preprocessing of images at a size or at its own.

    Raises:
        ToolError: for an unknown architecture, or weights that are missing or belong to another one.
    """
    arch, found, weights = spec.removeprefix("timm:").partition("@")
    if not found or not weights:
        raise ToolError(f"{spec} names no weights: write timm:ARCH@weights.safetensors (or .pth)")
    timm = require("timm", extra="images", purpose=spec)
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
    _copy(model, tensors, weights, arch)

    def transform(size: int | None) -> Transform:
        config = timm.data.resolve_data_config({} if size is None else {"input_size": (3, size, size)}, model=model)
        return timm.data.create_transform(**config, is_training=False)

    return model, transform


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors or .pth file, without unpickling anything else."""
    if not path.is_file():
        raise ToolError(f"the weights {path} do not exist: check the path after @")
    try:
        if path.suffix == ".safetensors":
            library = require("safetensors.torch", extra="safetensors", purpose=f"reading {path.name}")
            found = library.load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except ToolError:
        raise
    except Exception as error:  # a broken file raises pickle, zip or safetensors errors
        raise ToolError(f"{path} holds no readable weights ({first_line(error)}): save the state_dict again") from error
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise ToolError(f"{path} is no dictionary of tensors: save the model's state_dict")
    return found


def _copy(model: nn.Module, tensors: dict[str, Tensor], weights: str, arch: str) -> None:
    """Load after every name and shape was compared; old files may lack the counters of batch normalisation."""
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in tensors and name.endswith("num_batches_tracked"):
            tensors = {**tensors, name: tensor}
        elif name not in tensors:
            raise ToolError(f"{weights} has no tensor {name}, which {arch} needs: name the architecture of the file")
        elif tensors[name].shape != tensor.shape:
            raise ToolError(
                f"{name} has shape {list(tensors[name].shape)} in {weights} and {list(tensor.shape)} in {arch}: name "
                "the architecture of the file"
            )
    unknown = next((name for name in tensors if name not in own), None)
    if unknown is not None:
        raise ToolError(f"{weights} has a tensor {unknown} that {arch} does not: name the architecture of the file")
    model.load_state_dict(tensors)
