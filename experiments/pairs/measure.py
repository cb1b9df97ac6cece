"""One pair (Q, Q~) measured: every term of the diagnostic, anchor terms and the true risk change, as one flat row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trace import Diagnostic, Sample, Settings
from trace.diagnostic import assemble
from trace.estimators.rkhs_norm import Spectrum, kernel_spectrum
from trace.estimators.sinkhorn import SelfTransport, self_transport, sinkhorn_floor
from trace.estimators.wasserstein1 import wasserstein1
from trace.evidence import RiskChange, Shift, gather, measure_shift
from trace.features import FeatureMap, extract
from trace.losses import ClippedCrossEntropy, ZeroOne
from trace.training.stack import sigmoid_twin

from ..engine.records import significant
from ..engine.seeds import seeded
from .train import Split

LOSS = ClippedCrossEntropy()
SETTINGS = Settings()
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
    self_transport: SelfTransport
    floor: float


@torch.no_grad()
def anchor_losses(model: nn.Sequential, test: Sample, *, chunk: int = 20_000) -> Losses:
    """Losses and 0-1 errors on a large test sample, in chunks."""
    if test.y is None:
        raise ValueError("the anchor test sample must have labels: return Sample(x, y) from the world")
    twin = sigmoid_twin(model)
    logits = torch.cat([twin(x) for x in test.x.split(chunk)])
    return Losses(LOSS(logits, test.y).double(), ZeroOne()(logits, test.y).double())


def source_features(h: FeatureMap, source: Split, seed: int) -> SourceFeatures:
    u = extract(h, source.train.x)
    half = sinkhorn_floor(u, epsilon=SETTINGS.epsilon, num_iters=SETTINGS.num_iters, num_splits=1,
                          generator=seeded("floor", seed))  # fmt: skip
    own = self_transport(u, epsilon=SETTINGS.epsilon, num_iters=SETTINGS.num_iters)
    return SourceFeatures(u, own, half.value)


def distances(h: FeatureMap, source: SourceFeatures, target: Split, *, exact: bool) -> Distances:
    u = extract(h, target.train.x)
    shift = measure_shift(source.u, u, SETTINGS, source_self=source.self_transport)
    spectrum = kernel_spectrum(extract(h, target.val.x), kernel=SETTINGS.kernel, bandwidth=shift.mmd.bandwidth)
    return Distances(shift, spectrum, source.floor, wasserstein1(source.u, u).value if exact else None)


def diagnose_pair(
    old: nn.Module,
    new: nn.Module,
    source: Split,
    target: Split,
    between: Distances,
    h: FeatureMap,
    losses: tuple[Losses, Losses],
) -> Diagnostic:
    """The full diagnostic; the anchor losses of both models were computed before, Q's once for all its updates."""
    evidence = gather(
        old, new, source.train, target.train,
        source_val=source.val, target_val=target.val, loss=LOSS, feature_map=h,
        shift=between.shift, spectrum=between.spectrum, settings=SETTINGS,
    )  # fmt: skip
    change = losses[1].values - losses[0].values
    errors = float((losses[1].wrong - losses[0].wrong).mean())
    known = RiskChange(float(change.mean()), float(change.std() / len(change) ** 0.5), errors, len(change))
    return assemble(evidence._replace(risk_change=known), SETTINGS)


def row(diagnostic: Diagnostic) -> Row:
    """What a record keeps of a pair: estimates, from which `analysis.frame` derives terms, bounds and scores."""
    e = diagnostic.evidence
    if e.risk_change is None or e.sensitivity_source is None or e.sensitivity_target is None or e.rkhs_norm is None:
        raise ValueError(f"a pair of a synthetic world lacks an estimate: {diagnostic.reasons}")
    return {
        "risk_change": e.risk_change.value,
        "error_change": e.risk_change.error_rate,
        "gap_source": diagnostic.gap_source,
        "gap_target": diagnostic.gap_target,
        "output_distance": e.output_distance.value,
        "output_distance_squared": e.output_distance.squared,
        "sensitivity_source": e.sensitivity_source.value,
        "sensitivity_target": e.sensitivity_target.value,
        "transport": e.shift.transport.value,
        "mmd_squared": e.shift.mmd.squared,
        "rkhs_norm": e.rkhs_norm.value,
        "rkhs_at_edge": float(e.rkhs_norm.at_edge),
        "population_ot": diagnostic.population_ot,
        "population_mmd": diagnostic.population_mmd,
        "anchor_worst_label": e.anchor.worst_label.value,
        "anchor_upper": e.anchor.worst_label.bernstein.upper,
        "anchor_lipschitz": e.anchor.lipschitz.value,
        "anchor_disagreement": e.anchor.disagreement.value,
        "anchor_plug_in": e.anchor.plug_in.value,
    }


def remainders(diagnostic: Diagnostic) -> Row:
    """What the bounds need besides a `row`: statistical terms of the sizes, and the loss's Lipschitz constant."""
    return {
        "label_noise": diagnostic.label_noise,
        "validation_error": diagnostic.validation_error,
        "lipschitz_loss": diagnostic.evidence.lipschitz,
    }


def columns(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Rows of equal keys as one list per key, rounded to what a record keeps."""
    return {name: [significant(r[name], DIGITS) for r in rows] for name in rows[0]}
