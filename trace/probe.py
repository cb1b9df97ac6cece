"""One model, or one feature map, asked about many samples: every answer is computed once and kept.

Answers that were computed elsewhere are handed in with ``know``, so that a model of which only the outputs were saved
can be probed like any other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .checks import check_within_bound
from .estimators.gaps import Gap, validation_gap
from .estimators.lipschitz import (
    GradientQuantile,
    Model,
    NoGradientError,
    evaluation_mode,
    gradient_quantile,
    rows_of,
)
from .estimators.rkhs_norm import RKHSNorm, Spectrum, rkhs_norm
from .features import FeatureMap, extract
from .losses import Loss
from .sample import Sample
from .settings import Settings


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
