"""What the diagnostic needs to know about two models and their samples, as plain numbers.

This is the only part that runs models; everything after it is arithmetic on an `Evidence`. A `View` owns a sample and
what the models make of it, so callers who share a view, in `Known`, share all that was computed of it.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import torch
from torch import Generator, Tensor, nn

from .checks import check_labels, check_samples, check_vector, check_within_bound
from .estimators.anchor import AnchorTerms, anchor_terms
from .estimators.certified import Tail, tail
from .estimators.draws import TransportEstimate
from .estimators.gradient_quantile import (
    GradientQuantile,
    Model,
    NoGradientError,
    gradient_quantile,
)
from .estimators.jacobians import JacobianChange, LargestGradient, slopes
from .estimators.kernels import NoBandwidthError, thinned
from .estimators.labelled import Labelled, Slices, labelled_change, slices
from .estimators.mmd import MMDEstimate, mmd
from .estimators.output_distance import OutputDistance, output_distance
from .estimators.rkhs_norm import RKHSNorm, Spectrum, rkhs_norm
from .estimators.sinkhorn import SelfTransport, most_samples, self_transport, sinkhorn_divergence, sinkhorn_floor
from .estimators.validation_gap import Gap, validation_gap
from .estimators.wasserstein1 import wasserstein1
from .features import FeatureMap, extract, identity
from .hardware import doubled
from .losses import Loss, ZeroOne, centred_change_norms
from .sample import Sample, check_sample_pair
from .settings import Settings
from .stats.betting import Tally, tally
from .stats.held_out import Keys, fault, row_keys

EXACT_SAMPLES = 2_000
"""Most rows of either sample in the exact W1 between inputs; of more, this many at even strides."""
_EXACT_ENTRIES = 50_000_000
"""Most entries of the inputs that are compared exactly."""
_LABELLED = ("anchor_test", "source_val")
"""Samples whose labels count, the first that has any and was held out."""
HELD_OUT = {"source_val": "source", "target_val": "target", "anchor_test": "source"}
"""Samples that must be held out, and from which."""
_CONCERN = {"source_val": "anchor", "target_val": "target", "anchor_test": "anchor_test"}
"""Under which name a reason says that they were not."""

_DECISIVE = ("distance", "epsilon", "num_iters", "tol", "kernel", "bandwidth", "mmd_samples")


_NO_HELD_OUT = "needs target rows that no model was trained on (target_val, --target-val)"
_NOT_IN_INPUTS = "gradients are taken at a submodule: constants and distances in the inputs need gradient_at=None"
_UNBOUNDED = "the loss has no finite Lipschitz constant in the inputs"


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
            tol=s.tol,
            x_self=source_self,
            y_self=target_self,
            max_samples=most_samples(source.device),
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

    None where there is none to share: beyond `most_samples` each comparison draws its own subsamples, and W1 has no
    self term.
    """
    if settings.distance != "sinkhorn" or len(features) > most_samples(features.device):
        return None
    return self_transport(features, epsilon=settings.epsilon, num_iters=settings.num_iters, tol=settings.tol)


def _floor(features: Tensor, s: Settings, generator: Generator, compared: int) -> TransportEstimate | None:
    """Between halves of at most as many rows as the distance itself compared."""
    if len(features) < 4:
        return None
    return sinkhorn_floor(
        features,
        epsilon=s.epsilon,
        num_iters=s.num_iters,
        tol=s.tol,
        num_splits=1,
        max_half=compared,
        generator=generator,
    )


class InputDistance(NamedTuple):
    """The exact W1 between the inputs of two samples, flattened to ``[n, d]``."""

    value: float
    diameter: float
    """Twice the largest distance of a row to the mean of all: no two rows that were seen lie further apart."""
    sizes: tuple[int, int]
    """Rows that were compared."""


