"""A labelled or unlabelled sample, and the stratified split of it that the protocol needs."""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from .checks import check_inputs, check_level


class Sample(NamedTuple):
    """Inputs ``x [n, ...]`` with labels ``y [n]``, or without any."""

    x: Tensor
    y: Tensor | None = None
    group: tuple[str, ...] | None = None
    """What each row belongs to, by name, where groups are to be compared."""

    def at(self, chosen: Tensor) -> "Sample":
        """The rows at the indices ``chosen``, in that order, or those that a mask marks."""
        y = None if self.y is None else self.y[chosen.to(self.y.device)]
        rows = torch.arange(len(self.x))[chosen.cpu()].tolist() if self.group else []
        group = None if self.group is None else tuple(self.group[row] for row in rows)
        return Sample(self.x[chosen.to(self.x.device)], y, group)


def drawn(x: Tensor, count: int, generator: Generator) -> Tensor:
    """At most ``count`` rows of ``x [n, ...]``, in random order, without replacement."""
    return x[torch.randperm(len(x), generator=generator, device=generator.device)[:count].to(x.device)]


def check_sample_pair(sample: Sample, name: str) -> Sample:
    """Return ``sample`` if its inputs are valid and it has one label per input, or none at all."""
    check_inputs(sample.x, f"{name}.x")
    if sample.group is not None and len(sample.group) != len(sample.x):
        raise ValueError(f"{name}.group has {len(sample.group)} names for {len(sample.x)} samples: pass one each")
    if sample.y is None:
        return sample
    if not isinstance(sample.y, Tensor):
        raise ValueError(f"{name}.y must be a torch tensor, got {type(sample.y).__name__}: use torch.as_tensor")
    if sample.y.shape != (len(sample.x),):
        raise ValueError(f"{name}.y has shape {list(sample.y.shape)} for {len(sample.x)} samples: pass one label each")
    if sample.y.device != sample.x.device:
        raise ValueError(
            f"{name}.x is on {sample.x.device} but {name}.y on {sample.y.device}: move one with .to(device)"
        )
    return sample


def stratified_split(sample: Sample, *, fraction: float = 0.15, generator: Generator) -> tuple[Sample, Sample]:
    """Training and validation parts; each class gives ``fraction`` of its members (``app:common-impl``: 15%).

    A class of at least two members is in both parts. The parts' sizes depend on n alone, unless there are more such
    classes than rows to go to a part: then it gets one of each. Regression targets and unlabelled samples are split at
    random.

    >>> data = Sample(torch.arange(8.0)[:, None], torch.tensor([0, 1] * 4))
    >>> train, val = stratified_split(data, fraction=0.25, generator=torch.Generator().manual_seed(0))
    >>> len(train.x), sorted(val.y.tolist())
    (6, [0, 1])
    """
    check_level(fraction, "fraction")
    if (n := len(check_sample_pair(sample, "sample").x)) < 2:
        raise ValueError(f"a sample of {n} cannot be split: pass at least 2 samples")
    groups = torch.zeros(n, dtype=torch.long) if sample.y is None or sample.y.is_floating_point() else sample.y
    order = torch.randperm(n, generator=generator, device=generator.device).to(groups.device)
    held_out = torch.zeros(n, dtype=torch.bool, device=groups.device)
    values, counts = groups.unique(return_counts=True)
    for group, size in zip(values, _shares(counts.tolist(), round(fraction * n)), strict=True):
        held_out[order[groups[order] == group][:size]] = True
    return sample.at(~held_out), sample.at(held_out)


def _shares(counts: list[int], total: int) -> list[int]:
    """``total`` in proportion to ``counts``, by largest remainders, so that the sum depends on the size alone.

    Every class of two or more keeps a member on either side. What that takes from or adds to the total is made up for
    one by one in the class that is then relatively nearest to its share, so in large classes; where there are none to
    give or take, the sum is the nearest possible one.
    """
    exact = [total * count / sum(counts) for count in counts]
    sizes = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(counts)), key=lambda i: sizes[i] - exact[i])
    for i in by_remainder[: total - sum(sizes)]:
        sizes[i] += 1
    sizes = [min(max(size, 1), count - 1) for size, count in zip(sizes, counts, strict=True)]
    step = 1 if sum(sizes) < total else -1
    for _ in range(abs(total - sum(sizes))):
        if not (movable := [i for i, count in enumerate(counts) if 1 <= sizes[i] + step <= count - 1]):
            break
        sizes[min(movable, key=lambda i: abs(sizes[i] + step - exact[i]) / counts[i])] += step
    return sizes
