"""One pair (Q, Q~) measured: every term of the diagnostic, anchor terms and the true risk change, as one flat row."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from trace import Diagnostic, Sample, Settings
from trace.estimators.anchor import AnchorTerms
from trace.estimators.rkhs_norm import Spectrum, kernel_spectrum
from trace.estimators.sinkhorn import SelfTransport, sinkhorn_floor
from trace.evidence import EXACT_SAMPLES, InputDistance, Shift, input_distance, measure_shift, shared_self
from trace.features import FeatureMap, extract
from trace.losses import Loss, ZeroOne
from trace.stats.intervals import bernstein_radius
from trace.training.stack import sigmoid_twin

from ..engine.records import significant
from .train import Split

DIGITS = 6
"""Significant digits of stored numbers."""

Row = dict[str, float]


class Losses(NamedTuple):
    """A model's losses on the anchor test sample, ``[N]`` each."""

    values: Tensor
    wrong: Tensor
    clipped: float
    """Share of predictions that the loss's clipping changes."""


class Distances(NamedTuple):
    """What the features of one source and one target sample have between them, shared by all models that see them."""

    shift: Shift
    spectrum: Spectrum
    """Of the held-out target features."""
    floor: float
    """Sinkhorn divergence between halves of the source."""


class SourceFeatures(NamedTuple):
    """Source features with their self-transport and floor, shared by all targets."""

    u: Tensor
    self_transport: SelfTransport | None
    floor: float


def inputs_apart(source: Split, target: Split) -> InputDistance | str:
    """W1 between the training inputs as they are, where both samples are small enough, or a sentence."""
    if max(len(source.train.x), len(target.train.x)) > EXACT_SAMPLES:
        return f"exact for at most {EXACT_SAMPLES} rows"
    return input_distance(source.train.x, target.train.x)


@torch.no_grad()
def anchor_losses(model: nn.Sequential, test: Sample, loss: Loss, *, chunk: int = 20_000) -> Losses:
    """Losses and 0-1 errors on a large test sample, in chunks."""
    if test.y is None:
        raise ValueError("the anchor test sample must have labels: return Sample(x, y) from the world")
    twin = sigmoid_twin(model)
    logits = torch.cat([twin(x) for x in test.x.split(chunk)])
    changed = loss.clip(logits).argmax(dim=1) != logits.argmax(dim=1)
    return Losses(loss(logits, test.y).double(), ZeroOne()(logits, test.y).double(), float(changed.double().mean()))


def source_features(u: Tensor, settings: Settings, generator: Generator) -> SourceFeatures:
    """Of features ``[n, k]``; the generator draws the halves."""
    s = settings
    half = sinkhorn_floor(u, epsilon=s.epsilon, num_iters=s.num_iters, tol=s.tol, num_splits=1, generator=generator)
    return SourceFeatures(u, shared_self(u, settings), half.value)


def distances(h: FeatureMap, source: SourceFeatures, target: Split, settings: Settings) -> Distances:
    u = extract(h, target.train.x)
    shift = measure_shift(source.u, u, settings, source_self=source.self_transport)
    spectrum = kernel_spectrum(extract(h, target.val.x), kernel=settings.kernel, bandwidth=shift.mmd.bandwidth)
    return Distances(shift, spectrum, source.floor)


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
    "anchor_upper": "anchor_upper",
}
"""What a record keeps of a pair, by its name in `Diagnostic.columns` or here: estimates, from which `analysis.frame`
derives terms, bounds and scores."""


def anchor_upper(terms: AnchorTerms, delta: float) -> float:
    """Upper end of the worst-label term by Bernstein's interval: a record is one look at one number of rows."""
    term = terms.worst_label
    if term.tally is None:
        return math.nan
    radius = bernstein_radius(terms.num_samples, delta, term.deviation**2, term.tally.high - term.tally.low)
    return min(term.tally.high, term.value + radius)


WHERE_KNOWN = (
    *("held_out_distance", "capped_change", "empirical_shift", "empirical_change", "wasserstein1_input"),
    *("largest_gradient_source", "largest_gradient_target", "jacobian_change"),
    *("certified_source", "certified_target", "certified_change"),
)
"""What it keeps besides, by the same name, where a study can measure it."""


def row(diagnostic: Diagnostic) -> Row:
    """The columns of a record.

    Raises:
        ValueError: where one of them is not available.
    """
    found = diagnostic.columns()
    found["anchor_upper"] = anchor_upper(diagnostic.evidence.anchor, diagnostic.settings.delta)
    missing = [name for name, column in KEPT.items() if math.isnan(found[column])]
    if missing:
        raise ValueError(f"a pair lacks {', '.join(missing)}: {diagnostic.reasons}")
    more = {name: found[name] for name in WHERE_KNOWN if not math.isnan(found[name])}
    return {**{name: found[column] for name, column in KEPT.items()}, **more}


def columns(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Rows of equal keys as one list per key, rounded to what a record keeps."""
    return {name: [significant(r[name], DIGITS) for r in rows] for name in rows[0]}
