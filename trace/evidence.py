"""What the diagnostic needs to know about two models and their samples, as plain numbers.

This is the only part that runs models; everything after it is arithmetic on an `Evidence`. A `View` owns a sample and
what the models make of it, so callers who share a view, in `Known`, share all that was computed of it.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from torch import Generator, Tensor, nn

from .checks import check_labels, check_samples, check_vector, check_within_bound
from .estimators.anchor import AnchorTerms, anchor_terms
from .estimators.draws import TransportEstimate
from .estimators.gradient_quantile import (
    GradientQuantile,
    Model,
    NoGradientError,
    gradient_quantile,
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
        if differing := [name for name in _DECISIVE if getattr(settings, name) != getattr(self.settings, name)]:
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
            source,
            target,
            epsilon=s.epsilon,
            num_iters=s.num_iters,
            x_self=source_self,
            y_self=target_self,
            max_samples=MAX_SAMPLES,
            generator=generator,
        )
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


class Update(NamedTuple):
    """Q and Q~, and how they are looked at."""

    models: tuple[Model, Model]
    loss: Loss
    settings: Settings
    feature_map: FeatureMap = identity
    gradient_at: tuple[nn.Module, nn.Module] | None = None
    """Submodules where sensitivities are taken; the inputs if absent."""
    names: tuple[str, str] = ("model", "new_model")
    """What messages call the models."""


class View:
    """A sample and what an update's models make of it, each computed when it is first asked for, and then kept.

    What was computed elsewhere can be handed in: outputs ``[n, C]`` of either model, features ``[n, k]``.
    """

    def __init__(
        self,
        sample: Sample,
        update: Update,
        *,
        outputs: Tensor | None = None,
        new_outputs: Tensor | None = None,
        features: Tensor | None = None,
    ) -> None:
        self.sample, self.update = sample, update
        for name, rows in {"outputs": outputs, "new_outputs": new_outputs, "features": features}.items():
            if rows is not None and len(rows) != len(sample.x):
                raise ValueError(f"{len(rows)} saved rows for {len(sample.x)} samples: pass one row per sample")
            if rows is not None:
                setattr(self, name, rows)

    @cached_property
    def outputs(self) -> Tensor:
        """Q's ``[n, C]``, in eval mode, without gradients."""
        return self._run(0)

    @cached_property
    def new_outputs(self) -> Tensor:
        """The same of Q~."""
        return self._run(1)

    @cached_property
    def features(self) -> Tensor:
        """h, ``[n, k]``."""
        return extract(self.update.feature_map, self.sample.x, batch_size=self.update.settings.batch_size)

    @cached_property
    def losses(self) -> Tensor:
        """Q's ``[n]``, on a labelled sample."""
        return self._losses(self.outputs, 0)

    @cached_property
    def new_losses(self) -> Tensor:
        """The same of Q~."""
        return self._losses(self.new_outputs, 1)

    @cached_property
    def sensitivity(self) -> GradientQuantile | str:
        """Q's gradient quantile, or why there is none; without labels, with Q's predictions (``app:metrics``)."""
        return self._sensitivity(0)

    @cached_property
    def new_sensitivity(self) -> GradientQuantile | str:
        """The same of Q~, pseudo-labelled by Q as well."""
        return self._sensitivity(1)

    def rkhs_norm(self, bandwidth: float, spectrum: Spectrum | None) -> RKHSNorm | str:
        """B of Q~'s losses in h, or why there is none."""
        if self.sample.y is None:
            return "needs labels on the target"
        if len(self.sample.x) < 3:
            return "needs at least 3 held-out target samples"
        losses, kernel = self.new_losses.to(self.features.dtype), self.update.settings.kernel
        return rkhs_norm(self.features, losses, kernel=kernel, bandwidth=bandwidth, spectrum=spectrum)

    def _run(self, which: int) -> Tensor:
        u = self.update
        return extract(u.models[which], self.sample.x, batch_size=u.settings.batch_size, name=u.names[which])

    def _losses(self, z: Tensor, which: int) -> Tensor:
        loss, name = self.update.loss, self.update.names[which]
        assert self.sample.y is not None
        return check_within_bound(loss(z, self.sample.y), loss.bound(z.shape[1]), f"the losses of {name}")

    def _sensitivity(self, which: int) -> GradientQuantile | str:
        u, s, labels = self.update, self.update.settings, self.sample.y
        if labels is None and not u.loss.classification:
            return "needs targets: there are no pseudo-labels for regression"
        given = self.outputs.argmax(dim=1) if labels is None else labels
        try:
            found = gradient_quantile(
                u.models[which],
                self.sample.x,
                given,
                u.loss,
                q=s.q,
                eta=s.eta,
                at=u.gradient_at[which] if u.gradient_at else None,
                batch_size=s.batch_size,
                name=u.names[which],
            )
        except NoGradientError as error:
            return str(error)
        return found._replace(pseudo_labels=labels is None)


