"""An image tensor as a small PNG in a data URI, without an imaging library."""

from __future__ import annotations

import base64
import struct
import zlib

import torch
from torch import Tensor, nn

from ..checks import check_count

_COLOUR_TYPE = {1: 0, 3: 2}
"""PNG: grey or RGB by the number of channels."""


def is_image(x: Tensor) -> bool:
    """Whether ``x`` has the shape of an image, ``[1, H, W]`` or ``[3, H, W]``, with at least 4 pixels a side."""
    return x.ndim == 3 and x.shape[0] in _COLOUR_TYPE and min(x.shape[1:]) >= 4


@torch.no_grad()
def thumbnail(image: Tensor, low: Tensor, high: Tensor, *, max_side: int = 96) -> str:
    """``data:image/png;base64,...`` of a float image ``[3, H, W]`` or ``[1, H, W]``, shrunk to ``max_side``.

    Args:
        low, high: the values of every channel, ``[3]`` or ``[1]``, that are drawn as black and full; see `range_of`.

    Raises:
        ValueError: for another shape or dtype, or values that are not finite.

    >>> thumbnail(torch.zeros(3, 8, 8), torch.zeros(3), torch.ones(3))[:22]
    'data:image/png;base64,'
    """
    check_count(max_side, "max_side")
    if not is_image(image) or not image.is_floating_point():
        raise ValueError(f"image must be a float tensor [3, H, W], got {list(image.shape)} of {image.dtype}")
    x = image.detach().float().cpu()
    if not bool(torch.isfinite(x).all()):
        raise ValueError("image holds NaN or infinity: repair it first")
    height, width = x.shape[1:]
    if max(height, width) > max_side:
        scale = max_side / max(height, width)
        size = (max(1, round(height * scale)), max(1, round(width * scale)))
        x = nn.functional.interpolate(x[None], size=size, mode="bilinear", antialias=True, align_corners=False)[0]
    low, high = (end.float().cpu()[:, None, None] for end in (low, high))
    x = (x - low) / torch.where(high > low, high - low, 1.0)
    pixels = (x.clamp(0, 1) * 255).round().to(torch.uint8)
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def range_of(images: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value of every channel of ``images [n, C, H, W]``; 0 and 1 where all lie in between.

    Undoes a normalisation by channel, such as ImageNet's, up to the darkest and brightest value that occur.
    """
    low, high = images.amin(dim=(0, 2, 3)), images.amax(dim=(0, 2, 3))
    if float(low.min()) >= 0 and float(high.max()) <= 1:
        return torch.zeros_like(low), torch.ones_like(high)
    return low, high


def png(pixels: Tensor) -> bytes:
    """A PNG file of ``pixels [1 or 3, H, W]``, uint8."""
    channels, height, width = pixels.shape
    rows = pixels.permute(1, 2, 0).contiguous().numpy()
    data = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPE[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, body) for kind, body in chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
