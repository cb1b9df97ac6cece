"""What the diagnostic needs to know about two models and their samples, as plain numbers.

`gather` is the only part that runs models; everything after it is arithmetic on an `Evidence`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from .checks import check_labels, check_vector
from .estimators.anchor import AnchorTerms, anchor_terms
from .estimators.gaps import Gap, validation_gap
from .estimators.lipschitz import (
    GradientQuantile,
    Model,
    NoGradientError,
    evaluation_mode,
    gradient_quantile,
    rows_of,
)
from .estimators.output_distance import OutputDistance, output_distance
from .estimators.rkhs_norm import RKHSNorm, Spectrum, rkhs_norm
from .features import FeatureMap, extract, identity
from .losses import Loss, ZeroOne, check_within_bound
from .sample import Sample, check_sample_pair
from .settings import Settings
from .shift import Shift, measure_shift


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
    old, new = _Probe(model, "model", loss, settings), _Probe(new_model, "new_model", loss, settings)
    reasons: dict[str, str] = {}
    samples = {"source": source, "target": target, "source_val": source_val, "target_val": target_val,
               "anchor_test": anchor_test}  # fmt: skip
    present = {name: check_sample_pair(sample, name) for name, sample in samples.items() if sample is not None}
    anchor, held_out = source_val or source, target_val or target
    at_old, at_new = gradient_at or (None, None)
    num_outputs = old.outputs(target).shape[1]
    for name, sample in present.items():
        _check_targets(sample, loss, num_outputs, name)
    if source_val is None:
        reasons["anchor"] = "computed on the source's training inputs, for which the intervals do not hold"
    if shift is None:
        u, u_new = (extract(feature_map, x, batch_size=settings.batch_size) for x in (source.x, target.x))
        shift = measure_shift(u, u_new, settings, generator=generator)
    shift.check(settings, (len(source.x), len(target.x)))
    if shift.transport.value < 0:
        reasons["transport"] = "a numerical zero below 0, taken as 0 in the bound"
    evidence = Evidence(
        gap_source=old.gap(source, source_val, reasons, "gap_source"),
        gap_target=new.gap(target, target_val, reasons, "gap_target"),
        output_distance=output_distance(
            loss.clip(old.outputs(target)), loss.clip(new.outputs(target)), clip_at=None
        )._replace(reach=loss.output_diameter(num_outputs)),
        sensitivity_source=old.sensitivity(anchor, old, at_old, reasons, "sensitivity_source"),
        sensitivity_target=new.sensitivity(held_out, old, at_new, reasons, "sensitivity_target"),
        shift=shift,
        rkhs_norm=new.rkhs_norm(held_out, feature_map, shift.mmd.bandwidth, spectrum, reasons),
        anchor=anchor_terms(old.outputs(anchor), new.outputs(anchor), loss, delta=settings.delta),
        risk_change=None if anchor_test is None else _risk_change(old, new, anchor_test),
        lipschitz=loss.lipschitz,
        loss_bound=loss.bound(num_outputs, settings.loss_bound),
        sizes={name: len(sample.x) for name, sample in present.items()},
        reasons=reasons,
    )
    if anchor_test is None:
        reasons["risk_change"] = "needs a labelled anchor test sample"
    return evidence


class _Probe:
    """One model with its loss: outputs are computed once per sample and kept."""

    def __init__(self, model: Model, name: str, loss: Loss, settings: Settings) -> None:
        self.model, self.name, self.loss, self.settings = model, name, loss, settings
        self._outputs: dict[int, Tensor] = {}

    def outputs(self, sample: Sample) -> Tensor:
        """``[n, C]``, in eval mode, without gradients."""
        key = id(sample.x)
        if key not in self._outputs:
            size = self.settings.batch_size
            with torch.no_grad(), evaluation_mode(self.model):
                batches = (sample.x[start : start + size].clone() for start in range(0, len(sample.x), size))
                self._outputs[key] = torch.cat([rows_of(self.model, x, self.name) for x in batches])
        return self._outputs[key]

    def losses(self, sample: Sample, labels: Tensor) -> Tensor:
        z = self.outputs(sample)
        return check_within_bound(self.loss(z, labels), self.loss.bound(z.shape[1]), f"the losses of {self.name}")

    def gap(self, train: Sample, val: Sample | None, reasons: dict[str, str], key: str) -> Gap | None:
        if val is None:
            reasons[key] = "needs a validation split"
        elif train.y is None or val.y is None:
            reasons[key] = "needs labels on the sample and on its validation split"
        else:
            return validation_gap(self.losses(train, train.y), self.losses(val, val.y))
        return None

    def sensitivity(
        self, sample: Sample, labeller: _Probe, at: nn.Module | None, reasons: dict[str, str], key: str
    ) -> GradientQuantile | None:
        """The gradient quantile; without labels, with the labeller's predictions (``app:metrics``: Q's)."""
        labels = sample.y
        if labels is None and self.loss.classification:
            labels = labeller.outputs(sample).argmax(dim=1)
        s = self.settings
        try:
            found = gradient_quantile(
                self.model,
                sample.x,
                labels,
                self.loss,
                q=s.q,
                eta=s.eta,
                at=at,
                batch_size=s.batch_size,
                name=self.name,
            )
        except NoGradientError as error:
            reasons[key] = str(error)
            return None
        return found._replace(pseudo_labels=sample.y is None)

    def rkhs_norm(
        self,
        sample: Sample,
        feature_map: FeatureMap,
        bandwidth: float,
        spectrum: Spectrum | None,
        reasons: dict[str, str],
    ) -> RKHSNorm | None:
        if sample.y is None:
            reasons["rkhs_norm"] = "needs labels on the target"
        elif len(sample.x) < 3:
            reasons["rkhs_norm"] = "needs at least 3 held-out target samples"
        else:
            u = extract(feature_map, sample.x, batch_size=self.settings.batch_size)
            t = self.losses(sample, sample.y)
            return rkhs_norm(u, t.to(u.dtype), kernel=self.settings.kernel, bandwidth=bandwidth, spectrum=spectrum)
        return None


def _risk_change(old: _Probe, new: _Probe, test: Sample) -> RiskChange:
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
