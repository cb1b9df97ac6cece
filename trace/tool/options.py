"""The options that name models and data, and the values of those that are more than a word."""

import argparse
import dataclasses
import os
import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from ..io.data import FORMATS as DATA
from ..io.errors import UserError, suggestion
from ..io.models import FORMATS as MODELS
from ..io.writing import write_output
from ..losses import ClippedCrossEntropy, Loss, SquaredError
from ..scores import GATE_SCORES
from ..settings import Settings

FORMS = ("json", "markdown", "html", "junit")
"""Of an answer, each an option."""
_LOSSES = "cross-entropy[:CLIP] or squared-error[:LIMIT]"


def add_input_arguments(parser: argparse.ArgumentParser, *, required: bool = True, only: Collection[str] = ()) -> None:
    """All options that name models and data, or ``only`` some of them; ``required``: samples must be given."""
    groups: dict[tuple[str, str | None], dict[str, dict[str, Any]]] = {
        ("models", f"each is {MODELS}"): {
            "--model": {"metavar": "MODEL", "help": "the old model Q; without it, `logits` saved in the data files"},
            "--new-model": {"metavar": "MODEL", "help": "the new model Q~; without it, `new_logits` saved there"},
            "--arch": {
                "metavar": "MODULE:FUNCTION",
                "help": "what makes the network of a model that is a state dict; it is code and needs --trust",
            },
            "--trust": {
                "action": "store_true",
                "help": "run the code that a model file brings (TorchScript, torch.export, pickle, ...)",
            },
        },
        ("samples", f"each is {DATA}; NAME= only where there are several anchors"): {
            "--source": {
                "action": "append",
                "required": required,
                "metavar": "[NAME=]DATA",
                "help": "training data of Q, the anchor; repeat for several",
            },
            "--target": {"required": required, "metavar": "DATA", "help": "training data of Q~; labels may be missing"},
            "--source-val": {
                "action": "append",
                "default": [],
                "metavar": "[NAME=]DATA",
                "help": "anchor data that no model was trained on; the gate asks for it",
            },
            "--target-val": {"metavar": "DATA", "help": "target data that no model was trained on"},
            "--hold-out": {
                "action": "store_true",
                "help": "hold out 15 percent of --source and --target where no -val is given: only if no model was "
                "trained on them",
            },
            "--anchor-test": {
                "action": "append",
                "default": [],
                "metavar": "[NAME=]DATA",
                "help": "labelled anchor data, for the true change of the risk",
            },
            "--label": {"metavar": "COLUMN", "help": "label column of tables (default: label, y or target)"},
            "--group": {
                "metavar": "COLUMN",
                "help": "column of tables that says what a row belongs to (arrays: `group`): the worst group is judged",
            },
            "--id": {
                "metavar": "COLUMN",
                "help": "column of tables that says which row is which (arrays: key `id`), to tell held-out rows from "
                "training rows; it is no input",
            },
            "--previous": {
                "metavar": "FILE",
                "help": "of an earlier `diagnose --json` on this update: where the held-out rows begin with those of "
                "then, asking again costs no confidence",
            },
            "--classes": {"metavar": "A,B,...", "help": "class names in the order of the outputs, for labels by name"},
            "--limit": {
                "type": whole,
                "metavar": "N",
                "help": "at most N rows of each sample, drawn with the seed (default: 10000 of a training sample)",
            },
            "--image-size": {
                "type": whole,
                "metavar": "N",
                "help": "pixels a side (default: the timm model's, or 224)",
            },
            "--pixels": {
                "choices": ("imagenet", "unit"),
                "default": "imagenet",
                "help": "images for other models: ImageNet's mean and deviation (default), or [0, 1]",
            },
        },
        ("how", None): {
            "--loss": {
                "default": "cross-entropy",
                "metavar": "LOSS",
                "help": "cross-entropy[:CLIP] (default, logits clipped to 10) or squared-error[:LIMIT]",
            },
            "--features": {
                "metavar": "H",
                "help": "where the shift is measured: identity (the inputs, default), a "
                "submodule of the old model such as layer4, saved (key `features`) or logits (its saved outputs)",
            },
            "--unit-features": {
                "action": "store_true",
                "help": "scale every feature row to length 1, as the paper does",
            },
            "--scale": {
                "choices": ("auto", "columns", "none"),
                "default": "auto",
                "help": "measure inputs in units of their columns' standard deviation: for tables (auto), always, or "
                "never",
            },
            "--gradients": {
                "choices": ("inputs", "features"),
                "default": "inputs",
                "help": "take sensitivities in the inputs (default) or at the submodule of --features",
            },
            "--set": {
                "action": "append",
                "default": [],
                "metavar": "KEY=VALUE",
                "dest": "settings",
                "help": "a setting such as q=0.95 or distance=wasserstein1; repeat for several",
            },
            "--device": {"default": "cpu", "help": "cpu (default), cuda, cuda:1, mps"},
            "--batch-size": {
                "type": whole,
                "default": 1024,
                "metavar": "N",
                "help": "rows per pass of a model (default 1024)",
            },
            "--seed": {"type": seed, "default": 0, "help": "of splits and subsamples (default 0)"},
        },
    }
    for (title, description), options in groups.items():
        group = parser.add_argument_group(title, description)
        for flag, settings in options.items():
            if not only or flag in only:
                group.add_argument(flag, **settings)


