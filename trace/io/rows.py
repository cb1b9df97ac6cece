"""What a data file holds, before and after its labels are matched with a model's outputs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..hardware import placed
from ..sample import Sample, stratified_split
from ..stats.held_out import Keys, fault, id_keys, row_keys
from .errors import UserError


class FileRows(NamedTuple):
    """Inputs and labels as they stand in a file."""

    origin: str
    """The file, for messages."""
    x: Tensor
    """Inputs ``[n, ...]``; the saved features where there are none."""
    labels: np.ndarray[Any, Any] | None
    """``[n]``: whole numbers, real numbers or names."""
    names: list[str]
    saved: Mapping[str, Tensor] = {}
    """``features [n, k]``, ``logits [n, C]`` and ``new_logits [n, C]``, where the file holds them."""
    has_inputs: bool = True
    classes: tuple[str, ...] | None = None
    """Names of the classes by label, where the layout tells."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of ``x``, in a table."""
    ignored: tuple[str, ...] = ()
    """Columns of a table that are neither input nor label."""
    groups: tuple[str, ...] | None = None
    """``[n]``: what each row belongs to, where that was asked for and the file tells."""
    ids: np.ndarray[Any, Any] | None = None
    """``[n]``: which row is which, where the file tells."""
    sha256: str = ""
    """Of the bytes that were read."""


def numbers(array: np.ndarray[Any, Any], name: str) -> Tensor:
    """A finite float tensor: float64 stays, everything else becomes float32."""
    if not (np.issubdtype(array.dtype, np.number) or array.dtype == np.bool_) or np.iscomplexobj(array):
        raise UserError(f"{name} holds {array.dtype} values: real numbers are needed")
    dtype = np.float64 if array.dtype == np.float64 else np.float32
    tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=dtype))
    if tensor.ndim == 1:
        tensor = tensor[:, None]
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        row = int((~finite).reshape(len(tensor), -1).any(dim=1).nonzero()[0])
        raise UserError(f"{name} holds NaN or infinity (first in row {row}): drop or repair such rows")
    if tensor.numel() == 0:
        raise UserError(f"{name} is empty (shape {list(array.shape)}): pass at least one sample")
    return tensor


def group_names(values: Iterable[object]) -> tuple[str, ...]:
    """What rows belong to, as text; a value that is not there is the group "missing".

    A whole number is the same group however it was read: holes turn a column of them into floats.

    >>> group_names(["a", float("nan"), None, 3, 3.0])
    ('a', 'missing', 'missing', '3', '3')
    """

    def name(value: object) -> str:
        if value is None or value != value or value == "":
            return "missing"
        return str(int(value) if isinstance(value, float) and value.is_integer() else value)

    return tuple(map(name, values))


class Part(NamedTuple):
    """Rows that are ready for the models."""

    origin: str
    sample: Sample
    names: list[str]
    saved: Mapping[str, Tensor]
    ids: Keys | None = None
    """Which row is which, where the file tells."""

    def at(self, chosen: Tensor) -> "Part":
        """The rows at the indices ``chosen``, in that order."""
        return Part(
            self.origin,
            self.sample.at(chosen),
            [self.names[i] for i in chosen.tolist()],
            {key: rows[chosen.to(rows.device)] for key, rows in self.saved.items()},
            None if self.ids is None else self.ids[chosen.cpu().numpy()],
        )


def hold_out(part: Part, generator: torch.Generator, fraction: float = 0.15) -> tuple[Part, Part]:
    """Training and validation parts, stratified by class."""
    y = None if part.sample.y is None else part.sample.y.cpu()
    numbered = Sample(torch.arange(len(part.names), dtype=torch.float64)[:, None], y)
    train, val = stratified_split(numbered, fraction=fraction, generator=generator)
    return part.at(train.x[:, 0].long()), part.at(val.x[:, 0].long())


def at_most(part: Part, limit: int | None, generator: torch.Generator) -> Part:
    """A random choice of ``limit`` rows, in their order."""
    if limit is None or len(part.names) <= limit:
        return part
    return part.at(torch.randperm(len(part.names), generator=generator)[:limit].sort().values)


def to_part(rows: FileRows, classes: Sequence[str] | None, *, classification: bool, device: torch.device) -> Part:
    """Labels as targets, everything on one device."""
    y = None if rows.labels is None else targets(rows, classes, classification=classification)
    return Part(
        rows.origin,
        Sample(placed(rows.x, device), None if y is None else placed(y, device), rows.groups),
        rows.names,
        {key: placed(tensor, device) for key, tensor in rows.saved.items()},
        None if rows.ids is None else id_keys(rows.ids),
    )


def not_held_out(train: Part, held_out: Part) -> str:
    """Why rows do not count as held out, by their ids where both parts have them; empty where they do."""
    if train.ids is not None and held_out.ids is not None:
        return fault(train.ids, held_out.ids, certain=True)
    return fault(row_keys(train.sample.x), row_keys(held_out.sample.x))


def targets(rows: FileRows, classes: Sequence[str] | None, *, classification: bool) -> Tensor:
    """Class indices, or real targets in the inputs' precision.

    Raises:
        UserError: for missing labels, names without a list of classes, or a label that is none of the classes.
    """
    labels = rows.labels
    assert labels is not None
    numeric = np.issubdtype(labels.dtype, np.number)
    if numeric and not np.isfinite(labels).all():
        row = int(np.flatnonzero(~np.isfinite(labels))[0])
        raise UserError(f"{rows.origin}: the label of row {row} is missing or infinite: drop such rows")
    if not classification:
        if not numeric:
            raise UserError(f"{rows.origin}: the target {labels[0]!r} is no number, which squared error needs")
        return torch.from_numpy(labels.astype(np.float64)).to(rows.x.dtype)
    if numeric and (labels != np.round(labels)).any():
        row = int(np.flatnonzero(labels != np.round(labels))[0])
        raise UserError(
            f"{rows.origin}: the label of row {row} is {labels[row]:g}, no class: give whole numbers, or "
            "`--loss squared-error` for regression"
        )
    if classes is None or (numeric and not any(name.lstrip("-").isdigit() for name in classes)):
        if not numeric:
            raise UserError(
                f"{rows.origin}: labels are names such as {str(labels[0])!r}, and nothing says which output is which: "
                "list them in the order of the outputs with --classes A,B,..."
            )
        return torch.from_numpy(labels.astype(np.int64))
    index = {name: i for i, name in enumerate(classes)}
    keys = [str(int(label)) if numeric else str(label) for label in labels]
    unknown = next((key for key in keys if key not in index), None)
    if unknown is not None:
        shown = ", ".join(list(index)[:8]) + (", ..." if len(index) > 8 else "")
        raise UserError(f"{rows.origin}: {unknown!r} is none of the classes ({shown}): relabel it or drop its rows")
    return torch.tensor([index[key] for key in keys])