def input_distance(source: Tensor, target: Tensor, *, diameter: float | None = None) -> InputDistance:
    """Exact W1 between inputs ``[n, ...]`` and ``[m, ...]``, of at most `EXACT_SAMPLES` rows at even strides.

    Raises:
        ValueError: where rows lie further from their mean than the diameter of all possible inputs allows.
    """
    count = max(2, min(EXACT_SAMPLES, _EXACT_ENTRIES // source[0].numel()))
    x, y = (thinned(z, count).flatten(start_dim=1) for z in (source, target))
    rows = doubled(torch.cat([x, y]))
    reach = float(torch.linalg.vector_norm(rows - rows.mean(dim=0), dim=1).max())
    if diameter is not None and reach > diameter:
        raise ValueError(f"input_diameter is {diameter:g}, but a row lies {reach:.6g} from the mean of all: raise it")
    return InputDistance(wasserstein1(x, y).value, 2 * reach, (len(x), len(y)))


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

    What was computed elsewhere can be handed in: outputs ``[n, C]`` of either model, features ``[n, k]``, and gradients
    (`with_gradients`).
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

    def with_gradients(self, which: int, sensitivity: GradientQuantile, largest: LargestGradient | str) -> Self:
        """Take those of Q (0) or Q~ (1) as known: of a sample of features, the gradients in the images, say."""
        if which:
            self.new_sensitivity, self.new_slopes = sensitivity, (largest, _NOT_IN_INPUTS)
        else:
            self.sensitivity, self.largest_gradient = sensitivity, largest
        return self

    @cached_property
    def keys(self) -> Keys:
        """Which rows coincide."""
        return row_keys(self.sample.x)

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
    def sensitivity(self) -> GradientQuantile | str:
        """Q's gradient quantile, or why there is none; without labels, with Q's predictions (``app:metrics``)."""
        return self._sensitivity(0)

    @cached_property
    def new_sensitivity(self) -> GradientQuantile | str:
        """The same of Q~, pseudo-labelled by Q as well."""
        return self._sensitivity(1)

    @cached_property
    def largest_gradient(self) -> LargestGradient | str:
        """Q's largest gradient under all labels, or why there is none."""
        return self._slopes([0])[0]

    @cached_property
    def new_slopes(self) -> tuple[LargestGradient | str, JacobianChange | str]:
        """The same of Q~, and how far its Jacobian is from Q's."""
        return self._slopes([1] if self.update.gradient_at else [0, 1])

    @cached_property
    def tails(self) -> tuple[Tail | str, Tail | str]:
        """What is certified of Q and Q~ on inputs of this shape, or why nothing is."""
        u = self.update
        if u.gradient_at:
            return _NOT_IN_INPUTS, _NOT_IN_INPUTS
        return tail(u.models[0], self.sample.x), tail(u.models[1], self.sample.x)

    @property
    def log_probabilities(self) -> bool:
        """Both models end in a log softmax, of which cross-entropy sees the centred difference alone."""
        return all(isinstance(t, Tail) and t.log_probabilities for t in self.tails)

    def rkhs_norm(self, bandwidth: float, spectrum: Spectrum | None) -> RKHSNorm | str:
        """B of Q~'s losses in h, or why there is none."""
        if self.sample.y is None:
            return "needs labels on the target"
        if len(self.sample.x) < 3:
            return "needs at least 3 held-out target samples"
        losses, kernel = self.losses(1).to(self.features.dtype), self.update.settings.kernel
        return rkhs_norm(self.features, losses, kernel=kernel, bandwidth=bandwidth, spectrum=spectrum)

    def _run(self, which: int) -> Tensor:
        u = self.update
        return extract(u.models[which], self.sample.x, batch_size=u.settings.batch_size, name=u.names[which])

    def losses(self, which: int) -> Tensor:
        """Those of Q (0) or Q~ (1) on a labelled sample, ``[n]``."""
        z, loss, name = self.new_outputs if which else self.outputs, self.update.loss, self.update.names[which]
        assert self.sample.y is not None
        return check_within_bound(loss(z, self.sample.y), loss.bound(z.shape[1]), f"the losses of {name}")

    def _slopes(self, which: list[int]) -> tuple[LargestGradient | str, JacobianChange | str]:
        """Of the last of these models."""
        u, s = self.update, self.update.settings
        try:
            gradients, change = slopes(
                [u.models[i] for i in which],
                self.sample.x,
                u.loss,
                num_outputs=self.outputs.shape[1],
                q=s.q,
                centred=len(which) > 1 and self.log_probabilities,
                at=[u.gradient_at[i] for i in which] if u.gradient_at else None,
                batch_size=s.batch_size,
                names=[u.names[i] for i in which],
            )
        except NoGradientError as error:
            return str(error), str(error)
        return gradients[-1], _NOT_IN_INPUTS if change is None else change

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


class EmpiricalRisks(NamedTuple):
    """How the empirical risks of the corollary's proof differ on the two training samples."""

    shift: float
    """``|R_S(Q) - R_S~(Q)|`` (``lem:emp-shift-label``)."""
    change: float
    """``|R_S~(Q) - R_S~(Q~)|`` (``prop:model_change_bound``)."""


class CappedChange(NamedTuple):
    """``mean min(L_ell |f~ - f|, M)`` between outputs that are not clipped: no label moves the loss further."""

    value: float
    tally: Tally | None
    """Of its values; None where the loss has no bound M."""
    num_samples: int
    centred: bool
    """Between outputs less their mean, which is all that cross-entropy sees of log-probabilities."""


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
    wasserstein1_input: InputDistance | str | None = None
    """Between the inputs of the two training samples, where candidates share it; or why it is not measured."""
    classes: tuple[str, ...] = ()
    """Names by output; their numbers if absent."""
    faults: Mapping[str, str] | None = None
    """Why samples do not count as held out, by their name; found by their rows where it is not known."""
    stage: Callable[[str], AbstractContextManager[object]] = nullcontext
    """Called with the name of a stage around its work, by whoever keeps the time."""


class Evidence(NamedTuple):
    """Everything `trace.diagnostic.assemble` adds up. None means not available; ``reasons`` says why."""

    gap_source: Gap | None
    gap_target: Gap | None
    output_distance: OutputDistance
    """On the target's training sample, as the corollary has it."""
    held_out_distance: OutputDistance | None
    """On held-out target rows: what gates and the two-term bounds look at."""
    capped_change: CappedChange | None
    """On the same rows."""
    sensitivity_source: GradientQuantile | None
    sensitivity_target: GradientQuantile | None
    shift: Shift
    rkhs_norm: RKHSNorm | None
    anchor: AnchorTerms
    risk_change: RiskChange | None
    empirical: EmpiricalRisks | None
    largest_gradient_source: LargestGradient | None
    largest_gradient_target: LargestGradient | None
    """Under all labels, on the rows of the sensitivities: from below, the constants that those stand in for."""
    jacobian_change: JacobianChange | None
    """The largest slope of ``f~ - f`` on held-out target rows."""
    certified_source: float | None
    certified_target: float | None
    """The same constants from above, for all inputs and labels."""
    certified_change: float | None
    """Lipschitz constant of ``f~ - f``, from above."""
    wasserstein1_input: InputDistance | None
    lipschitz: float
    """L_ell of the loss."""
    loss_bound: float
    """M of the remainders."""
    loss_range: float
    """The largest change of the loss that two outputs allow: M without the paper's convention."""
    sizes: dict[str, int]
    reasons: dict[str, str]
    labelled: Labelled | None = None
    """The change that labels show: on the anchor test sample, else on labelled held-out rows of the source."""
    slices: Mapping[str, Slices] = MappingProxyType({})
    """Anchor rows by the class that Q predicts ("predicted"), by their label ("class"), by their group ("group")."""
    same_model: bool = False
    """Q~ is Q itself."""


def gather(update: Update, samples: Mapping[str, Sample], known: Known, generator: Generator | None) -> Evidence:
    """Run both models where the diagnostic needs them; the samples have the names of `trace.diagnose`'s arguments."""
    loss, settings = update.loss, update.settings
    views = {name: _view(check_sample_pair(sample, name), name, update, known) for name, sample in samples.items()}
    source, target, test = views["source"], views["target"], views.get("anchor_test")
    anchor, held_out = views.get("source_val", source), views.get("target_val", target)
    faults = _faults(views) if known.faults is None else known.faults
    found: dict[str, Any] = {}
    with known.stage("outputs"):
        moved = _moved(target, views)
        found["gap_source"] = _gap(source, views.get("source_val"), 0)
        found["gap_target"] = _gap(target, views.get("target_val"), 1)
        on_anchor = anchor_terms(anchor.outputs, anchor.new_outputs, loss)
        found["risk_change"] = known.risk_change or _risk_change(test)
        found["empirical"] = _empirical(source, target)
        with_labels = (name for name in _LABELLED if name in views and views[name].sample.y is not None)
        labelled = next((name for name in with_labels if name not in faults), "")
        found["labelled"] = _labelled(views.get(labelled), labelled)
        by_slice = _slices(anchor, views.get(labelled), known.classes)
    found |= _certified(*held_out.tails, loss, target.outputs.shape[1])
    found |= _held_out(views.get("target_val"))
    with known.stage("gradients"):
        found["sensitivity_source"] = anchor.sensitivity
        found["sensitivity_target"] = held_out.new_sensitivity
        found["largest_gradient_source"] = anchor.largest_gradient
        found["largest_gradient_target"], found["jacobian_change"] = held_out.new_slopes
    with known.stage("shift"):
        shift = known.shift or measure_shift(
            source.features, target.features, settings, target_self=known.target_self, generator=generator
        )
        shift.check(settings, (len(source.sample.x), len(target.sample.x)))
        found["wasserstein1_input"] = (
            _NOT_IN_INPUTS
            if update.gradient_at
            else known.wasserstein1_input
            or input_distance(source.sample.x, target.sample.x, diameter=settings.input_diameter)
        )
    with known.stage("kernel norm"):
        found["rkhs_norm"] = held_out.rkhs_norm(shift.mmd.bandwidth, known.spectrum)
    reasons = {name: why for name, why in found.items() if isinstance(why, str)}
    if "source_val" not in views:
        reasons["anchor"] = "computed on the source's training inputs, for which the intervals do not hold"
    if "target_val" not in views:
        reasons["target"] = "sensitivity and kernel norm of the target are computed on its training rows"
    reasons |= {_CONCERN[name]: why for name, why in faults.items()}
    if shift.transport.value < 0:
        reasons["transport"] = "a numerical zero below 0, taken as 0 in the bound"
    return Evidence(
        **{name: None if name in reasons else estimate for name, estimate in found.items()},
        output_distance=moved,
        shift=shift,
        anchor=on_anchor,
        lipschitz=loss.lipschitz,
        loss_bound=loss.bound(target.outputs.shape[1], settings.loss_bound),
        loss_range=loss.bound(target.outputs.shape[1]),
        sizes={name: len(sample.x) for name, sample in samples.items()},
        reasons=reasons,
        slices=by_slice,
        same_model=update.models[0] is update.models[1],
    )


def _faults(views: Mapping[str, View]) -> dict[str, str]:
    """Samples whose rows are also training rows, or repeated, beyond what a random split would have, and why."""
    pairs = ((name, train) for name, train in HELD_OUT.items() if name in views)
    found = {name: fault(views[train].keys, views[name].keys) for name, train in pairs}
    return {name: why for name, why in found.items() if why}


def _view(sample: Sample, name: str, update: Update, known: Known) -> View:
    view = known.views.get(name) or View(sample, update)
    if view.sample is not sample or view.update.models != update.models:
        raise ValueError(f"the known view of {name} is of another sample or other models: make one of these")
    return view


def _gap(train: View, val: View | None, which: int) -> Gap | str:
    if val is None:
        return "needs a validation split"
    if train.sample.y is None or val.sample.y is None:
        return "needs labels on the sample and on its validation split"
    return validation_gap(train.losses(which), val.losses(which), train.update.loss.bound(train.outputs.shape[1]))


def _moved(target: View, views: Mapping[str, View]) -> OutputDistance:
    """The model change on the target, between outputs that fit the labels of every sample."""
    for name, view in views.items():
        _check_targets(view.sample, target.update.loss, target.outputs.shape[1], name)
    return _output_distance(target)


def _output_distance(view: View) -> OutputDistance:
    loss = view.update.loss
    outputs, new_outputs = loss.clip(view.outputs), loss.clip(view.new_outputs)
    return output_distance(outputs, new_outputs, clip_at=None, reach=loss.output_diameter(outputs.shape[1]))


def _held_out(view: View | None) -> dict[str, OutputDistance | CappedChange | str]:
    """How far the outputs lie apart on target rows that no model was trained on."""
    if view is None:
        return dict.fromkeys(("held_out_distance", "capped_change"), _NO_HELD_OUT)
    return {"held_out_distance": _output_distance(view), "capped_change": _capped_change(view)}


def _capped_change(view: View) -> CappedChange | str:
    moved, loss, centred = doubled(view.new_outputs - view.outputs), view.update.loss, view.log_probabilities
    if not math.isfinite(loss.lipschitz):
        return "the loss has no finite Lipschitz constant in the outputs"
    norms = centred_change_norms(moved) if centred else torch.linalg.vector_norm(moved, dim=1)
    bound = loss.bound(moved.shape[1])
    values = (loss.lipschitz * norms).clamp(max=bound).cpu()
    rows = tally(values, 0.0, bound) if math.isfinite(bound) else None
    return CappedChange(float(values.mean()), rows, len(values), centred)


def _empirical(source: View, target: View) -> EmpiricalRisks | str:
    if source.sample.y is None or target.sample.y is None:
        return "needs labels on both training samples"
    old, shifted, updated = (
        float(doubled(view.losses(which)).mean()) for view, which in ((source, 0), (target, 0), (target, 1))
    )
    return EmpiricalRisks(abs(old - shifted), abs(shifted - updated))


def _certified(old: Tail | str, new: Tail | str, loss: Loss, num_outputs: int) -> dict[str, float | str]:
    """Certified constants of both models' losses, and of their difference."""
    found: dict[str, float | str] = {
        name: t if isinstance(t, str) else t.loss_lipschitz(loss, num_outputs)
        for name, t in (("certified_source", old), ("certified_target", new))
    }
    if isinstance(old, Tail) and isinstance(new, Tail):
        found["certified_change"] = old.difference(new)
    else:
        found["certified_change"] = "needs the certified constants of both models"
    return {
        name: _UNBOUNDED if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in found.items()
    }


def _risk_change(test: View | None) -> RiskChange | str:
    if test is None:
        return "needs a labelled anchor test sample"
    if test.sample.y is None:
        raise ValueError("anchor_test has no labels: the true risk change needs them, leave it out otherwise")
    error_rate = math.nan
    if test.update.loss.classification:
        wrong, wrong_new = (doubled(ZeroOne()(z, test.sample.y)).cpu() for z in (test.outputs, test.new_outputs))
        error_rate = float((wrong_new - wrong).mean())
    return RiskChange.of(doubled(test.losses(1) - test.losses(0)).cpu(), error_rate)


def _labelled(view: View | None, name: str) -> Labelled | str:
    if view is None or view.sample.y is None:
        return "needs labels on anchor rows that no model was trained on"
    return labelled_change(view.outputs, view.new_outputs, view.sample.y, view.update.loss)._replace(sample=name)


def _slices(anchor: View, labelled: View | None, classes: tuple[str, ...]) -> dict[str, Slices]:
    if not anchor.update.loss.classification:
        return {}
    names = classes or tuple(map(str, range(anchor.outputs.shape[1])))
    found = {"predicted": slices(anchor.outputs, anchor.new_outputs, anchor.outputs.argmax(dim=1), names)}
    if labelled is not None and (y := labelled.sample.y) is not None:
        found["class"] = slices(labelled.outputs, labelled.new_outputs, y, names, y)
    for view in (labelled, anchor):
        if view is not None and view.sample.group is not None and "group" not in found:
            listed = sorted(set(view.sample.group))
            places = {name: i for i, name in enumerate(listed)}
            by = torch.tensor([places[name] for name in view.sample.group], device=view.outputs.device)
            y = view.sample.y if view is labelled else None
            found["group"] = slices(view.outputs, view.new_outputs, by, listed, y)
    return found


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
