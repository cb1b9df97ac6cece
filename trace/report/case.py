"""What the report shows about one anchor, from both samples' features and both models' outputs."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ..checks import check_paired, check_samples
from ..diagnostic import Diagnostic
from ..sample import Sample, check_sample_pair
from .embedding import Embedding, embedding
from .examples import Ranking, most_disagreeing, most_shifted
from .thumbnail import is_image, range_of, thumbnail
from .words import number

NEIGHBOURS = 5
"""Source rows that a target row's distance is the mean over; fewer in a smaller source."""


class Prediction(NamedTuple):
    """The class a model gives a row, and its probability."""

    label: str
    confidence: float


class Example(NamedTuple):
    """One row for people to look at."""

    name: str
    value: float
    """What it is ranked by: distance from the source, or total variation between the models."""
    old: Prediction | None
    """None where the outputs are no class scores."""
    new: Prediction | None
    label: str
    """The true one; empty where it is not known."""
    image: str
    """A data URI, or empty."""


class ReportCase(NamedTuple):
    """One anchor of the report, as plain data."""

    anchor: str
    diagnostic: Diagnostic
    embedding: Embedding | None
    shifted: list[Example]
    """Target rows farthest from the source."""
    disagreeing: list[Example]
    """Source rows on which the models disagree most; empty where the outputs are no class scores."""
    typical_distance: float = math.nan
    """What a row of the source has as its distance from the others."""
    mean_disagreement: float = math.nan
    """Mean total variation between the models over the source."""
    notes: tuple[str, ...] = ()
    """What was decided or noticed while it was measured, a sentence each."""


def report_case(
    anchor: str,
    diagnostic: Diagnostic,
    source: Sample,
    target: Sample,
    source_features: Tensor,
    target_features: Tensor,
    source_logits: tuple[Tensor, Tensor],
    target_logits: tuple[Tensor, Tensor],
    names: tuple[Sequence[str], Sequence[str]],
    *,
    generator: Generator,
    num_examples: int = 8,
    classes: Sequence[str] = (),
) -> ReportCase:
    """Embedding, most-shifted and most-disagreeing rows of one anchor.

    Shifted rows come from the target (where the shift is), disagreeing ones from the source (where the risk change is
    measured).

    Args:
        source_features, target_features: h of both samples, ``[n, k]`` and ``[m, k]``.
        source_logits, target_logits: outputs of the old and the new model on either sample, ``[n, C]``, ``[m, C]``.
        names: what to call the rows of either sample.
        generator: draws rows for the embedding, and thins a very large source.
        num_examples: rows per list; 0 for none.
        classes: names of the classes; their numbers without any.

    Raises:
        ValueError: where features, outputs, names or classes do not fit the samples.
    """
    _check_rows("source", source, source_features, source_logits, names[0])
    _check_rows("target", target, target_features, target_logits, names[1])
    check_samples(source_features, target_features, "source_features", "target_features")
    outputs = source_logits[0].shape[1]
    _check_options(classes, outputs, num_examples)
    features = (source_features, target_features)
    classifies = outputs > 1 and not math.isnan(diagnostic.evidence.anchor.disagreement.value)
    far = apart = Ranking((), (), math.nan)
    if num_examples and len(source.x) > 1:
        neighbours = min(NEIGHBOURS, len(source.x) - 1)
        far = most_shifted(*features, num_examples=num_examples, neighbours=neighbours, generator=generator)
    if num_examples and classifies:
        apart = most_disagreeing(*source_logits, num_examples=num_examples)
    drawn = _image_range(source.x, target.x) if num_examples else None
    on_source = _Rows(source, names[0], source_logits if classifies else None, classes, drawn)
    on_target = _Rows(target, names[1], target_logits if classifies else None, classes, drawn)
    points, shifted = embedding(*features, generator=generator), on_target.examples(far)
    return ReportCase(anchor, diagnostic, points, shifted, on_source.examples(apart), far.typical, apart.typical)


def _check_options(classes: Sequence[str], outputs: int, num_examples: int) -> None:
    if classes and len(classes) != outputs:
        raise ValueError(f"classes has {len(classes)} names for {outputs} outputs: pass one name per class")
    if num_examples < 0:
        raise ValueError(f"num_examples must be 0 or more, got {num_examples}")


def _check_rows(kind: str, sample: Sample, h: Tensor, logits: tuple[Tensor, Tensor], names: Sequence[str]) -> None:
    """One row of features, of either model's outputs and one name per input."""
    check_sample_pair(sample, kind)
    check_paired(*logits, f"the old model's {kind}_logits", f"the new model's {kind}_logits")
    for what, length in (
        (f"{kind}_features", len(h)),
        (f"{kind}_logits", len(logits[0])),
        (f"names of {kind}", len(names)),
    ):
        if length != len(sample.x):
            raise ValueError(f"{what}: {length} for the {len(sample.x)} inputs of {kind}, pass one for each")


def _image_range(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor] | None:
    """Black and full of every channel over both samples; None where they hold no images."""
    if not (is_image(x[0]) and is_image(y[0]) and x.shape[1] == y.shape[1]):
        return None
    (low, high), (low_new, high_new) = range_of(x), range_of(y)
    return torch.minimum(low, low_new), torch.maximum(high, high_new)


class _Rows(NamedTuple):
    """One sample with all that its examples show."""

    sample: Sample
    names: Sequence[str]
    logits: tuple[Tensor, Tensor] | None
    classes: Sequence[str]
    image_range: tuple[Tensor, Tensor] | None

    def examples(self, ranking: Ranking) -> list[Example]:
        return [self._example(row, value) for row, value in zip(ranking.rows, ranking.values, strict=True)]

    def _example(self, row: int, value: float) -> Example:
        old, new = (None, None) if self.logits is None else (self._prediction(z[row]) for z in self.logits)
        label = ""
        if self.sample.y is not None:
            y = self.sample.y[row]
            label = number(float(y)) if y.is_floating_point() else self._class(int(y))
        image = "" if self.image_range is None else thumbnail(self.sample.x[row], *self.image_range)
        return Example(self.names[row], value, old, new, label, image)

    def _prediction(self, z: Tensor) -> Prediction:
        best = int(z.argmax())
        return Prediction(self._class(best), float(torch.softmax(z.double(), dim=0)[best]))

    def _class(self, index: int) -> str:
        return self.classes[index] if 0 <= index < len(self.classes) else str(index)
