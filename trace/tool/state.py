"""A labelling on disk: the labels told, what they are about, and beside it the outputs of both models.

The models run once. Later calls read the outputs, so that no rounding of another machine changes the order; models and
rows that are given again must be the same by their SHA-256.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..gate.labelling import Labelling
from ..io.data import read_npz
from ..io.errors import UserError, explain
from ..io.opened import read_bytes
from ..io.rows import numbers
from ..io.writing import read_json, replacement, sealed, strict_json, write_atomically
from ..losses import Loss, ZeroOne
from .options import loss_from
from .record import versions

FORMAT = "trace-labels/1"
MAKER = "label --state"


class SavedLabelling(NamedTuple):
    """What a state file holds."""

    labelling: Labelling
    asked: Mapping[str, Any]
    """The options that it was begun with: threshold, confidence, scope, loss, seed, id."""
    files: Mapping[str, str]
    """SHA-256 of ``model``, ``new_model`` and ``rows``, as far as they are files."""
    code: Mapping[str, str]
    """Models that are code, by the same names: ``module:function``."""
    classes: tuple[str, ...] | None
    columns: tuple[str, ...] | None
    """Of the inputs, in a table."""
    digest: str = ""
    """Of the state file as it was last read or written."""


def outputs_path(state: Path) -> Path:
    """Where the outputs of both models stand."""
    return state.with_suffix(".outputs.npz")


def loss_of(text: str) -> Loss:
    """A loss that labels can be asked for: zero-one, or those of `loss_from`."""
    if text == "zero-one":
        return ZeroOne()
    try:
        return loss_from(text)
    except UserError as error:
        raise UserError(f"{error}, or zero-one") from error


def write_outputs(state: Path, labelling: Labelling) -> None:
    """The outputs, on the disk before the state that speaks of them."""
    data = io.BytesIO()
    old, new = (z.detach().cpu().numpy() for z in (labelling.outputs, labelling.candidates[0]))
    np.savez(data, logits=old, new_logits=new)
    with replacement(outputs_path(state), sync=True) as aside:
        aside.write_bytes(data.getvalue())


def write_state(path: Path, saved: SavedLabelling) -> SavedLabelling:
    """Put the state on the disk in one step; it returns what is there now.

    Raises:
        UserError: where another process changed it meanwhile.
    """
    if path.exists() != bool(saved.digest) or (saved.digest and _digest(path) != saved.digest):
        raise UserError(f"{path} was changed by another process meanwhile: run the command again")
    state = saved.labelling.state
    record = sealed(
        {
            "format": FORMAT,
            "decision": state.decision,
            "in_words": state.in_words(),
            "labelling": saved.labelling.as_record(),
            **{name: getattr(saved, name) for name in ("asked", "files", "code", "classes", "columns")},
            "versions": versions(),
        }
    )
    write_atomically(path, strict_json(record))
    return saved._replace(digest=record["digest"])


def read_state(path: Path) -> SavedLabelling:
    """The labelling with all labels told so far.

    Raises:
        UserError: where the file is none, was edited, or its outputs are missing or others.
    """
    record = read_json(path, FORMAT, MAKER, seal=True)
    outputs = outputs_path(path)
    if not outputs.exists():
        raise UserError(f"{outputs}, the outputs of both models, is missing: put it back beside {path}, or begin anew")
    arrays = read_npz(read_bytes(outputs))
    with explain(
        f"{path} is damaged", "begin anew", LookupError, TypeError, ValueError, AttributeError, ArithmeticError
    ):
        if not {"logits", "new_logits"} <= set(arrays):
            raise UserError(f"{outputs} holds no logits and new_logits: put the right one back, or begin anew")
        old, new = (numbers(arrays[name], f"{outputs}: {name}") for name in ("logits", "new_logits"))
        loss = loss_of(str(record["asked"]["loss"]))
        try:
            labelling = Labelling.resumed(record["labelling"], old, new, loss=loss)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error
        asked, files, code = (dict(record[name]) for name in ("asked", "files", "code"))
        classes, columns = (None if record[name] is None else tuple(record[name]) for name in ("classes", "columns"))
        return SavedLabelling(labelling, asked, files, code, classes, columns, record["digest"])


def _digest(path: Path) -> str:
    return str(read_json(path, FORMAT, MAKER, seal=True)["digest"])
