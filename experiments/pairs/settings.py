"""The keys of every experiment that measures: its loss, and each number that decides a diagnostic."""

from dataclasses import dataclass, fields

from trace import Settings
from trace.losses import ClippedCrossEntropy

from ..engine.config import added


@dataclass(frozen=True)
class SettingsConfig:
    """`trace.Settings`, key by key."""

    q: float = Settings.q
    """Level of the gradient quantile that stands in for L_x."""
    delta: float = Settings.delta
    """Failure probability of the sampling statements."""
    eta: float = Settings.eta
    """Failure probability of the validation statements."""
    c_h: float = Settings.c_h
    """Representation scale between feature distance and input distance."""
    distance: str = Settings.distance
    """sinkhorn, the published proxy in squared units; or wasserstein1, what the theorem needs."""
    epsilon: float = Settings.epsilon
    """Of the Sinkhorn divergence, in squared units of the features."""
    num_iters: int = Settings.num_iters
    """Most Sinkhorn sweeps."""
    kernel: str = Settings.kernel
    """Of MMD and RKHS norm."""
    bandwidth: float | None = Settings.bandwidth
    """Of the kernel; the median heuristic if absent."""
    mmd_samples: int = Settings.mmd_samples
    """Most rows of either sample in the quadratic MMD."""
    loss_bound: str = Settings.loss_bound
    """M of the remainders: the loss's true bound, or the smaller one that the paper states."""
    remainders: str = Settings.remainders
    """corrected: the events share delta + eta and both samples' W1 errors count; paper: as printed."""
    w1_constant: float = Settings.w1_constant
    """C of the W1 remainder, a convention."""
    mmd_constant: float | None = Settings.mmd_constant
    """C of the MMD remainder; the explicit inequality for bounded kernels if absent."""

    tol: float = added(Settings.tol)
    """By how much Sinkhorn's marginals may be off in total."""
    input_diameter: float | None = added(Settings.input_diameter)
    """Largest distance between two possible inputs, where it is known."""

    def settings(self) -> Settings:
        """As the library takes them.

        Raises:
            ValueError: for a number out of its range.
        """
        return Settings(**{field.name: getattr(self, field.name) for field in fields(SettingsConfig)})


@dataclass(frozen=True)
class LossConfig:
    """The loss of classifiers."""

    clip: float = ClippedCrossEntropy.clip_at
    """Logits are clipped to [-clip, clip] before the cross-entropy, which bounds it."""

    def loss(self) -> ClippedCrossEntropy:
        return ClippedCrossEntropy(self.clip)


@dataclass(frozen=True)
class MeasureConfig(LossConfig, SettingsConfig):
    """Both, for experiments that run the whole diagnostic of classifiers."""

    def check_numbers(self) -> None:
        """Refuse a number out of its range.

        Raises:
            ValueError: with its name.
        """
        self.loss()
        self.settings()
