"""Benchmark cases of the image studies: reading images, ResNet-50 forwards, and a training step at each depth.

The value is FLOPs an image as torch counts them, or bytes an image for reading.
"""

import io
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import Generator, Tensor, nn

from ..vision.backbone import folded
from . import BenchmarkCase

ARCH = "resnet50"
CLASSES = 345
SIDE = 512
"""Pixels a side of the JPEG that is read: at quality 75 it has about the mean bytes of DomainNet's photographs."""


def cases(size: dict[str, int]) -> list[BenchmarkCase]:
    """Reading and the network by one image after the other, so that their rates can be scaled."""
    n, steps = size["n_images"], size["n_steps"]
    step = f"{steps} images, forward and backward"
    return [
        BenchmarkCase(
            "images, read and resized", f"{n} JPEG of {SIDE} x {SIDE}", partial(_picture, n), {"ours": _read}
        ),
        BenchmarkCase(f"images, {ARCH} features", f"{n} x 3 x 224 x 224", partial(_network, n), {"ours": _forward}),
        BenchmarkCase(f"images, {ARCH} step, block", step, partial(_step, "block", steps), {"ours": _train}),
        BenchmarkCase(f"images, {ARCH} step, full", step, partial(_step, "full", steps), {"ours": _train}),
    ]


def _backbone() -> Any:
    from ..vision.backbone import BackboneSpec, load_backbone  # timm takes seconds to load

    return load_backbone(BackboneSpec(ARCH, weights="none"))


def _picture(n: int, generator: Generator) -> tuple[io.BytesIO, Callable[[Image.Image], Tensor], int]:
    """Smooth noise, which takes as many bytes as a photograph, to be read ``n`` times."""
    coarse = torch.randint(0, 256, (3, 64, 64), generator=generator).float()
    smooth = nn.functional.interpolate(coarse[None], size=SIDE, mode="bicubic")[0].clamp(0, 255).byte()
    page = io.BytesIO()
    Image.fromarray(smooth.permute(1, 2, 0).numpy()).save(page, format="JPEG", quality=75)
    return page, _backbone().transform, n


def _read(page: io.BytesIO, transform: Callable[[Image.Image], Tensor], n: int) -> float:
    """In one thread."""
    for _ in range(n):
        page.seek(0)
        transform(Image.open(page).convert("RGB"))
    return float(len(page.getvalue()))


def _network(n: int, generator: Generator) -> tuple[nn.Module, Tensor, float]:
    x = torch.randn(n, 3, 224, 224, generator=generator).contiguous(memory_format=torch.channels_last)
    model = _backbone().model
    return folded(model, x[:2]), x, _flops(lambda: model(x[:1]))


@torch.inference_mode()
def _forward(model: nn.Module, x: Tensor, flops: float) -> float:
    for part in x.split(4):
        model(part)
    return flops


def _step(depth: str, n: int, generator: Generator) -> tuple[Callable[[Tensor, Tensor], None], Tensor, Tensor, float]:
    """Forward, backward and a step of SGD on one batch of ``n`` inputs of a depth."""
    from ..vision.classifier import at_depth, new_classifier

    backbone = _backbone()
    model = at_depth(new_classifier(backbone.dim, CLASSES), "block" if depth == "block" else "full", backbone)
    x = torch.randn(n, 3, 224, 224, generator=generator).contiguous(memory_format=torch.channels_last)
    if depth == "block":
        with torch.inference_mode():
            x = backbone.trunk()(x)
        x = x.clone()
    y = torch.randint(0, CLASSES, (n,), generator=generator)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step(inputs: Tensor, labels: Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimiser.step()

    return step, x, y, _flops(lambda: step(x[:1], y[:1]))


def _train(step: Callable[[Tensor, Tensor], None], x: Tensor, y: Tensor, flops: float) -> float:
    step(x, y)
    return flops


def _flops(call: Callable[[], object]) -> float:
    """Floating-point operations of one call, two for a multiply-add."""
    from torch.utils.flop_counter import FlopCounterMode  # says on stderr that there is no triton, where there is none

    with FlopCounterMode(display=False) as counter:
        call()
    return float(counter.get_total_flops())
