"""An image tensor as a small PNG in a data URI."""

import base64
import io

import torch
from PIL import Image
from torch import Tensor

from ..checks import check_count


def is_image(x: Tensor) -> bool:
    """Whether ``x`` has the shape of an image, ``[1, H, W]`` or ``[3, H, W]``, with at least 4 pixels a side."""
    return x.ndim == 3 and x.shape[0] in (1, 3) and min(x.shape[1:]) >= 4


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
    if not bool(torch.isfinite(image).all()):
        raise ValueError("image holds NaN or infinity: repair it first")
    x, low, high = (z.float().cpu() for z in (image, low[:, None, None], high[:, None, None]))
    x = (x - low) / torch.where(high > low, high - low, 1.0)
    pixels = (x.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).squeeze(2).numpy()
    picture, file = Image.fromarray(pixels), io.BytesIO()
    picture.thumbnail((max_side, max_side), Image.Resampling.BILINEAR)
    picture.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def range_of(images: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value of every channel of ``images [n, C, H, W]``; 0 and 1 where all lie in between.

    Undoes a normalisation by channel, such as ImageNet's, up to the darkest and brightest value that occur.
    """
    low, high = images.amin(dim=(0, 2, 3)), images.amax(dim=(0, 2, 3))
    if float(low.min()) >= 0 and float(high.max()) <= 1:
        return torch.zeros_like(low), torch.ones_like(high)
    return low, high
