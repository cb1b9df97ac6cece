"""How far two samples of features lie apart, measured once for all candidates that share them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Generator, Tensor

from .checks import check_samples
from .estimators.draws import TransportEstimate
from .estimators.kernels import NoBandwidthError, thinned
from .estimators.mmd import MMDEstimate, mmd
from .estimators.transport import SelfTransport, self_transport, sinkhorn_divergence, sinkhorn_floor
from .estimators.wasserstein import wasserstein1
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
