"""What the report shows about one anchor, from both samples' features and both models' outputs.

Among it rows worth looking at: inputs farthest from the source, and inputs on which two models disagree most.
"""

import base64
import io
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from PIL import Image
from sklearn.neighbors import NearestNeighbors
from torch import Generator, Tensor

from ..checks import check_count, check_logits, check_paired, check_samples
from ..diagnostic import Diagnostic
from ..hardware import doubled
from ..sample import Sample, check_sample_pair, drawn
from .changes import ColumnDrift, SliceChange, column_drift, slice_changes, transitions
from .embedding import Embedding, embedding
from .words import number


class Ranking(NamedTuple):
    """Rows with the largest values, largest first; ties go to the earlier row."""

    rows: tuple[int, ...]
    values: tuple[float, ...]
    typical: float
    """What the values are to be compared with."""


@torch.no_grad()
def most_shifted(
    source: Tensor,
    target: Tensor,
    *,
    num_examples: int,
    neighbours: int = 5,
    max_source: int = 10_000,
    generator: Generator | None = None,
) -> Ranking:
    """Target rows farthest from the source: mean distance to the ``neighbours`` nearest source rows.

    Features ``source [n, k]`` and ``target [m, k]``, Euclidean distance. ``typical`` is the median over
    source rows of the same distance to the other source rows: a row of the target at that distance is not shifted.

    Args:
        max_source: source rows compared with; a larger source is thinned at random, which needs a ``generator``.

    Raises:
        ValueError: for invalid samples or counts, or a source with no more than ``neighbours`` rows.

    >>> x, y = torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([[1.0], [9.0], [6.0]])
    >>> most_shifted(x, y, num_examples=2, neighbours=1).rows
    (1, 2)
    """
    check_samples(source, target, "source", "target")
    check_count(num_examples, "num_examples")
    check_count(neighbours, "neighbours")
    check_count(max_source, "max_source")
    if len(source) > max_source:
        if generator is None:
            raise ValueError(f"source has {len(source)} rows, more than max_source = {max_source}: pass a generator")
        source = drawn(source, max_source, generator)
    if neighbours >= len(source):
        raise ValueError(f"neighbours must be less than the {len(source)} source rows, got {neighbours}")
    centre = doubled(source).mean(dim=0)  # near neighbours are close against a sample's offset
    x, y = ((doubled(z) - centre).cpu().numpy() for z in (source, target))
    nearest = NearestNeighbors(n_neighbors=neighbours).fit(x)
    distances, within = (torch.as_tensor(nearest.kneighbors(rows)[0]).mean(dim=1) for rows in (y, None))
    return _largest(distances, num_examples, float(within.quantile(0.5)))


@torch.no_grad()
def most_disagreeing(logits: Tensor, new_logits: Tensor, *, num_examples: int) -> Ranking:
    """Rows with the largest total variation between the two models' predictive distributions.

    ``TV = (1 / 2) sum_c |softmax(z~)_c - softmax(z)_c|`` for logits ``[n, C]`` of both models on the same inputs, in
    ``[0, 1]``. ``typical`` is the mean over all rows.

    Raises:
        ValueError: for invalid or unpaired logits, or fewer than two classes.

    >>> z = torch.tensor([[0.0, 0.0], [9.0, -9.0]])
    >>> most_disagreeing(z, z.flip(1), num_examples=1).rows
    (1,)
    """
    check_count(num_examples, "num_examples")
    check_logits(logits, "logits")
    check_logits(new_logits, "new_logits")
    check_paired(logits, new_logits, "logits", "new_logits")
    p, q = (doubled(z).softmax(dim=1) for z in (logits, new_logits))
    distances = (p - q).abs().sum(dim=1) / 2
    return _largest(distances, num_examples, float(distances.mean()))


def _largest(values: Tensor, count: int, typical: float) -> Ranking:
    found = doubled(values).sort(descending=True, stable=True)
    rows, top = found.indices[:count].tolist(), found.values[:count].tolist()
    return Ranking(tuple(rows), tuple(top), typical)


def is_image(x: Tensor) -> bool:
    """Whether ``x`` has the shape of an image, ``[1, H, W]`` or ``[3, H, W]``, with at least 4 pixels a side."""
    return x.ndim == 3 and x.shape[0] in (1, 3) and min(x.shape[1:]) >= 4


