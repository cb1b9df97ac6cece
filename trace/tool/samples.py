"""All samples of a command, read with one understanding of classes, columns and pictures."""

import argparse
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..hardware import doubled
from ..io.data import read_rows
from ..io.errors import UserError, require
from ..io.images import Transform, plain_transform
from ..io.models import NamedModel, SavedOutputs
from ..io.rows import FileRows, Part, at_most, hold_out, not_held_out, to_part
from ..io.tables import Progress
from .options import named_paths

ANCHOR = "source"
"""Name of an anchor that was given none."""

IMAGE_SIZE = 224

TRAINING_ROWS = 10_000
"""Rows of a training sample that are looked at unless ``--limit`` says how many; held-out rows all are."""


class Scaling(NamedTuple):
    """Columns in units of their standard deviation in the sources, ``z = (x - mean) / deviation``.

    It is a change of coordinates: models of z undo it first, so nothing else changes.
    """

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, sources: Sequence[Part]) -> "Scaling":
        """From the sources' inputs; a constant column keeps its units."""
        x = doubled(torch.cat([part.sample.x for part in sources]))
        deviation = x.std(dim=0, correction=0)
        return cls(x.mean(dim=0), torch.where(deviation > 0, deviation, torch.ones_like(deviation)))

    def scale(self, part: Part) -> Part:
        x = ((doubled(part.sample.x) - self.mean) / self.deviation).to(part.sample.x)
        return part._replace(sample=part.sample._replace(x=x))


class Unscaled(nn.Module):
    """``z -> model(mean + deviation z)``."""

    def __init__(self, model: nn.Module, scaling: Scaling) -> None:
        super().__init__()
        self.model, self.scaling = model, scaling

    def forward(self, z: Tensor) -> Tensor:
        return self.model((doubled(z) * self.scaling.deviation + self.scaling.mean).to(z))


Parts = dict[str, Part]
"""Samples by the names of `trace.diagnose`'s arguments: "source", "source_val", ..., as far as they are given."""


