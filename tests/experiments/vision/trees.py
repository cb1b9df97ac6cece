"""A small data set in DomainNet's exact layout, with coloured shapes that can be learnt and the traps of the real one.

Classes are numbered without regard to case, painting lacks a class in each of its splits, and a drawing stands in the
sketch domain twice under two names.
"""

import random
import shutil
from pathlib import Path

from PIL import Image, ImageDraw

CLASSES = ("aircraft_carrier", "banana", "circle", "syringe", "t-shirt", "The_Eiffel_Tower")
DOMAINS = ("real", "painting", "sketch")
LACKING = {("painting", "train"): "t-shirt", ("painting", "test"): "syringe"}
COLOURS = ("#7788aa", "#e8d020", "#c03030", "#30a0c0", "#40a040", "#8a5a2a")
SHAPES = (
    [(0.0, 0.6), (1.0, 0.6), (0.85, 0.9), (0.15, 0.9)],
    [(0.0, 0.2), (0.3, 0.7), (1.0, 0.8), (0.4, 1.0), (0.1, 0.8)],
    None,
    [(0.4, 0.0), (0.6, 0.0), (0.6, 0.8), (0.5, 1.0), (0.4, 0.8)],
    [(0.0, 0.0), (1.0, 0.0), (1.0, 0.35), (0.75, 0.35), (0.75, 1.0), (0.25, 1.0), (0.25, 0.35), (0.0, 0.35)],
    [(0.5, 0.0), (1.0, 1.0), (0.7, 1.0), (0.5, 0.6), (0.3, 1.0), (0.0, 1.0)],
)


def drawing(domain, label, number, *, size=48):
    """One thing in the style of a domain, a little moved and scaled."""
    chance = random.Random(f"{domain} {label} {number}")
    paper = {"real": "#d8e4d8", "painting": "#f2e0c0", "sketch": "white"}[domain]
    image = Image.new("RGB", (size, size), paper)
    side = size * chance.uniform(0.55, 0.75)
    left, top = (chance.uniform(0.05, 0.95) * (size - side) for _ in range(2))
    style = {"outline": "black", "width": 2} if domain == "sketch" else {"fill": COLOURS[label]}
    if domain == "painting":
        style |= {"outline": "#603010", "width": 3}
    pen = ImageDraw.Draw(image)
    if SHAPES[label] is None:
        pen.ellipse((left, top, left + side, top + side), **style)
    else:
        pen.polygon([(left + x * side, top + y * side) for x, y in SHAPES[label]], **style)
    return image


def domainnet_tree(folder, *, per_class=2, size=48, absent=0, truncated=0):
    """Write the data set into ``folder`` and return it: 3 domains, 6 classes, ``per_class`` images a class and split.

    The first ``absent`` images of real's train split have no file, the first ``truncated`` ones of its test split are
    cut in half.
    """
    folder = Path(folder)
    for domain in DOMAINS:
        for turn, split in enumerate(("train", "test")):
            lines = [
                _write(folder, domain, label, turn * per_class + number, size)
                for label, name in enumerate(CLASSES)
                if LACKING.get((domain, split)) != name
                for number in range(per_class)
            ]
            (folder / f"{domain}_{split}.txt").write_text("\n".join(lines) + "\n")
    shutil.copy(*(folder / image_path("sketch", 2, number) for number in (0, 1)))
    for path in _named(folder / "real_train.txt")[:absent]:
        (folder / path).unlink()
    for path in _named(folder / "real_test.txt")[:truncated]:
        data = (folder / path).read_bytes()
        (folder / path).write_bytes(data[: len(data) // 2])
    return folder


def image_path(domain, label, number):
    """`domain/class/domain_NNN_NNNNNN.jpg`."""
    return f"{domain}/{CLASSES[label]}/{domain}_{label + 1:03d}_{number + 1:06d}.jpg"


def _write(folder, domain, label, number, size):
    path = image_path(domain, label, number)
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    drawing(domain, label, number, size=size).save(folder / path, quality=90)
    return f"{path} {label}"


def _named(split_file):
    return [line.rsplit(" ", 1)[0] for line in split_file.read_text().splitlines()]