def add_output_arguments(parser: argparse.ArgumentParser, **forms: str) -> None:
    """Where the forms of an answer go, ``--json`` and others; each argument says what its form is for."""
    out = parser.add_argument_group("output", "- is the standard output, in place of the text")
    for form, meaning in forms.items():
        out.add_argument(f"--{form}", metavar="FILE", help=meaning)
    out.add_argument("--verbose", action="store_true", help="print everything, not the answer in a few lines alone")


def outputs_of(arguments: argparse.Namespace) -> dict[str, str | None]:
    """What the options of `add_output_arguments` name, by option."""
    return {f"--{form}": getattr(arguments, form) for form in FORMS if hasattr(arguments, form)}


def input_paths(arguments: argparse.Namespace) -> list[Path]:
    """All files and folders that a command reads, as far as its options name them."""
    texts = [getattr(arguments, name, None) for name in ("policy", "diagnostic", "previous", "target", "target_val")]
    for name in ("model", "new_model", "arch"):
        if spec := getattr(arguments, name, None):
            module = [f"{spec.partition(':')[0].replace('.', '/')}.py"] if ":" in spec else []
            texts += [spec, spec.partition("@")[2], *module]
    for name in ("source", "source_val", "anchor_test", "labels"):
        for text in getattr(arguments, name, None) or []:
            texts += [text, text.partition("=")[2]]
    return [Path(text) for text in texts if text]


def write_forms(arguments: argparse.Namespace, text: Callable[[], str], **forms: Callable[[], str]) -> None:
    """Write the forms that the options ask for, and the text where none of them takes the standard output."""
    asked = {name: path for name in forms if (path := getattr(arguments, name))}
    for name, path in asked.items():
        write_output(path, forms[name]())
    if "-" not in asked.values():
        write_output("-", text())


def input_defaults() -> dict[str, tuple[str, object]]:
    """By option: the argument's name and its default."""
    parser = argparse.ArgumentParser(add_help=False)
    add_input_arguments(parser, required=False)
    return {action.option_strings[0]: (action.dest, action.default) for action in parser._actions}


def score_list() -> str:
    """The scores of a gate and what each is, for ``--help``."""
    width = max(map(len, GATE_SCORES))
    return "\n".join(["scores:", *(f"  {name:{width}}  {score.meaning}" for name, score in GATE_SCORES.items())])


def whole(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, got {text!r}")
    return int(text)


def seed(text: str) -> int:
    """A seed that torch takes, for argparse."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"a whole number from 0 to 2^63 - 1 is needed, got {text!r}")
    return int(text)


def named_paths(texts: list[str], option: str, default: str) -> dict[str, str]:
    """``NAME=PATH`` by name; a path alone has the name ``default``.

    >>> named_paths(["real=a.npz", "sketch=b.npz"], "--source", "source")
    {'real': 'a.npz', 'sketch': 'b.npz'}
    """
    paths: dict[str, str] = {}
    for text in texts:
        match = None if os.path.exists(text) else re.fullmatch(r"([\w.-]+)=(.+)", text)
        name, path = (match[1], match[2]) if match else (default, text)
        if name in paths:
            raise UserError(f"{option} names {name!r} twice: give every anchor its own name, {option} NAME=PATH")
        paths[name] = path
    return paths


def loss_from(text: str) -> Loss:
    """A loss and its limit.

    >>> loss_from("squared-error:2").bound(1)
    16.0
    """
    name, _, number = text.partition(":")
    try:
        limit = float(number) if number else None
    except ValueError:
        raise UserError(f"--loss {text}: {number!r} is no number: use {_LOSSES}") from None
    try:
        if name == "cross-entropy":
            return ClippedCrossEntropy() if limit is None else ClippedCrossEntropy(limit)
        if name == "squared-error":
            return SquaredError(limit)
    except ValueError as error:
        raise UserError(f"--loss {text}: {error}") from error
    raise UserError(f"--loss {text} is not known: use {_LOSSES}")


def settings_from(pairs: list[str], *, batch_size: int) -> Settings:
    """`Settings` from ``key=value`` texts.

    >>> settings_from(["q=0.95", "distance=wasserstein1"], batch_size=64).q
    0.95
    """
    fields = {field.name: field for field in dataclasses.fields(Settings)}
    values: dict[str, Any] = {"batch_size": batch_size}
    for pair in pairs:
        key, found, text = pair.partition("=")
        if not found or key not in fields:
            hint = suggestion(key, fields, f"known are {', '.join(fields)}", cutoff=0.6)
            raise UserError(f"--set {pair}: there is no setting {key!r}, {hint} (--set KEY=VALUE)")
        values[key] = _value(text, fields[key], pair)
    return Settings(**values)


def _value(text: str, field: dataclasses.Field[Any], pair: str) -> Any:
    kind = str(field.type)
    if "None" in kind and text.lower() in ("", "none"):
        return None
    if "float" not in kind and "int" not in kind:
        return text
    parse, wanted = (int, "a whole number") if kind.startswith("int") else (float, "a number")
    try:
        return parse(text)
    except ValueError:
        raise UserError(f"--set {pair[:80]}: {field.name} must be {wanted}, got {text[:40]!r}") from None


def device_from(name: str) -> torch.device:
    """A device that is here."""
    try:
        device = torch.device(name)
        float(torch.ones(1, device=device).sum())  # meta has no values
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(f"--device {name} is not available ({str(error).splitlines()[0]}): use cpu") from error
    return device
