"""Benchmark cases of asking for labels: the next rows of a large file, and a decision replayed from its record.

    python -m experiments benchmark --case labels

The value is the first row that is asked for, or the upper end of the interval.
"""

from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from trace.gate import Labelling
from trace.losses import ClippedCrossEntropy, Loss, ZeroOne

from . import BenchmarkCase, Target

CLASSES = 10
ASKED = 20
LOSSES: dict[str, Loss] = {"zero-one": ZeroOne(), "cross-entropy": ClippedCrossEntropy()}
PROMISES = (Target("ours", "seconds", at_most=1.0), Target("ours", "bytes", at_most=5e8))


def cases(size: dict[str, int]) -> list[BenchmarkCase]:
    """By loss."""
    n, told = size["n_anchor"], size["n_told"]
    return [
        case
        for name, loss in LOSSES.items()
        for case in (
            BenchmarkCase(
                f"labels, next rows, {name}",
                f"{ASKED} of {n} x {CLASSES}",
                partial(outputs, n),
                {"ours": partial(first_row, loss)},
                PROMISES,
            ),
            BenchmarkCase(
                f"labels, replayed, {name}",
                f"{told} labels, {4 * told} x {CLASSES}",
                partial(begun, 4 * told, told, loss),
                {"ours": partial(replayed, loss)},
                PROMISES[:1],
            ),
        )
    ]


def outputs(n: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Logits of an old and a new model ``[n, C]`` that often disagree."""
    old = torch.randn(n, CLASSES, generator=generator)
    return old, old + torch.randn(n, CLASSES, generator=generator)


def first_row(loss: Loss, old: Tensor, new: Tensor) -> float:
    labelling = Labelling(old, new, limit=0.01, loss=loss, generator=Generator().manual_seed(0))
    return float(labelling.next_rows(ASKED)[0])


def begun(n: int, told: int, loss: Loss, generator: Generator) -> tuple[dict[str, Any], Tensor, Tensor]:
    """The record of a labelling that this many labels leave undecided, at its limit, and its outputs."""
    old, new = outputs(n, generator)
    y = torch.randint(CLASSES, (n,), generator=generator)
    limit = float((loss(new.double(), y) - loss(old.double(), y)).mean())
    labelling = Labelling(old, new, limit=limit, loss=loss, confidence=1 - 1e-9, generator=generator)
    rows = labelling.next_rows(told)
    labelling.tell(rows, y[rows])
    return labelling.as_record(), old, new


def replayed(loss: Loss, record: dict[str, Any], old: Tensor, new: Tensor) -> float:
    return Labelling.resumed(record, old, new, loss=loss).state.upper
