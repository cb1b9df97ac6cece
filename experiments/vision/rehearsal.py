"""The stages of an image study, a little of each at its real size: readers, networks, distances, diagnoses.

Images are read, augmented and trained on as in the study. Features that nobody has extracted yet are stood in for by
random unit vectors, on which distances take about as many sweeps.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from trace import Sample, Settings, diagnose
from trace.estimators.gradient_quantile import gradient_norms
from trace.evidence import Known, measure_shift
from trace.losses import Loss

from ..engine.rehearsal import Demand, Rehearsal, Stage, growing, streamed
from .batches import Pictures, Rows, in_order
from .classifier import IMAGES, Classifier, Depth, at_depth, heads, new_classifier
from .features import features
from .finetune import TrainingStep, TrainSpec
from .images import ImageSet
from .sensitivity import ALL_LABELS, image_sensitivity
from .study import Domain, Study

CHUNK = 1024
"""Images whose features are extracted at once."""
STAND_INS = 256
"""Random maps or features, where a training reads cached ones."""


class Training(NamedTuple):
    """One of a grid: how, and on how many rows in all its epochs."""

    spec: TrainSpec
    rows: float


class ImageGrid(NamedTuple):
    """What a grid of an image study asks for."""

    target: str
    seeds: int
    updates: Sequence[Training]
    """Every candidate or round."""
    runs: int
    labelled: int
    """Most target rows that a diagnosis reads."""
    distances: float
    """Shifts that are measured, each between training samples."""
    loss: Loss
    settings: Settings


def image_rehearsal(study: Study, grid: ImageGrid, more: Sequence[Stage] = ()) -> Rehearsal:
    """All stages of a grid; ``more`` are the experiment's own."""
    c = study.config
    source, target = study.pictures(c.source), study.pictures(grid.target)
    images = [study.images(name, split) for name in (c.source, grid.target) for split in study.dataset.splits]
    depths = {training.spec.depth for training in grid.updates}
    of_q = Training(
        TrainSpec(depth=c.source_depth, lr=c.source_lr, epochs=c.source_epochs),
        len(source.train) * c.source_epochs * grid.seeds,
    )
    stages = [_extraction(study, images, layer) for layer in ("penultimate", *(["maps"] if "block" in depths else []))]
    stages += [_training(study, f"Q, {of_q.spec.depth}", source.train, [of_q])]
    kinds = {(t.spec.depth, t.spec.distill > 0) for t in grid.updates}
    for depth, distilled in sorted(kinds):
        alike = [t for t in grid.updates if (t.spec.depth, t.spec.distill > 0) == (depth, distilled)]
        name = f"updates, {depth}{', distilled' if distilled else ''}"
        stages.append(_training(study, name, target.train, alike))
    for depth in sorted(depths - {"head"}):
        specs = [training.spec for training in grid.updates if training.spec.depth == depth]
        stages.append(_looks(study, depth, target.test, _looked_at(source, target, grid, specs)))
    if c.gradient_in == "input":
        stages += _gradients(study, source, target, grid)
    rows = max(len(source.train), len(target.train))
    stages += [growing("distances", rows, grid.distances, lambda n: _shift(study, n, grid.settings)), *more]
    stages.append(growing("diagnosis", rows, len(grid.updates), lambda n: _diagnosis(study, n, grid)))
    return Rehearsal(stages, _disk(study, grid, images, source, target, of_q))


def _start(study: Study) -> Classifier:
    return new_classifier(study.backbone.dim, len(study.dataset.classes)).to(study.config.device)


def _inputs(study: Study, depth: Depth, pictures: Pictures) -> Rows | Pictures:
    """What a training of some depth reads."""
    if depth == "full":
        return pictures
    x = _random(STAND_INS, study.backbone.dim)
    if depth == "block":
        size, device = study.config.size, study.config.device
        with torch.no_grad():
            x = study.backbone.trunk()(torch.zeros(1, 3, size, size, device=device)).cpu().expand(STAND_INS, -1, -1, -1)
    return Rows(x, torch.zeros(STAND_INS, dtype=torch.long))


def _random(n: int, k: int) -> Tensor:
    return normalize(torch.randn(n, k, generator=torch.Generator().manual_seed(0)))


def _extraction(study: Study, images: Sequence[ImageSet], layer: Any) -> Stage:
    c, largest = study.config, max(images, key=lambda found: len(found.paths))

    def work() -> Iterator[int]:
        with tempfile.TemporaryDirectory() as folder:
            for rows in in_order(len(largest.paths), CHUNK):
                some = slice(int(rows[0]), int(rows[-1]) + 1)
                part = largest._replace(paths=largest.paths[some], labels=largest.labels[some])
                features(part, study.backbone, cache=Path(folder), device=c.device, workers=c.workers, layer=layer)
                yield len(rows)

    return streamed(f"features, {layer}", "images", sum(len(found.paths) for found in images), work)


