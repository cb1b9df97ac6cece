"""The options that name models and data, and the cases they ask for."""

from __future__ import annotations

import argparse

import torch

from ..io.data import FORMATS as DATA
from ..io.errors import UserError
from ..io.models import FORMATS as MODELS
from ..io.models import load_model
from .case import Case, measure
from .loading import Loader
from .options import loss_from, seed, settings_from, whole
from .preparing import Question
from .stages import Stages

__all__ = ["Case", "add_input_arguments", "cases", "input_defaults"]


def add_input_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """All options that name models and data; ``required``: samples must be given."""
    models = parser.add_argument_group("models", f"each is {MODELS}")
    models.add_argument(
        "--model", metavar="MODEL", help="the old model Q; without it, `logits` saved in the data files"
    )
    models.add_argument("--new-model", metavar="MODEL", help="the new model Q~; without it, `new_logits` saved there")
    models.add_argument(
        "--trust", action="store_true", help="run the code that a model file brings (pickle, .pt2, ...)"
    )
    data = parser.add_argument_group("samples", f"each is {DATA}; NAME= only where there are several anchors")
    data.add_argument("--source", action="append", required=required, metavar="[NAME=]DATA",
                      help="training data of Q, the anchor; repeat for several")  # fmt: skip
    data.add_argument("--target", required=required, metavar="DATA", help="training data of Q~; labels may be missing")
    data.add_argument("--source-val", action="append", default=[], metavar="[NAME=]DATA",
                      help="anchor data that no model was trained on; the gate asks for it")  # fmt: skip
    data.add_argument("--target-val", metavar="DATA", help="target data that no model was trained on")
    data.add_argument("--hold-out", action="store_true",
                      help="hold out 15 percent of --source and --target where no -val is given: only if no model was "
                      "trained on them")  # fmt: skip
    data.add_argument("--anchor-test", action="append", default=[], metavar="[NAME=]DATA",
                      help="labelled anchor data, for the true change of the risk")  # fmt: skip
    data.add_argument("--label", metavar="COLUMN", help="label column of tables (default: label, y or target)")
    data.add_argument(
        "--classes", metavar="A,B,...", help="class names in the order of the outputs, for labels by name"
    )
    data.add_argument("--limit", type=whole, metavar="N", help="at most N rows of each sample, drawn with the seed")
    data.add_argument("--image-size", type=whole, metavar="N", help="pixels a side (default: the timm model's, or 224)")
    data.add_argument("--pixels", choices=("imagenet", "unit"), default="imagenet",
                      help="images for other models: ImageNet's mean and deviation (default), or [0, 1]")  # fmt: skip
    how = parser.add_argument_group("how")
    how.add_argument("--loss", default="cross-entropy", metavar="LOSS",
                     help="cross-entropy[:CLIP] (default, logits clipped to 10) or squared-error[:LIMIT]")  # fmt: skip
    how.add_argument("--features", metavar="H", help="where the shift is measured: identity (the inputs, default), a "
                     "submodule of the old model such as layer4, or saved (key `features`)")  # fmt: skip
    how.add_argument(
        "--unit-features", action="store_true", help="scale every feature row to length 1, as the paper does"
    )
    how.add_argument("--scale", choices=("auto", "columns", "none"), default="auto",
                     help="measure inputs in units of their columns' standard deviation: for tables (auto), always, "
                     "or never")  # fmt: skip
    how.add_argument("--gradients", choices=("inputs", "features"), default="inputs",
                     help="take sensitivities in the inputs (default) or at the submodule of --features")  # fmt: skip
    how.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
                     help="a setting such as q=0.95 or distance=wasserstein1; repeat for several")  # fmt: skip
    how.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1; one that computes in float64")
    how.add_argument(
        "--batch-size", type=whole, default=1024, metavar="N", help="rows per pass of a model (default 1024)"
    )
    how.add_argument("--seed", type=seed, default=0, help="of splits and subsamples (default 0)")


def input_defaults() -> dict[str, tuple[str, object]]:
    """By option: the argument's name and its default."""
    parser = argparse.ArgumentParser(add_help=False)
    add_input_arguments(parser, required=False)
    return {action.option_strings[0]: (action.dest, action.default) for action in parser._actions}


def cases(arguments: argparse.Namespace) -> list[Case]:
    """Load everything and measure, one case per anchor.

    Raises:
        UserError, ValueError: for anything that a user can mend.
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
        loader = Loader(arguments, models, classification=loss.classification, device=device, generator=generator)
        anchors, target, target_val = loader.samples()
    classes = loader.classes or ()
    features = arguments.features or ("identity" if loader.has_inputs else "saved")
    if arguments.scale == "columns" and features == "saved":
        raise UserError("--scale columns changes inputs, but the shift is measured in saved features: save them scaled")
    if arguments.gradients == "features" and features in ("identity", "saved"):
        raise UserError("--gradients features needs --features SUBMODULE, where they are taken: name one of the models")
    question = Question(
        loss=loss,
        classes=classes,
        settings=settings,
        features=features,
        unit_features=arguments.unit_features,
        gradients=arguments.gradients,
        scale_columns=arguments.scale == "columns" or (arguments.scale == "auto" and loader.tables),
        page=bool(arguments.html),
        scale_epsilon=not arguments.unit_features and not any(s.startswith("epsilon=") for s in arguments.settings),
    )
    found = measure(models, anchors, target, target_val, question, generator=generator, stages=stages)
    return [case._replace(notes=(*loader.notes, *case.notes)) for case in found]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        float(torch.ones(1, dtype=torch.float64, device=device).sum())  # mps has no float64, meta no values
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"--device {name} is not available ({str(error).splitlines()[0]}): use cpu") from error
    return device
