"""Tiny drawn images: a class is a shape, a domain is its colours."""

import torch
from PIL import Image, ImageDraw

from experiments.vision.images import ImageSet

CLASSES = ("disc", "square", "cross")


def draw(root, *, per_class=4, domain="real", size=72, seed=0):
    """Write images of every class under ``root`` and list them."""
    generator = torch.Generator().manual_seed(seed)
    paths, labels = [], []
    for label, name in enumerate(CLASSES):
        for i in range(per_class):
            path = f"{domain}/{name}_{i}.png"
            (root / domain).mkdir(parents=True, exist_ok=True)
            _shape(name, domain, size, generator).save(root / path)
            paths.append(path)
            labels.append(label)
    return ImageSet(f"toy-{domain}", domain, "train", root, tuple(paths), tuple(labels), CLASSES)


def _shape(name, domain, size, generator):
    ground, ink = ("white", "red") if domain == "real" else ("black", "yellow")
    image = Image.new("RGB", (size, size), ground)
    pen = ImageDraw.Draw(image)
    x, y = (torch.randint(4, 12, (2,), generator=generator)).tolist()
    box = (x, y, x + size // 2, y + size // 2)
    if name == "disc":
        pen.ellipse(box, fill=ink)
    elif name == "square":
        pen.rectangle(box, fill=ink)
    else:
        pen.line(box, fill=ink, width=6)
        pen.line((box[0], box[3], box[2], box[1]), fill=ink, width=6)
    return image
