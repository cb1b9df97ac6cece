"""What the diagnostic needs to know about two models and their samples, as plain numbers.

`gather` is the only part that runs models; everything after it is arithmetic on an `Evidence`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from .checks import check_labels, check_samples, check_vector, check_within_bound
from .estimators.anchor import AnchorTerms, anchor_terms
from .estimators.draws import TransportEstimate
from .estimators.gradient_quantile import (
    GradientQuantile,
    Model,
    NoGradientError,
    evaluation_mode,
    gradient_quantile,
    rows_of,
)
from .estimators.kernels import NoBandwidthError, thinned
from .estimators.mmd import MMDEstimate, mmd
from .estimators.output_distance import OutputDistance, output_distance
from .estimators.rkhs_norm import RKHSNorm, Spectrum, rkhs_norm
from .estimators.sinkhorn import SelfTransport, self_transport, sinkhorn_divergence, sinkhorn_floor
from .estimators.validation_gap import Gap, validation_gap
from .estimators.wasserstein1 import wasserstein1
from .features import FeatureMap, extract, identity
from .losses import Loss, ZeroOne
from .sample import Sample, check_sample_pair
from .settings import Settings

MAX_SAMPLES = 50_000
"""Beyond this size of either sample the Sinkhorn divergence is that of subsamples."""

_DECISIVE = ("distance", "epsilon", "num_iters", "kernel", "bandwidth", "mmd_samples")


class Shift(NamedTuple):
    """Transport distance and MMD between source and target features."""

    transport: TransportEstimate
    mmd: MMDEstimate
    floor: TransportEstimate | None
    """The transport distance between halves of the source: what no shift at all looks like. Needs a generator."""
    dim: int
    sizes: tuple[int, int]
    settings: Settings
    target_floor: TransportEstimate | None = None
    """The same between halves of the target."""

    def check(self, settings: Settings, sizes: tuple[int, int]) -> None:
        """Refuse use with other settings or samples of other sizes."""
        differing = [name for name in _DECISIVE if getattr(settings, name) != getattr(self.settings, name)]
        if differing:
            raise ValueError(
                f"shift was measured with another {', '.join(differing)}: call measure_shift with these settings"
            )
        if self.sizes != sizes:
            raise ValueError(f"shift was measured on samples of {self.sizes}, not {sizes}: call measure_shift on these")


def measure_shift(
    source: Tensor,
    target: Tensor,
    settings: Settings | None = None,
    *,
    source_self: SelfTransport | None = None,
    target_self: SelfTransport | None = None,
    floors: bool = True,
    generator: Generator | None = None,
) -> Shift:
    """Transport distance, its same-distribution floors, and MMD between features ``[n, k]`` and ``[m, k]``.

    Args:
        settings: distance, epsilon, kernel and bandwidth; the defaults if absent.
        source_self, target_self: `self_transport` of either sample's features, where many others are compared with it
            whole.
        floors: False leaves them out, where an earlier call has measured them on these samples.
        generator: for the floors, and for the subsampling of very large samples.

    Raises:
        ValueError: for invalid samples, fewer than 2 rows, or rows of which most coincide, without a bandwidth.
    """
    s = settings or Settings()
    check_samples(source, target, "source", "target", min_samples=2)
    floor = target_floor = None
    if s.distance == "sinkhorn":
        transport = sinkhorn_divergence(
            source, target, epsilon=s.epsilon, num_iters=s.num_iters, x_self=source_self, y_self=target_self,
            max_samples=MAX_SAMPLES, generator=generator,
        )  # fmt: skip
        if floors and generator is not None:
            floor, target_floor = (
                _floor(features, s, generator, compared)
                for features, compared in zip((source, target), transport.sample_sizes, strict=True)
            )
    else:
        transport = wasserstein1(source, target, generator=generator)
    return Shift(
        transport, _mmd(source, target, s), floor, source.shape[1], (len(source), len(target)), s, target_floor
    )


def _mmd(source: Tensor, target: Tensor, s: Settings) -> MMDEstimate:
    few, few_new = (thinned(features, s.mmd_samples) for features in (source, target))
    try:
        return mmd(few, few_new, kernel=s.kernel, bandwidth=s.bandwidth)
    except NoBandwidthError as error:
        raise ValueError(
            "most rows of source and target coincide, so that their median distance, the kernel's bandwidth, is 0: "
            "give one with Settings(bandwidth=...), on the command line --set bandwidth=..."
        ) from error


def shared_self(features: Tensor, settings: Settings) -> SelfTransport | None:
    """``OT_eps(u, u)`` of a sample ``[n, k]`` that many others are compared with, for `measure_shift`.

    None where there is none to share: beyond `MAX_SAMPLES` each comparison draws its own subsamples, and W1 has no self
    term.
    """
    if settings.distance != "sinkhorn" or len(features) > MAX_SAMPLES:
        return None
    return self_transport(features, epsilon=settings.epsilon, num_iters=settings.num_iters)


def _floor(features: Tensor, s: Settings, generator: Generator, compared: int) -> TransportEstimate | None:
    """Between halves of at most as many rows as the distance itself compared."""
    if len(features) < 4:
        return None
    return sinkhorn_floor(
        features, epsilon=s.epsilon, num_iters=s.num_iters, num_splits=1, max_half=compared, generator=generator
    )


class Memory:
    """Tensors by the inputs they were computed from; the inputs are kept alive, so that no key is used twice."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Tensor, Tensor]] = {}

    def find(self, x: Tensor) -> Tensor | None:
        return self._kept[id(x)][1] if id(x) in self._kept else None

    def keep(self, x: Tensor, rows: Tensor) -> Tensor:
        if len(rows) != len(x):
            raise ValueError(f"{len(rows)} saved rows for {len(x)} samples: pass one row per sample")
        self._kept[id(x)] = (x, rows)
        return rows