class RiskChange(NamedTuple):
    """The true change on a labelled anchor sample, ``Delta R = R_P(Q~) - R_P(Q)``: positive is harm."""

    value: float
    standard_error: float
    error_rate: float
    """The change of the 0-1 error; NaN for regression."""
    num_samples: int

    @classmethod
    def of(cls, change: Tensor, error_rate: float) -> "RiskChange":
        """From the losses of Q~ minus those of Q ``[n]``."""
        spread = float(change.std() / math.sqrt(len(change))) if len(change) > 1 else math.nan
        return cls(float(change.mean()), spread, error_rate, len(change))


@dataclass(frozen=True)
class Known:
    """What callers know already or share between diagnoses; everything else is computed there."""

    views: Mapping[str, View] = field(default_factory=dict)
    """By the sample's name among the arguments of `trace.diagnose`: "target", "target_val", ..."""
    shift: Shift | None = None
    """Of the two training samples, where candidates share it."""
    target_self: SelfTransport | None = None
    """For the shift, where many sources are compared with one target."""
    spectrum: Spectrum | None = None
    """Of the held-out target features at the bandwidth of ``shift.mmd``."""
    risk_change: RiskChange | None = None
    """In place of an anchor test sample."""
    stage: Callable[[str], AbstractContextManager[object]] = nullcontext
    """Called with the name of a stage around its work, by whoever keeps the time."""


class Evidence(NamedTuple):
    """Everything `trace.diagnostic.assemble` adds up. None means not available; ``reasons`` says why."""

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


def gather(update: Update, samples: Mapping[str, Sample], known: Known, generator: Generator | None) -> Evidence:
    """Run both models where the diagnostic needs them; the samples have the names of `trace.diagnose`'s arguments."""
    loss, settings = update.loss, update.settings
    views = {name: _view(check_sample_pair(sample, name), name, update, known) for name, sample in samples.items()}
    source, target, test = views["source"], views["target"], views.get("anchor_test")
    anchor, held_out = views.get("source_val", source), views.get("target_val", target)
    found: dict[str, Any] = {}
    with known.stage("outputs"):
        moved = _moved(target, views)
        found["gap_source"] = _gap(source, views.get("source_val"), "losses")
        found["gap_target"] = _gap(target, views.get("target_val"), "new_losses")
        on_anchor = anchor_terms(anchor.outputs, anchor.new_outputs, loss, delta=settings.delta)
        found["risk_change"] = known.risk_change or _risk_change(test)
    with known.stage("gradients"):
        found["sensitivity_source"] = anchor.sensitivity
        found["sensitivity_target"] = held_out.new_sensitivity
    with known.stage("shift"):
        shift = known.shift or measure_shift(
            source.features, target.features, settings, target_self=known.target_self, generator=generator
        )
        shift.check(settings, (len(source.sample.x), len(target.sample.x)))
    with known.stage("kernel norm"):
        found["rkhs_norm"] = held_out.rkhs_norm(shift.mmd.bandwidth, known.spectrum)
    reasons = {name: why for name, why in found.items() if isinstance(why, str)}
    if "source_val" not in views:
        reasons["anchor"] = "computed on the source's training inputs, for which the intervals do not hold"
    if shift.transport.value < 0:
        reasons["transport"] = "a numerical zero below 0, taken as 0 in the bound"
    return Evidence(
        **{name: None if name in reasons else estimate for name, estimate in found.items()},
        output_distance=moved,
        shift=shift,
        anchor=on_anchor,
        lipschitz=loss.lipschitz,
        loss_bound=loss.bound(target.outputs.shape[1], settings.loss_bound),
        sizes={name: len(sample.x) for name, sample in samples.items()},
        reasons=reasons,
    )


def _view(sample: Sample, name: str, update: Update, known: Known) -> View:
    view = known.views.get(name) or View(sample, update)
    if view.sample is not sample or view.update.models != update.models:
        raise ValueError(f"the known view of {name} is of another sample or other models: make one of these")
    return view


def _gap(train: View, val: View | None, losses: str) -> Gap | str:
    if val is None:
        return "needs a validation split"
    if train.sample.y is None or val.sample.y is None:
        return "needs labels on the sample and on its validation split"
    return validation_gap(getattr(train, losses), getattr(val, losses))


def _moved(target: View, views: Mapping[str, View]) -> OutputDistance:
    """The model change on the target, between outputs that fit the labels of every sample."""
    loss, num_outputs = target.update.loss, target.outputs.shape[1]
    for name, view in views.items():
        _check_targets(view.sample, loss, num_outputs, name)
    moved = output_distance(loss.clip(target.outputs), loss.clip(target.new_outputs), clip_at=None)
    return moved._replace(reach=loss.output_diameter(num_outputs))


def _risk_change(test: View | None) -> RiskChange | str:
    if test is None:
        return "needs a labelled anchor test sample"
    if test.sample.y is None:
        raise ValueError("anchor_test has no labels: the true risk change needs them, leave it out otherwise")
    error_rate = math.nan
    if test.update.loss.classification:
        wrong, wrong_new = (ZeroOne()(z, test.sample.y).double() for z in (test.outputs, test.new_outputs))
        error_rate = float((wrong_new - wrong).mean())
    return RiskChange.of((test.new_losses - test.losses).double(), error_rate)


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
