"""Values of options that are more than a word: settings, losses, named paths, lists."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import re
from pathlib import Path
from typing import Any

from ..gate.intervals import SCORES
from ..io.errors import UserError
from ..losses import ClippedCrossEntropy, Loss, SquaredError
from ..settings import Settings

_LOSSES = "cross-entropy[:CLIP] or squared-error[:LIMIT]"


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
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(fields)}"
            raise UserError(f"--set {pair}: there is no setting {key!r}, {hint} (--set KEY=VALUE)")
        values[key] = _value(text, fields[key], pair)
    return Settings(**values)


def _value(text: str, field: dataclasses.Field[Any], pair: str) -> Any:
    kind = str(field.type)
    if "None" in kind and text.lower() in ("", "none"):
        return None
    if "float" not in kind and "int" not in kind:
        return text
    try:
        return int(text) if kind.startswith("int") else float(text)
    except ValueError:
        wanted = "a whole number" if kind.startswith("int") else "a number"
        raise UserError(f"--set {pair}: {field.name} must be {wanted}, got {text!r}") from None


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


def score_list() -> str:
    """The scores of a gate and what each is, for ``--help``."""
    width = max(map(len, SCORES))
    return "\n".join(["scores:", *(f"  {name:{width}}  {score.meaning}" for name, score in SCORES.items())])


def named_paths(texts: list[str], option: str, default: str) -> dict[str, str]:
    """``NAME=PATH`` by name; a path alone has the name ``default``.

    >>> named_paths(["real=a.npz", "sketch=b.npz"], "--source", "source")
    {'real': 'a.npz', 'sketch': 'b.npz'}
    """
    paths: dict[str, str] = {}
    for text in texts:
        match = None if Path(text).exists() else re.fullmatch(r"([\w.-]+)=(.+)", text)
        name, path = (match[1], match[2]) if match else (default, text)
        if name in paths:
            raise UserError(f"{option} names {name!r} twice: give every anchor its own name, {option} NAME=PATH")
        paths[name] = path
    return paths