def _training(study: Study, name: str, pictures: Pictures, alike: Sequence[Training]) -> Stage:
    spec, device = alike[0].spec, study.config.device

    def work() -> Iterator[int]:
        model = at_depth(_start(study), spec.depth, study.backbone).to(device)
        teacher = copy.deepcopy(model).requires_grad_(False) if spec.distill > 0 else None
        optimiser = torch.optim.SGD(model.parameters(), lr=spec.lr, momentum=spec.momentum)
        step = TrainingStep(spec, torch.compile(model) if study.config.compiled else model, teacher, optimiser)
        data, generator = _inputs(study, spec.depth, pictures), torch.Generator().manual_seed(0)
        batches = in_order(len(data), spec.batch_size)
        for rows, x in zip(batches, data.stream(batches, generator), strict=True):
            step(x.to(device, non_blocking=True), data.y[rows].to(device), torch.ones(len(rows), dtype=torch.bool))
            _wait(device)
            yield len(rows)

    return streamed(name, "rows", sum(training.rows for training in alike), work)


def _wait(device: str) -> None:
    """A GPU is asked for its work and goes on alone: count what it has done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def _looked_at(
    source: Domain[Pictures], target: Domain[Pictures], grid: ImageGrid, specs: Sequence[TrainSpec]
) -> float:
    """Rows that go through networks without being trained on: all by Q, held-out ones by updates, those that end
    trainings after every epoch."""
    held_out = sum(len(part) for part in (source.val, source.test, target.val, target.test)) + grid.labelled
    ends = sum(spec.epochs for spec in specs if spec.patience) * len(target.val) / 2
    return sum(map(len, (*source, *target))) * grid.seeds + held_out * len(specs) + ends


def _looks(study: Study, depth: Depth, pictures: Pictures, total: float) -> Stage:
    device = study.config.device

    def work() -> Iterator[int]:
        model = at_depth(_start(study), depth, study.backbone).to(device).requires_grad_(False)
        data = _inputs(study, depth, pictures)
        for x in data.stream(in_order(len(data), IMAGES)):
            model.features(x.to(device, non_blocking=True))
            _wait(device)
            yield len(x)

    return streamed(f"looks of updates, {depth}", "rows", total, work)


def _gradients(study: Study, source: Domain[Pictures], target: Domain[Pictures], grid: ImageGrid) -> list[Stage]:
    device = study.config.device

    def model() -> Classifier:
        return at_depth(_start(study), "full", study.backbone).to(device).requires_grad_(False)

    def norms() -> Iterator[int]:
        network, batches = model(), in_order(len(target.val), IMAGES)
        for rows, x in zip(batches, target.val.stream(batches), strict=True):
            gradient_norms(network, x.to(device), target.val.y[rows].to(device), grid.loss)
            yield len(rows)

    def all_labels() -> Iterator[int]:
        some = target.val.select(torch.arange(min(ALL_LABELS, len(target.val))))
        image_sensitivity(model(), some, grid.loss, grid.settings, device=device)
        yield 1

    updates = len(grid.updates)
    return [
        streamed("gradients in images", "images", (len(source.val) + len(target.val)) * updates, norms),
        streamed("under all labels", "models", 2 * updates, all_labels),
    ]


def _shift(study: Study, n: int, settings: Settings) -> object:
    x = _random(n, study.backbone.dim).to(study.config.device)
    return measure_shift(x, x.flip(1), settings, generator=torch.Generator().manual_seed(0))


def _diagnosis(study: Study, n: int, grid: ImageGrid) -> object:
    """Of heads on ``n`` training rows of the source, and as many held out as there are of the target."""
    device, k, share = study.config.device, study.backbone.dim, max(8, n // 7)
    q, update = _start(study), _start(study)
    for number, model in enumerate((q, update)):
        drawn = torch.randn(model.head.weight.shape, generator=torch.Generator().manual_seed(number))
        model.head.weight.data.copy_(drawn)
    old, new = heads(q, update)
    x = _random(n, 2 * k).to(device)
    y = (torch.arange(n) % len(study.dataset.classes)).to(device)
    held_out, labelled = Sample(x[:share], y[:share]), max(8, min(n, grid.labelled))
    few = measure_shift(x[:8, :k], x[8:16, :k], grid.settings)
    return diagnose(
        old,
        new,
        Sample(x[:, :k], y),
        Sample(x[:labelled], y[:labelled]),
        source_val=held_out,
        target_val=Sample(x[-share:], y[-share:]),
        anchor_test=Sample(x, y),
        loss=grid.loss,
        feature_map=old.features,
        gradient_at=(old.features, new.features),
        settings=grid.settings,
        known=Known(shift=few._replace(sizes=(n, labelled))),
    )


def _disk(
    study: Study,
    grid: ImageGrid,
    images: Sequence[ImageSet],
    source: Domain[Pictures],
    target: Domain[Pictures],
    of_q: Training,
) -> list[Demand]:
    """Features and maps once, Q and what it sees once a seed, checkpoints of runs under way, outputs of every run."""
    k, classes = study.backbone.dim, len(study.dataset.classes)
    network = sum(t.numel() * t.element_size() for t in study.backbone.model.state_dict().values())
    weights = network if of_q.spec.depth == "full" else 4 * k * classes
    seen = sum(map(len, (*source, *target)))
    outputs = sum(len(part) for part in (source.val, source.test, target.val, target.test))
    deep = any(training.spec.depth != "head" for training in grid.updates)
    return [
        Demand("features", 4 * k * sum(len(found.paths) for found in images)),
        Demand("Q", weights * grid.seeds),
        Demand("what Q sees", 4 * k * seen * grid.seeds if deep else 0),
        Demand("a checkpoint", 3 * (network if deep else 4 * k * classes)),
        Demand("outputs, at most", 2 * 2 * classes * outputs * grid.runs),
    ]