class Loader:
    """Reads the files that the options name, and makes the splits that are missing."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        models: tuple[NamedModel, NamedModel],
        *,
        classification: bool,
        device: torch.device,
        generator: torch.Generator,
        progress: Progress = lambda share: None,
    ) -> None:
        self.arguments, self.models, self.device, self.generator = arguments, models, device, generator
        self.classification, self.progress = classification, progress
        self.classes = _classes(arguments.classes, models)
        self.columns = _common("columns", models[0].columns, models[1].columns)
        self.transform = _transform(arguments, models)
        self.has_inputs = True
        self.logits_alone = False
        """Whether a sample holds neither inputs nor features."""
        self.tables = True
        """Whether all samples are tables."""
        self.notes: list[str] = []
        self.files: dict[str, str] = {}
        """SHA-256 of what was read, by the sample's name and anchor, ``source_val:photos``."""
        self.faults: dict[str, dict[str, str]] = {}
        """By anchor: why its samples, or those of the target, do not count as held out."""

    def samples(self) -> tuple[dict[str, Parts], Parts]:
        """The samples of every anchor by its name, and those of the target."""
        a = self.arguments
        sources = named_paths(a.source, "--source", ANCHOR)
        only = next(iter(sources)) if len(sources) == 1 else ANCHOR
        vals, tests = (
            named_paths(texts, option, only)
            for texts, option in ((a.source_val, "--source-val"), (a.anchor_test, "--anchor-test"))
        )
        for option, paths in (("--source-val", vals), ("--anchor-test", tests)):
            if (stray := next((name for name in paths if name not in sources), None)) is not None:
                if stray == ANCHOR:
                    raise UserError(
                        f"{option} {paths[stray]} names no anchor: write NAME={paths[stray]}, with one of "
                        f"{', '.join(sources)}"
                    )
                raise UserError(f"{option} is for {stray!r}, which is no anchor: name one of {', '.join(sources)}")
        if a.hold_out and a.target_val and set(vals) == set(sources):
            raise UserError("--hold-out has nothing to split: every sample has its -val, leave it out")
        anchors: dict[str, Parts] = {}
        for name, path in sources.items():
            anchors[name], faults, whole = self._pair(path, vals.get(name), "source", f":{name}")
            if name in tests:
                test = self._whole(tests[name], f"anchor_test:{name}")
                anchors[name]["anchor_test"] = self._few(test)
                faults |= {"anchor_test": why} if (why := not_held_out(whole, test)) else {}
            self.faults[name] = faults
        if a.group and not any(part.sample.group for parts in anchors.values() for part in parts.values()):
            raise UserError(f"no sample of an anchor has a column {a.group!r}, which --group asks for: check its name")
        targets, faults, _ = self._pair(a.target, a.target_val, "target", "")
        for each in self.faults.values():
            each |= faults
        return anchors, targets

    def default_features(self) -> str:
        """Where the shift is measured unless it is said: the inputs, or the nearest to them that all files hold."""
        if self.has_inputs:
            return "identity"
        if self.logits_alone:
            self.note("there are neither inputs nor features: the shift is measured in the old model's outputs")
        return "logits" if self.logits_alone else "saved"

    def _pair(
        self, path: str, val: str | None, kind: Literal["source", "target"], anchor: str
    ) -> tuple[Parts, dict[str, str], Part]:
        """A training sample and its held-out rows: as given, split off with ``--hold-out``, or none.

        Then why they do not count as held out, by the name of the sample, and the training sample without a limit.
        """
        labelled, option = kind == "source", f"--{kind}"
        whole = self._whole(path, f"{kind}{anchor}", labelled=labelled)
        part = self._few(whole, training=True)
        if val is not None:
            held_whole = self._whole(val, f"{kind}_val{anchor}", labelled=labelled)
            why = not_held_out(whole, held_whole)
            found = {kind: part, f"{kind}_val": self._few(held_whole)}
            return found, {f"{kind}_val": why} if why else {}, whole
        if not self.arguments.hold_out:
            self.note(
                f"no rows of {path} are held out: give {option}-val with rows that no model was trained on, or "
                "--hold-out if none was trained on these"
            )
            return {kind: part}, {}, whole
        n = len(part.names)
        train, held = hold_out(part, self.generator) if n > 1 else (part, part.at(torch.arange(0)))
        if not held.names:
            raise UserError(f"{path} has {n} rows, too few to hold any out: give more rows, or {option}-val")
        stratified = "stratified " if part.sample.y is not None and self.classification else ""
        self.note(
            f"{len(held.names)} of the {n} rows of {path} are held out ({stratified}15 percent, seed "
            f"{self.arguments.seed}), as rows that no model was trained on (--hold-out)"
        )
        why = "" if part.ids is None else not_held_out(train, held)  # rows without ids were split at random
        return {kind: train, f"{kind}_val": held}, {f"{kind}_val": why} if why else {}, whole

    def _few(self, part: Part, *, training: bool = False) -> Part:
        """As many rows as ``--limit`` says; without it `TRAINING_ROWS` of a training sample, and all held-out rows."""
        limit: int | None = self.arguments.limit
        if limit is None and training and len(part.names) > TRAINING_ROWS:
            limit = TRAINING_ROWS
            self.note(
                f"{limit} of the {len(part.names)} rows of {part.origin} are looked at, drawn with seed "
                f"{self.arguments.seed}: distances compare every row with every other (--limit)"
            )
        return at_most(part, limit, self.generator)

    def _whole(self, path: str, name: str, *, labelled: bool = True) -> Part:
        """`file_rows`, ready for the models."""
        rows = self.file_rows(path, name, labelled=labelled)
        return to_part(rows, self.classes, classification=self.classification, device=self.device)

    def file_rows(self, path: str, name: str, *, labelled: bool = True) -> FileRows:
        """All rows of a file, or of images as many as are read; ``name`` is that of the sample among `files`."""
        a = self.arguments
        rows = read_rows(
            path,
            transform=self.transform,
            label=a.label,
            labelled=labelled,
            columns=self.columns,
            limit=a.limit,
            generator=self.generator,
            group=a.group,
            identity=a.id,
            progress=self.progress,
        )
        self.files[name] = rows.sha256
        self._learn(rows)
        if a.id is not None and rows.ids is None:
            raise UserError(f"{path} has no ids, which --id asks for: save them under the key id, or leave out --id")
        return rows

    def _learn(self, rows: FileRows) -> None:
        """What the first file says about classes and columns holds for all."""
        if self.classes is None and rows.classes is not None:
            self.classes = rows.classes
            self.note(f"outputs are taken in the order of the folders of {rows.origin}; --classes gives another")
        self.columns = rows.columns if self.columns is None else self.columns
        self.tables = self.tables and rows.columns is not None
        if rows.labels is None:
            self.note(f"{rows.origin} has no labels")
        if rows.ignored:
            self.note(f"columns of {rows.origin} that are no inputs are left out: {', '.join(rows.ignored)}")
        if rows.x.ndim == 4 and not rows.origin.endswith((".npz", ".safetensors")):
            self._pictures(rows)
        self.logits_alone = self.logits_alone or not (rows.has_inputs or "features" in rows.saved)
        if not rows.has_inputs:
            self.has_inputs = False
            if (given := next((m for m in self.models if not isinstance(m, SavedOutputs)), None)) is not None:
                raise UserError(f"{rows.origin} holds no x, which {given.name} needs as its inputs: add it")

    def _pictures(self, rows: FileRows) -> None:
        """Images that were just read: one preprocessing must serve both models."""
        old, new = (model.transform for model in self.models)
        if old is not None and new is not None:
            _check_same(old(self.arguments.image_size), new(self.arguments.image_size))
        if old is not None or new is not None:
            return
        scaled = "ImageNet's mean and deviation" if self.arguments.pixels == "imagenet" else "[0, 1]"
        self.note(f"images are cut to {rows.x.shape[-1]} pixels and scaled to {scaled} (--image-size, --pixels)")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _transform(arguments: argparse.Namespace, models: tuple[NamedModel, NamedModel]) -> Transform:
    """The old model's own preprocessing of images, else the new one's, else a plain one."""
    size: int | None = arguments.image_size
    if (own := models[0].transform or models[1].transform) is not None:
        return own(size)
    return plain_transform(size or IMAGE_SIZE, imagenet=arguments.pixels == "imagenet")


