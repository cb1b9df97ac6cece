"""What the diagnostic needs to know about two models and their samples, as plain numbers.

`gather` is the only part that runs models; everything after it is arithmetic on an `Evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from torch import Generator, nn

from .checks import check_labels, check_vector
from .estimators.anchor import AnchorTerms, anchor_terms
from .estimators.gaps import Gap
from .estimators.lipschitz import GradientQuantile, Model
from .estimators.output_distance import OutputDistance, output_distance
from .estimators.rkhs_norm import RKHSNorm, Spectrum
from .estimators.transport import SelfTransport
from .features import FeatureMap, identity
from .losses import Loss, ZeroOne
from .probe import Features, Probe
from .sample import Sample, check_sample_pair
from .settings import Settings
from .shift import Shift, measure_shift

Stage = Callable[[str], AbstractContextManager[object]]
"""Called with the name of a stage around its work, by whoever keeps the time."""


class RiskChange(NamedTuple):
    """The true change on a labelled anchor sample, ``Delta R = R_P(Q~) - R_P(Q)``: positive is harm."""

    value: float
    standard_error: float
    error_rate: float
    """The change of the 0-1 error; NaN for regression."""
    num_samples: int


class Evidence(NamedTuple):
    """Everything `assemble` adds up. None means not available; ``reasons`` says why."""

    gap_source: Gap | None
    gap_target: Gap | None
    output_distance: OutputDistance
    sensitivity_source: GradientQuantile | None
    sensitivity_target: GradientQuantile | None
    shift: Shift
    rkhs_norm: RKHSNorm | None
    anchor: AnchorTerms
    risk_change: RiskChange | None
    lipschitz: float
    """L_ell of the loss."""
    loss_bound: float
    """M of the loss."""
    sizes: dict[str, int]
    reasons: dict[str, str]


def gather(
    model: Model,
    new_model: Model,
    source: Sample,
    target: Sample,
    *,
    source_val: Sample | None,
    target_val: Sample | None,
    loss: Loss,
    feature_map: FeatureMap = identity,
    gradient_at: tuple[nn.Module, nn.Module] | None = None,
    anchor_test: Sample | None = None,
    shift: Shift | None = None,
    spectrum: Spectrum | None = None,
    settings: Settings,
    generator: Generator | None = None,
) -> Evidence:
    """Run both models where the diagnostic needs them. Arguments as in `trace.diagnostic.diagnose`.

    ``spectrum`` is that of the held-out target features at the bandwidth of ``shift.mmd``, shared by all candidates.
    """
    return examine(
        Probe(model, "model", loss, settings), Probe(new_model, "new_model", loss, settings), source, target,
        source_val=source_val, target_val=target_val, features=Features(feature_map, batch_size=settings.batch_size),
        gradient_at=gradient_at, anchor_test=anchor_test, shift=shift, spectrum=spectrum, generator=generator,
    )  # fmt: skip


def examine(
    old: Probe,
    new: Probe,
    source: Sample,
    target: Sample,
    *,
    source_val: Sample | None,
    target_val: Sample | None,
    features: Features,
    gradient_at: tuple[nn.Module, nn.Module] | None = None,
    anchor_test: Sample | None = None,
    shift: Shift | None = None,
    target_self: SelfTransport | None = None,
    spectrum: Spectrum | None = None,
    generator: Generator | None = None,
    stage: Stage = nullcontext,
) -> Evidence:
    """`gather` for models that are already probed: what they, ``features`` and ``shift`` know is not computed again.

    ``target_self`` serves the shift where many sources are compared with one target; ``stage`` hears what is running.
    """
    loss, settings = old.loss, old.settings
    reasons: dict[str, str] = {}
    samples = {"source": source, "target": target, "source_val": source_val, "target_val": target_val,
               "anchor_test": anchor_test}  # fmt: skip
    present = {name: check_sample_pair(sample, name) for name, sample in samples.items() if sample is not None}
    anchor, held_out = source_val or source, target_val or target
    at_old, at_new = gradient_at or (None, None)
    with stage("outputs"):
        moved = _moved(old, new, target, present)
        gap_source = old.gap(source, source_val, reasons, "gap_source")
        gap_target = new.gap(target, target_val, reasons, "gap_target")
        on_anchor = anchor_terms(old.outputs(anchor), new.outputs(anchor), loss, delta=settings.delta)
        risk_change = None if anchor_test is None else _risk_change(old, new, anchor_test)
    reasons |= _without(source_val, anchor_test)
    with stage("gradients"):
        sensitivity_source = old.sensitivity(anchor, old, at_old, reasons, "sensitivity_source")
        sensitivity_target = new.sensitivity(held_out, old, at_new, reasons, "sensitivity_target")
    with stage("shift"):
        if shift is None:
            u, u_new = features.of(source), features.of(target)
            shift = measure_shift(u, u_new, settings, target_self=target_self, generator=generator)
        shift.check(settings, (len(source.x), len(target.x)))
    if shift.transport.value < 0:
        reasons["transport"] = "a numerical zero below 0, taken as 0 in the bound"
    with stage("kernel norm"):
        norm = new.rkhs_norm(held_out, features, shift.mmd.bandwidth, spectrum, reasons)
    loss_bound = loss.bound(old.outputs(target).shape[1], settings.loss_bound)
    sizes = {name: len(sample.x) for name, sample in present.items()}
    return Evidence(
        gap_source, gap_target, moved, sensitivity_source, sensitivity_target, shift, norm, on_anchor, risk_change,
        loss.lipschitz, loss_bound, sizes, reasons,
    )  # fmt: skip


def _without(source_val: Sample | None, anchor_test: Sample | None) -> dict[str, str]:
    """What a missing sample means for the terms that it serves."""
    reasons = {}
    if source_val is None:
        reasons["anchor"] = "computed on the source's training inputs, for which the intervals do not hold"
    if anchor_test is None:
        reasons["risk_change"] = "needs a labelled anchor test sample"
    return reasons


def _moved(old: Probe, new: Probe, target: Sample, present: Mapping[str, Sample]) -> OutputDistance:
    """The model change on the target, between outputs that fit the labels of every sample."""
    z, loss = old.outputs(target), old.loss
    for name, sample in present.items():
        _check_targets(sample, loss, z.shape[1], name)
    moved = output_distance(loss.clip(z), loss.clip(new.outputs(target)), clip_at=None)
    return moved._replace(reach=loss.output_diameter(z.shape[1]))


def _risk_change(old: Probe, new: Probe, test: Sample) -> RiskChange:
    if test.y is None:
        raise ValueError("anchor_test has no labels: the true risk change needs them, leave it out otherwise")
    change = (new.losses(test, test.y) - old.losses(test, test.y)).double()
    error_rate = math.nan
    if old.loss.classification:
        wrong, wrong_new = (ZeroOne()(probe.outputs(test), test.y).double() for probe in (old, new))
        error_rate = float((wrong_new - wrong).mean())
    spread = float(change.std() / math.sqrt(len(change))) if len(change) > 1 else math.nan
    return RiskChange(float(change.mean()), spread, error_rate, len(change))


def _check_targets(sample: Sample, loss: Loss, num_outputs: int, name: str) -> None:
    """Labels that fit the loss and the models; where a risk is read off them, more than one class."""
    if sample.y is None:
        return
    if not loss.classification:
        check_vector(sample.y, f"{name}.y")
        return
    check_labels(sample.y, f"{name}.y", length=len(sample.x), num_classes=num_outputs)
    if name in ("source", "anchor_test") and len(sample.y.unique()) < 2:
        raise ValueError(
            f"{name} holds one class only, so its risk says nothing: pass a sample with at least two classes"
        )