@torch.no_grad()
def thumbnail(image: Tensor, low: Tensor, high: Tensor, *, max_side: int = 96) -> str:
    """``data:image/png;base64,...`` of a float image ``[3, H, W]`` or ``[1, H, W]``, shrunk to ``max_side``.

    Args:
        low, high: the values of every channel, ``[3]`` or ``[1]``, that are drawn as black and full; see `range_of`.

    Raises:
        ValueError: for another shape or dtype, or values that are not finite.

    >>> thumbnail(torch.zeros(3, 8, 8), torch.zeros(3), torch.ones(3))[:22]
    'data:image/png;base64,'
    """
    check_count(max_side, "max_side")
    if not is_image(image) or not image.is_floating_point():
        raise ValueError(f"image must be a float tensor [3, H, W], got {list(image.shape)} of {image.dtype}")
    if not bool(torch.isfinite(image).all()):
        raise ValueError("image holds NaN or infinity: repair it first")
    x, low, high = (z.float().cpu() for z in (image, low[:, None, None], high[:, None, None]))
    x = (x - low) / torch.where(high > low, high - low, 1.0)
    pixels = (x.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).squeeze(2).numpy()
    picture, file = Image.fromarray(pixels), io.BytesIO()
    picture.thumbnail((max_side, max_side), Image.Resampling.BILINEAR)
    picture.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def range_of(images: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value of every channel of ``images [n, C, H, W]``; 0 and 1 where all lie in between.

    Undoes a normalisation by channel, such as ImageNet's, up to the darkest and brightest value that occur.
    """
    low, high = images.amin(dim=(0, 2, 3)), images.amax(dim=(0, 2, 3))
    if float(low.min()) >= 0 and float(high.max()) <= 1:
        return torch.zeros_like(low), torch.ones_like(high)
    return low, high


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
    outcome: str = ""
    """``newly wrong`` or ``newly right``, where the label tells and the prediction changes."""


class AnchorRows(NamedTuple):
    """Rows of the anchor on which both models are compared."""

    sample: Sample
    logits: tuple[Tensor, Tensor]
    """Outputs of the old and the new model, ``[n, C]``."""
    names: Sequence[str]


class ReportCase(NamedTuple):
    """One anchor of the report, as plain data."""

    anchor: str
    diagnostic: Diagnostic
    embedding: Embedding | None
    shifted: list[Example]
    """Target rows farthest from the source."""
    disagreeing: list[Example]
    """Anchor rows on which the models disagree most, newly wrong ones first; empty where outputs are no scores."""
    typical_distance: float = math.nan
    """What a row of the source has as its distance from the others."""
    mean_disagreement: float = math.nan
    """Mean total variation between the models over the anchor's rows."""
    held_out: bool = False
    """Whether these rows of the anchor are others than the source's training rows."""
    transitions: Sequence[Sequence[str]] = ()
    """Old to new predictions on these rows, see `changes.transitions`."""
    classes: Sequence[SliceChange] = ()
    groups: Sequence[SliceChange] = ()
    """What labels, or without them changed predictions, show of every class and group."""
    drift: Sequence[ColumnDrift] = ()
    """Of the target's columns against the source's."""
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
    held_out: AnchorRows | None = None,
    columns: Sequence[str] = (),
) -> ReportCase:
    """Embedding, most-shifted and most-disagreeing rows of one anchor, its classes and groups, and drift by column.

    Shifted rows come from the target (where the shift is), disagreeing ones from the anchor (where the risk change is
    measured): from rows that are held out where there are any.

    Args:
        source_features, target_features: h of both samples, ``[n, k]`` and ``[m, k]``.
        source_logits, target_logits: outputs of the old and the new model on either sample, ``[n, C]``, ``[m, C]``.
        names: what to call the rows of either sample.
        generator: draws rows for the embedding, and thins a very large source.
        num_examples: rows per list; 0 for none.
        classes: names of the classes; their numbers without any.
        held_out: rows of the anchor that no model was trained on; the source's own if absent.
        columns: names of the columns of tables, for their drift; there is none without them.

    Raises:
        ValueError: where features, outputs, names or classes do not fit the samples.
    """
    _check_rows("source", source, source_features, source_logits, names[0])
    _check_rows("target", target, target_features, target_logits, names[1])
    check_samples(source_features, target_features, "source_features", "target_features")
    outputs = source_logits[0].shape[1]
    if classes and len(classes) != outputs:
        raise ValueError(f"classes has {len(classes)} names for {outputs} outputs: pass one name per class")
    if num_examples < 0:
        raise ValueError(f"num_examples must be 0 or more, got {num_examples}")
    features = (source_features, target_features)
    on_anchor = AnchorRows(source, source_logits, names[0]) if held_out is None else held_out
    check_paired(*on_anchor.logits, "the old model's outputs on held_out", "the new model's")
    classifies = outputs > 1 and not math.isnan(diagnostic.evidence.anchor.disagreement.value)
    far = apart = Ranking((), (), math.nan)
    if num_examples and len(source.x) > 1:
        neighbours = min(NEIGHBOURS, len(source.x) - 1)
        far = most_shifted(*features, num_examples=num_examples, neighbours=neighbours, generator=generator)
    if num_examples and classifies:
        apart = _flips_first(most_disagreeing(*on_anchor.logits, num_examples=len(on_anchor.names)), on_anchor)
        apart = apart._replace(rows=apart.rows[:num_examples], values=apart.values[:num_examples])
    image_range = _image_range(source.x, target.x) if num_examples else None
    points = embedding(*features, generator=generator)
    shifted, disagreeing = (
        _examples(ranking, sample, called, logits if classifies else None, classes, image_range)
        for ranking, sample, called, logits in (
            (far, target, names[1], target_logits),
            (apart, on_anchor.sample, on_anchor.names, on_anchor.logits),
        )
    )
    slices = diagnostic.evidence.slices
    by_class, by_group = slices.get("class", slices.get("predicted")), slices.get("group")
    return ReportCase(
        anchor,
        diagnostic,
        points,
        shifted,
        disagreeing,
        far.typical,
        apart.typical,
        held_out=held_out is not None,
        transitions=transitions(*on_anchor.logits, classes or [str(i) for i in range(outputs)]) if classifies else (),
        classes=slice_changes(by_class) if by_class else (),
        groups=slice_changes(by_group) if by_group else (),
        drift=column_drift(source, target, columns) if columns else (),
    )