def _check_same(old: Transform, new: Transform) -> None:
    """Both models must want the same pixels, seen on a picture of all colours that is neither square nor small."""
    image = require("PIL.Image", purpose="reading images")
    ramp = np.arange(300 * 400 * 3).reshape(300, 400, 3)
    picture = image.fromarray((ramp * 7 // 13 % 256).astype(np.uint8))
    pixels, others = old(picture), new(picture)
    if pixels.shape != others.shape or not torch.allclose(pixels, others):
        shapes = f"{list(pixels.shape)} against {list(others.shape)}"
        how = f"sizes ({shapes})" if pixels.shape != others.shape else "crops, interpolations or scales"
        raise UserError(
            f"the models want images in other {how}: compare models that share their preprocessing, save "
            "the logits of both, or try --image-size"
        )


def _classes(listed: str | None, models: tuple[NamedModel, NamedModel]) -> tuple[str, ...] | None:
    """Names by output: as listed, or as the models have them."""
    if listed is not None:
        names = tuple(name.strip() for name in listed.split(","))
        if (twice := next((name for name in names if names.count(name) > 1), None)) is not None:
            raise UserError(f"--classes lists {twice!r} twice: give every output its own name")
        return names
    return _common("classes", models[0].classes, models[1].classes)


def _common(what: str, old: tuple[str, ...] | None, new: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if old is not None and new is not None and old != new:
        shown = [", ".join(names[:6]) + (", ..." if len(names) > 6 else "") for names in (old, new)]
        raise UserError(f"the models have other {what} ({shown[0]} against {shown[1]}): compare models that share them")
    return old if old is not None else new
