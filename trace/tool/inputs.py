"""The options that name models and data, and the cases they ask for."""

from __future__ import annotations

import argparse

import torch

from .case import Anchor, Case, Question, measure
from .data import FORMATS as DATA
from .data import Reading, read_rows
from .errors import ToolError
from .models import FORMATS as MODELS
from .models import AnyModel, SavedOutputs, load_model
from .options import loss_from, named_paths, settings_from
from .rows import Part, Rows, at_most, held_out, ready
from .stages import Stages

__all__ = ["Case", "add_input_arguments", "cases"]

_ANCHOR = "source"


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """All options that name models and data."""
    models = parser.add_argument_group("models", f"each is {MODELS}")
    models.add_argument(
        "--model", metavar="MODEL", help="the old model Q; without it, `logits` saved in the data files"
    )
    models.add_argument("--new-model", metavar="MODEL", help="the new model Q~; without it, `new_logits` saved there")
    models.add_argument(
        "--trust", action="store_true", help="run the code that a model file brings (pickle, .pt2, ...)"
    )
    data = parser.add_argument_group("samples", f"each is {DATA}; NAME= only where there are several anchors")
    data.add_argument("--source", action="append", required=True, metavar="[NAME=]DATA",
                      help="training data of Q, the anchor; repeat for several")  # fmt: skip
    data.add_argument("--target", required=True, metavar="DATA", help="training data of Q~; labels may be missing")
    data.add_argument("--source-val", action="append", default=[], metavar="[NAME=]DATA",
                      help="held-out anchor data; without it, a stratified 15 percent of --source")  # fmt: skip
    data.add_argument("--target-val", metavar="DATA", help="held-out target data; without it, 15 percent of --target")
    data.add_argument("--anchor-test", action="append", default=[], metavar="[NAME=]DATA",
                      help="labelled anchor data, for the true change of the risk")  # fmt: skip
    data.add_argument("--label", metavar="COLUMN", help="label column of tables (default: label, y or target)")
    data.add_argument(
        "--classes", metavar="A,B,...", help="class names in the order of the outputs, for labels by name"
    )
    data.add_argument("--limit", type=int, metavar="N", help="at most N rows of each sample, drawn with the seed")
    how = parser.add_argument_group("how")
    how.add_argument("--loss", default="cross-entropy", metavar="LOSS",
                     help="cross-entropy[:CLIP] (default, logits clipped to 10) or squared-error[:LIMIT]")  # fmt: skip
    how.add_argument("--features", metavar="H", help="where the shift is measured: identity (the inputs, default), a "
                     "submodule of the old model such as layer4, or saved (key `features`)")  # fmt: skip
    how.add_argument(
        "--unit-features", action="store_true", help="scale every feature row to length 1, as the paper does"
    )
    how.add_argument("--gradients", choices=("inputs", "features"), default="inputs",
                     help="take sensitivities in the inputs (default) or at the submodule of --features")  # fmt: skip
    how.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                     help="a setting such as q=0.95 or distance=wasserstein1; repeat for several")  # fmt: skip
    how.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, mps")
    how.add_argument(
        "--batch-size", type=int, default=1024, metavar="N", help="rows per pass of a model (default 1024)"
    )
    how.add_argument("--seed", type=int, default=0, help="of splits and subsamples (default 0)")


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Load everything and measure, one case per anchor.

    Raises:
        ToolError, ValueError: for anything that a user can mend.
    """
    stages, device = Stages(), _device(arguments.device)
    loss = loss_from(arguments.loss)
    settings = settings_from(arguments.settings, batch_size=arguments.batch_size)
    generator = torch.Generator().manual_seed(arguments.seed)
    with stages("models"):
        models = (
            load_model(arguments.model, "--model", trust=arguments.trust, device=device),
            load_model(arguments.new_model, "--new-model", trust=arguments.trust, device=device),
        )
    with stages("data"):
        loader = _Loader(arguments, models, loss.classification, device, generator)
        anchors, target, target_val = loader.samples()
    question = Question(
        loss=loss,
        settings=settings,
        features=arguments.features or ("identity" if loader.has_inputs else "saved"),
        unit_features=arguments.unit_features,
        gradients=arguments.gradients,
        scale_epsilon=not arguments.unit_features and not any(s.startswith("epsilon=") for s in arguments.settings),
    )
    found = measure(models, anchors, target, target_val, question, generator=generator, stages=stages)
    classes = loader.classes or ()
    return [case._replace(classes=classes, notes=(*loader.notes, *case.notes)) for case in found]


class _Loader:
    """Reads all files with one understanding of the classes, and makes the splits that are missing."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        models: tuple[AnyModel, AnyModel],
        classification: bool,
        device: torch.device,
        generator: torch.Generator,
    ) -> None:
        self.arguments, self.models, self.device, self.generator = arguments, models, device, generator
        self.classification = classification
        self.reading = Reading(label=arguments.label)
        self.classes = _classes(arguments.classes, models)
        self.has_inputs = True
        self.notes: list[str] = []

    def samples(self) -> tuple[list[Anchor], Part, Part]:
        """All anchors, the target, and its held-out part."""
        a = self.arguments
        sources = named_paths(a.source, "--source", _ANCHOR)
        only = next(iter(sources)) if len(sources) == 1 else _ANCHOR
        vals, tests = (
            named_paths(texts, option, only)
            for texts, option in ((a.source_val, "--source-val"), (a.anchor_test, "--anchor-test"))
        )
        for option, paths in (("--source-val", vals), ("--anchor-test", tests)):
            stray = next((name for name in paths if name not in sources), None)
            if stray is not None:
                raise ToolError(f"{option} is for {stray!r}, which is no anchor: name one of {', '.join(sources)}")
        anchors = []
        for name, path in sources.items():
            source, val = self._pair(path, vals.get(name), "--source")
            anchors.append(Anchor(name, source, val, self._part(tests[name]) if name in tests else None))
        return anchors, *self._pair(a.target, a.target_val, "--target")

    def _pair(self, path: str, val: str | None, option: str) -> tuple[Part, Part]:
        part = self._part(path)
        if val is not None:
            return part, self._part(val)
        train, held = held_out(part, self.generator)
        kind = "stratified " if part.sample.y is not None and self.classification else ""
        self.notes.append(
            f"{len(held.names)} of the {len(part.names)} rows of {path} are held out ({kind}15 percent, seed "
            f"{self.arguments.seed}); if the models were trained on them, give {option}-val"
        )
        return train, held

    def _part(self, path: str) -> Part:
        rows = read_rows(path, self.reading)
        self._check_inputs(rows)
        if self.classes is None and rows.classes is not None:
            self.classes = rows.classes
        part = ready(rows, self.classes, classification=self.classification, device=self.device)
        return at_most(part, self.arguments.limit, self.generator)

    def _check_inputs(self, rows: Rows) -> None:
        if rows.has_inputs:
            return
        self.has_inputs = False
        given = next((m for m in self.models if not isinstance(m, SavedOutputs)), None)
        if given is not None:
            raise ToolError(f"{rows.origin} holds no x, which {given.name} needs as its inputs: add it")


def _classes(listed: str | None, models: tuple[AnyModel, AnyModel]) -> tuple[str, ...] | None:
    """Names by output: as listed, or as the models have them."""
    if listed is not None:
        return tuple(name.strip() for name in listed.split(","))
    old, new = models[0].classes, models[1].classes
    if old is not None and new is not None and old != new:
        raise ToolError(
            f"the models have other classes ({', '.join(old)} against {', '.join(new)}): compare models with the same "
            "outputs"
        )
    return old if old is not None else new


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ToolError(f"--device {name} is not available ({str(error).splitlines()[0]}): use cpu") from error
    return device