def _flips_first(ranking: Ranking, rows: AnchorRows) -> Ranking:
    """Rows that are newly wrong, then others whose prediction changes, then those that keep it, each in their order."""
    order = torch.tensor(ranking.rows)
    before, after = (z.argmax(dim=1).cpu() for z in rows.logits)
    lost = torch.zeros_like(before) if rows.sample.y is None else (before == rows.sample.y.cpu()).long()
    rank = ((before != after).long() * (1 + lost))[order]
    places = rank.sort(descending=True, stable=True).indices.tolist()
    return ranking._replace(
        rows=tuple(ranking.rows[i] for i in places), values=tuple(ranking.values[i] for i in places)
    )


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


def _examples(
    ranking: Ranking,
    sample: Sample,
    names: Sequence[str],
    logits: tuple[Tensor, Tensor] | None,
    classes: Sequence[str],
    image_range: tuple[Tensor, Tensor] | None,
) -> list[Example]:
    """The rows of a ranking, with all that is known about each."""

    def class_name(index: int) -> str:
        return classes[index] if 0 <= index < len(classes) else str(index)

    def prediction(z: Tensor) -> Prediction:
        best = int(z.argmax())
        return Prediction(class_name(best), float(torch.softmax(doubled(z), dim=0)[best]))

    found = []
    for row, value in zip(ranking.rows, ranking.values, strict=True):
        old, new = (None, None) if logits is None else (prediction(z[row]) for z in logits)
        y = None if sample.y is None else sample.y[row]
        label = "" if y is None else number(float(y)) if y.is_floating_point() else class_name(int(y))
        image = "" if image_range is None else thumbnail(sample.x[row], *image_range)
        outcome = ""
        if old is not None and new is not None and label and old.label != new.label:
            outcome = {old.label: "newly wrong", new.label: "newly right"}.get(label, "")
        found.append(Example(names[row], value, old, new, label, image, outcome))
    return found
