"""Sensitivities in the image itself, as the paper takes them (``assump:Lx``): norms of the loss gradient in its pixels.

Images are streamed: a validation split of DomainNet does not fit into memory, and neither do its gradients.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trace import Settings
from trace.estimators.gradient_quantile import GradientQuantile, gradient_norms, quantile_with_bands
from trace.estimators.jacobians import LargestGradient, slopes
from trace.estimators.kernels import thinned
from trace.losses import Loss

from .backbone import Backbone
from .batches import Pictures, in_order
from .classifier import IMAGES, Classifier, at_depth

ALL_LABELS = 8
"""Images at even strides whose gradients are taken under all labels: a backward pass a class each."""


class ImageSensitivity(NamedTuple):
    """Of one model on one sample, in normalised pixels."""

    quantile: GradientQuantile
    largest: LargestGradient | str
    """Under all labels, or why there is none."""


def on_images(model: Classifier, backbone: Backbone) -> Classifier:
    """The model as a function of images, whatever depth it was trained at."""
    if model.depth != "block":
        return at_depth(model, "full", backbone).requires_grad_(False)
    return Classifier("full", nn.Sequential(backbone.trunk(), model.features), model.head, model.scale).eval()


def image_sensitivity(
    model: Classifier, pictures: Pictures, loss: Loss, settings: Settings, *, device: str
) -> ImageSensitivity:
    """The quantile over all pictures with their labels, and the largest gradient over some."""
    norms = torch.cat(list(_norms(model, pictures, loss, device)))
    rows = thinned(torch.arange(len(pictures)), ALL_LABELS)
    some = next(pictures.stream([rows])).to(device)
    (largest,), _ = slopes([model], some, loss, num_outputs=model.head.out_features, q=settings.q)
    return ImageSensitivity(quantile_with_bands(norms, settings.q, settings.eta), largest)


def _norms(model: Classifier, pictures: Pictures, loss: Loss, device: str) -> Iterator[Tensor]:
    batches = in_order(len(pictures), IMAGES)
    for rows, x in zip(batches, pictures.stream(batches), strict=True):
        yield gradient_norms(model, x.to(device, non_blocking=True), pictures.y[rows].to(device), loss)