class Features:
    """h of every sample, ``[n, k]``."""

    def __init__(self, feature_map: FeatureMap, *, batch_size: int = 1024) -> None:
        self.feature_map, self.batch_size = feature_map, batch_size
        self._memory = Memory()

    def know(self, sample: Sample, features: Tensor) -> None:
        """Features that were computed elsewhere."""
        self._memory.keep(sample.x, features)

    def of(self, sample: Sample) -> Tensor:
        found = self._memory.find(sample.x)
        if found is None:
            found = self._memory.keep(sample.x, extract(self.feature_map, sample.x, batch_size=self.batch_size))
        return found


class Probe:
    """One model with its loss."""

    def __init__(self, model: Model, name: str, loss: Loss, settings: Settings) -> None:
        self.model, self.name, self.loss, self.settings = model, name, loss, settings
        self._outputs = Memory()
        self._sensitivities: dict[tuple[int, ...], tuple[GradientQuantile, tuple[object, ...]]] = {}

    def know(self, sample: Sample, outputs: Tensor) -> None:
        """Outputs ``[n, C]`` that were computed elsewhere."""
        self._outputs.keep(sample.x, outputs)

    def outputs(self, sample: Sample) -> Tensor:
        """``[n, C]``, in eval mode, without gradients."""
        found = self._outputs.find(sample.x)
        if found is None:
            size = self.settings.batch_size
            with torch.no_grad(), evaluation_mode(self.model):
                batches = (sample.x[start : start + size].clone() for start in range(0, len(sample.x), size))
                found = torch.cat([rows_of(self.model, x, self.name) for x in batches])
            self._outputs.keep(sample.x, found)
        return found

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
        self, sample: Sample, labeller: Probe, at: nn.Module | None, reasons: dict[str, str], key: str
    ) -> GradientQuantile | None:
        """The gradient quantile; without labels, with the labeller's predictions (``app:metrics``: Q's)."""
        labels = sample.y
        if labels is None:
            if not self.loss.classification:
                reasons[key] = "needs targets: there are no pseudo-labels for regression"
                return None
            labels = labeller.outputs(sample).argmax(dim=1)
        asked = (id(sample.x), id(sample.y), id(at), id(labeller))
        if asked not in self._sensitivities:
            s = self.settings
            try:
                found = gradient_quantile(
                    self.model, sample.x, labels, self.loss,
                    q=s.q, eta=s.eta, at=at, batch_size=s.batch_size, name=self.name,
                )  # fmt: skip
            except NoGradientError as error:
                reasons[key] = str(error)
                return None
            found = found._replace(pseudo_labels=sample.y is None)
            self._sensitivities[asked] = (found, (sample.x, sample.y, at, labeller))
        return self._sensitivities[asked][0]

    def rkhs_norm(
        self,
        sample: Sample,
        features: Features,
        bandwidth: float,
        spectrum: Spectrum | None,
        reasons: dict[str, str],
    ) -> RKHSNorm | None:
        if sample.y is None:
            reasons["rkhs_norm"] = "needs labels on the target"
        elif len(sample.x) < 3:
            reasons["rkhs_norm"] = "needs at least 3 held-out target samples"
        else:
            u, t = features.of(sample), self.losses(sample, sample.y)
            return rkhs_norm(u, t.to(u.dtype), kernel=self.settings.kernel, bandwidth=bandwidth, spectrum=spectrum)
        return None


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
