"""One pair (Q, Q~) measured: every term of the diagnostic, anchor terms and the true risk change, as one flat row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trace import Diagnostic, Sample, Settings, diagnose
from trace.estimators.rkhs_norm import Spectrum, kernel_spectrum
from trace.estimators.sinkhorn import SelfTransport, sinkhorn_floor
from trace.estimators.wasserstein1 import wasserstein1
from trace.evidence import Known, RiskChange, Shift, measure_shift, shared_self
from trace.features import FeatureMap, extract
from trace.losses import Loss, ZeroOne
from trace.training.stack import sigmoid_twin

from ..engine.records import significant
from ..engine.seeds import seeded
from .train import Split

DIGITS = 6
"""Significant digits of stored numbers."""

Row = dict[str, float]


class Losses(NamedTuple):
    """A model's losses on the anchor test sample, ``[N]`` each."""

    values: Tensor
    wrong: Tensor


class Distances(NamedTuple):
    """What the features of one source and one target sample have between them, shared by all models that see them."""

    shift: Shift
    spectrum: Spectrum
    """Of the held-out target features."""
    floor: float
    """Sinkhorn divergence between halves of the source."""
    w1: float | None
    """The distance that the theorem needs; None where it was not asked for."""


class SourceFeatures(NamedTuple):
    """Source features with their self-transport and floor, shared by all targets."""

    u: Tensor
    self_transport: SelfTransport | None
    floor: float


@torch.no_grad()
def anchor_losses(model: nn.Sequential, test: Sample, loss: Loss, *, chunk: int = 20_000) -> Losses:
    """Losses and 0-1 errors on a large test sample, in chunks."""
    if test.y is None:
        raise ValueError("the anchor test sample must have labels: return Sample(x, y) from the world")
    twin = sigmoid_twin(model)
    logits = torch.cat([twin(x) for x in test.x.split(chunk)])
    return Losses(loss(logits, test.y).double(), ZeroOne()(logits, test.y).double())


def source_features(h: FeatureMap, source: Split, seed: int, settings: Settings) -> SourceFeatures:
    u = extract(h, source.train.x)
    half = sinkhorn_floor(
        u, epsilon=settings.epsilon, num_iters=settings.num_iters, num_splits=1, generator=seeded("floor", seed)
    )
    return SourceFeatures(u, shared_self(u, settings), half.value)


def distances(h: FeatureMap, source: SourceFeatures, target: Split, settings: Settings, *, exact: bool) -> Distances:
    u = extract(h, target.train.x)
    shift = measure_shift(source.u, u, settings, source_self=source.self_transport)
    spectrum = kernel_spectrum(extract(h, target.val.x), kernel=settings.kernel, bandwidth=shift.mmd.bandwidth)
    return Distances(shift, spectrum, source.floor, wasserstein1(source.u, u).value if exact else None)


def diagnose_pair(
    old: nn.Module,
    new: nn.Module,
    source: Split,
    target: Split,
    between: Distances,
    h: FeatureMap,
    losses: tuple[Losses, Losses],
    loss: Loss,
    settings: Settings,
) -> Diagnostic:
    """The full diagnostic; the anchor losses of both models were computed before, Q's once for all its updates."""
    change, wrong = (after - before for before, after in zip(*losses, strict=True))
    return diagnose(
        old,
        new,
        source.train,
        target.train,
        source_val=source.val,
        target_val=target.val,
        loss=loss,
        feature_map=h,
        settings=settings,
        known=Known(
            shift=between.shift,
            spectrum=between.spectrum,
            risk_change=RiskChange.of(change, float(wrong.mean())),
        ),
    )


SIZES_ALONE = ("label_noise", "validation_error", "lipschitz_loss")
"""Columns that the sizes and the loss decide: of a cell, one number each."""

KEPT = {
    **{
        name: name
        for name in (
            *("risk_change", "gap_source", "gap_target", "output_distance", "output_distance_squared"),
            *("sensitivity_source", "sensitivity_target", "transport", "mmd_squared", "rkhs_norm"),
            *("population_ot", "population_mmd"),
            *("anchor_worst_label", "anchor_lipschitz", "anchor_disagreement", "anchor_plug_in"),
            *SIZES_ALONE,
        )
    },
    "error_change": "risk_change_details_error_rate",
    "rkhs_at_edge": "rkhs_norm_at_edge",
    "anchor_upper": "anchor_worst_label_bernstein_upper",
}
"""What a record keeps of a pair, by its name in `Diagnostic.columns`: estimates, from which `analysis.frame` derives
terms, bounds and scores."""


def row(diagnostic: Diagnostic) -> Row:
    """The columns of a record.

    Raises:
        ValueError: where one of them is not available.
    """
    found = diagnostic.columns()
    missing = [name for name, column in KEPT.items() if math.isnan(found[column])]
    if missing:
        raise ValueError(f"a pair lacks {', '.join(missing)}: {diagnostic.reasons}")
    return {name: found[column] for name, column in KEPT.items()}


def columns(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Rows of equal keys as one list per key, rounded to what a record keeps."""
    return {name: [significant(r[name], DIGITS) for r in rows] for name in rows[0]}
