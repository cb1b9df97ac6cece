"""Thumbnails: the pixels that were written can be read back."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from trace.report.case import is_image, range_of, thumbnail


def decoded(uri):
    head, data = uri.split(",", 1)
    assert head == "data:image/png;base64"
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    image.verify()
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_are_those_of_the_image(channels, generator):
    pixels = torch.randint(0, 256, (channels, 5, 9), generator=generator)
    found = decoded(thumbnail(pixels / 255, torch.zeros(channels), torch.ones(channels)))
    assert (found.reshape(5, 9, channels) == pixels.permute(1, 2, 0).numpy()).all()


def test_values_between_0_and_1_are_taken_as_they_are(generator):
    x = torch.rand(3, 8, 8, generator=generator) * 0.5
    found = decoded(thumbnail(x, *range_of(x[None])))
    assert np.abs(found - x.permute(1, 2, 0).numpy() * 255).max() <= 0.5 + 1e-4


def test_a_normalisation_by_channel_is_undone(generator):
    x = torch.rand(6, 3, 8, 8, generator=generator)
    x[0, :, 0, 0], x[0, :, 0, 1] = 0, 1
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    z = (x - mean[:, None, None]) / std[:, None, None]
    found = decoded(thumbnail(z[2], *range_of(z)))
    assert np.abs(found - x[2].permute(1, 2, 0).numpy() * 255).max() <= 0.51


def test_large_images_shrink_and_keep_their_shape():
    x = torch.full((3, 300, 150), 0.25)
    assert decoded(thumbnail(x, torch.zeros(3), torch.ones(3))).shape == (96, 48, 3)
    assert (decoded(thumbnail(x, torch.zeros(3), torch.ones(3), max_side=10)) == 64).all()


def test_an_image_of_one_value_is_drawn():
    x = torch.full((3, 8, 8), 7.0)
    assert (decoded(thumbnail(x, *range_of(x[None]))) == 0).all()


def test_what_is_an_image():
    assert is_image(torch.ones(3, 8, 8))
    assert is_image(torch.ones(1, 28, 28))
    assert not any(is_image(torch.ones(shape)) for shape in ((8,), (8, 8), (2, 8, 8), (3, 8, 2), (1, 3, 8, 8)))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(2, 8, 8), r"got \[2, 8, 8\]"),
        (torch.ones(3, 8, 8, dtype=torch.uint8), "float tensor"),
        (torch.full((3, 8, 8), torch.inf), "NaN or infinity"),
    ],
)
def test_refuses(x, message):
    with pytest.raises(ValueError, match=message):
        thumbnail(x, torch.zeros(3), torch.ones(3))
