"""What the paper's own formulas and printed numbers say: its definitions and how it computes them."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from trace.estimators import sinkhorn_divergence, wasserstein1
from trace.estimators.remainders import Budget, w1_remainder
from trace.losses import BoundConvention, ClippedCrossEntropy
from trace.stats.intervals import dkw_radius, hoeffding_radius, proportion_interval

from ...engine.records import Record
from ..ledger import Measurement, arithmetic, measure, present
from ..rule import Estimated
from .excerpt import LEVEL, VALIDATION_SHARE

CLIP_AT = 10.0
CASE, LARGE = "Sinkhorn divergence, large", "20000 x 20000 x 512"
NOTHING = 1e-6
"""A W1 that is rounding."""
PAIRS = 2000
"""Random pairs of logits for each number of classes."""


@arithmetic
def loss_bound(
    classes: tuple[int, ...] = (2, 345), clip_at: float = CLIP_AT, convention: BoundConvention = "paper"
) -> Measurement:
    """The loss of the wrong label at the corner of the clipped logits, through `ClippedCrossEntropy` itself."""
    loss = ClippedCrossEntropy(clip_at)
    reached = {c: float(loss(_corner(c, clip_at), torch.tensor([0]))) for c in classes}
    return Measurement(
        "largest loss " + ", ".join(f"{value:.2f} nats (C = {c})" for c, value in reached.items()),
        0,
        {"excess": {f"C = {c}": value - loss.bound(c, convention) for c, value in reached.items()}},
    )


@arithmetic
def logit_lipschitz(classes: tuple[int, ...] = (2, 10, 345), scale: float = 1.0) -> Measurement:
    """Largest quotient of loss change and logit distance over random pairs, and over short steps from the corner.

    ``scale`` multiplies the loss.
    """
    generator = torch.Generator().manual_seed(0)
    largest = scale * max(_steepest(c, generator) for c in classes)
    return Measurement(
        f"largest quotient {largest:.4f} (C = {', '.join(map(str, classes))})",
        PAIRS * len(classes),
        {"quotient": largest},
    )


@arithmetic
def label_noise_constant(width_over_bound: float = 2.0, n: int = 1000) -> Measurement:
    """What Hoeffding gives for the stated range, and for the range that Z_i really has."""
    stated, real = (hoeffding_radius(n, LEVEL / 2, width) for width in (width_over_bound, 1.0))
    return Measurement(
        f"{stated:.4f} M for the stated range, {real:.4f} M for the range M (n = {n}, delta = {LEVEL})",
        0,
        {"stated over real": stated / real},
    )


@arithmetic
def label_noise_of_a_trained_model(memorises: bool = True, n: int = 1000) -> Measurement:
    """Coin-flip labels that Q has memorised at the clip: its training loss against its expected loss."""
    loss = ClippedCrossEntropy(CLIP_AT)
    both = [float(loss(_corner(2, CLIP_AT), torch.tensor([label]))) for label in (1, 0)]
    term = sum(both) / 2 - both[0] if memorises else 0.0
    allowed = hoeffding_radius(n, LEVEL / 2, loss.bound(2))
    return Measurement(
        f"{term:.2f} nats against {allowed:.2f} allowed (n = {n}, two classes, coin-flip labels)",
        0,
        {"term over allowed": term / allowed},
    )


@arithmetic
def promised_probability(spent: Budget | None = None) -> Measurement:
    """A union bound over the events that the proof names."""
    budget = spent or Budget.paper(LEVEL, LEVEL)
    return Measurement(
        f"{1 - budget.total:.2f} (label noise, empirical W1 and two validation sets at {LEVEL} each)",
        0,
        {"probability": 1 - budget.total},
    )


@arithmetic
def population_residual(samples: int = 1, n: int = 2000) -> Measurement:
    """One remainder for each empirical measure of the triangle inequality, in units of the unknown constant C."""
    one = w1_remainder(n, 2, LEVEL, 1.0)
    return Measurement(
        f"{samples * one:.4f} C printed, {2 * one:.4f} C needed (n = {n} twice, 2 dimensions, equal C)",
        0,
        {"remainders": samples},
    )


@arithmetic
def remainder_vanishes(dims: tuple[int, ...] = (2, 2048), sizes: tuple[int, ...] = (2000, 120_906)) -> Measurement:
    """epsilon_n of ``eq:w1-triangle`` in the dimensions and sizes of the paper, in units of its constant C."""
    sides = list(zip(dims, sizes, strict=True))
    remainders = {f"d = {d}, n = {n}": w1_remainder(n, d, LEVEL, 1.0) for d, n in sides}
    (d, _), needed = sides[-1], 10.0
    return Measurement(
        ", ".join(f"{value:.3f} C at {name}" for name, value in remainders.items()),
        0,
        {"remainder": remainders},
        f"To be a tenth of C in {d} dimensions it would need about log(4 / delta) {needed:g}^{d} samples; C itself is "
        "unknown, so no sample computes this term.",
    )


@arithmetic
def quantile_band(q: float = 0.99, eta: float = LEVEL, sizes: tuple[int, ...] = (1000, 2000, 5000)) -> Measurement:
    """Whether the DKW band of the q-quantile has an upper end: it has none where epsilon reaches 1 - q."""
    held_out = {n: round(VALIDATION_SHARE * n) for n in sizes}
    margins = {f"m = {m}": (1 - q) - dkw_radius(m, eta) for m in held_out.values()}
    needed = math.ceil(math.log(2 / eta) / (2 * (1 - q) ** 2))
    return Measurement(
        "epsilon "
        + ", ".join(f"{dkw_radius(m, eta):.3f} (m = {m})" for m in held_out.values())
        + f", 1 - q = {1 - q:g}",
        0,
        {"margin": margins},
        f"The upper end is finite from m = {needed} held-out rows on.",
    )


@arithmetic
def mmd_constant(n: int = 2000, delta: float = LEVEL, others: tuple[float, ...] = (0.5, 0.001)) -> Measurement:
    """The radius of the cited work (Gretton et al., 2012) for the biased MMD of two samples of n, kernel at most K.

    ``4 sqrt(K / n) + 2 sqrt(K log(2 / delta) / n)``; the paper has ``C_kappa sqrt(log(2 / delta) / n)``.
    """
    stated, first = math.sqrt(math.log(2 / delta) / n), 4 / math.sqrt(n)
    constants = {f"delta = {level:g}": 4 / math.sqrt(math.log(2 / level)) + 2 for level in (delta, *others)}
    return Measurement(
        f"{first + 2 * stated:.4f} with K = 1 and n = {n}, that is C_kappa = "
        + ", ".join(f"{value:.2f} at {name}" for name, value in constants.items()),
        0,
        {"largest over smallest": max(constants.values()) / min(constants.values())},
    )


@arithmetic
def sinkhorn_is_w1(shifts: tuple[float, ...] = (0.25, 1.0, 2.0), n: int = 200) -> Measurement:
    """Both distances between a cloud and itself moved by t."""
    cloud = torch.randn(n, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moved = [cloud + torch.tensor([t, 0.0], dtype=torch.float64) for t in shifts]
    pairs = [(sinkhorn_divergence(cloud, y).value, wasserstein1(cloud, y).value) for y in moved]
    return Measurement(
        ", ".join(f"{s:.4f} for W1 = {w:.4f}" for s, w in pairs),
        n,
        {"ratio": {f"{t:g}": s / w for t, (s, w) in zip(shifts, pairs, strict=True)}},
    )


@arithmetic
def transport_is_the_distance_of_means(shifts: list[float], dims: list[int], n: int = 100) -> Measurement:
    """Exact W1 between a Gaussian sample and itself moved by mu."""
    errors = {}
    for dim, shift in itertools.product(dims, shifts):
        cloud = torch.randn(n, dim, generator=torch.Generator().manual_seed(dim), dtype=torch.float64)
        moved = cloud + torch.nn.functional.one_hot(torch.tensor(0), dim) * shift
        errors[f"d = {dim}, |mu| = {shift:g}"] = abs(wasserstein1(cloud, moved).value / shift - 1)
    return Measurement(
        f"W1 / |mu| - 1 is at most {max(errors.values()):.1g} over {len(errors)} shifts and dimensions",
        len(errors),
        {"error": errors},
    )


@arithmetic
def minibatch_sinkhorn(n: int, batch: int, dim: int, shift: float) -> Measurement:
    """The divergence between unit-norm samples, in one piece and as the mean over mini-batches."""
    generator = torch.Generator().manual_seed(0)
    x, y = (normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64) + t) for t in (0.0, shift))
    whole = sinkhorn_divergence(x, y).value
    parts = [sinkhorn_divergence(a, b).value for a, b in zip(x.split(batch), y.split(batch), strict=True)]
    mean = sum(parts) / len(parts)
    return Measurement(
        f"{mean:.3f} on batches of {batch}, {whole:.3f} on all {n} rows (unit norm, {dim} dimensions, shift {shift:g})",
        n,
        {"ratio": mean / whole},
    )


@arithmetic
def normalised_features_have_unit_scale(n: int, dim: int, stretch: float) -> Measurement:
    """The c_h that W1 of the inputs needs when the target is the source stretched by a factor."""
    x = torch.randn(n, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    inputs, features = wasserstein1(x, stretch * x).value, wasserstein1(normalize(x), normalize(stretch * x)).value
    return Measurement(
        f"W1 is {inputs:.2f} between x and {stretch:g} x, and {features:.1g} between their normalised features",
        n,
        {"needed c_h": 0.0 if inputs < NOTHING else inputs / max(features, sys.float_info.min)},
    )


@measure()
def sinkhorn_in_seconds(records: list[Record]) -> Measurement:
    """The large case of the stored benchmark."""
    found = [
        (r, row)
        for r in records
        for row in r["metrics"]["rows"]
        if (row["case"], row["size"], row["contender"]) == (CASE, LARGE, "ours")
    ]
    (record, row), *_ = present(found, f"row of {CASE!r} with size {LARGE}")
    return Measurement(
        f"{row['seconds']:.1f} s for {LARGE} on {record['machine']['cores']} CPU cores, no GPU",
        1,
        {"seconds": row["seconds"]},
    )


@arithmetic
def interval_over_seeds(num_seeds: int = 4, draws: int = 2000) -> Measurement:
    """Coverage of the percentile interval of a mean, from all resamples of normal values."""
    distinct, coverage = math.comb(2 * num_seeds - 1, num_seeds), _bootstrap_coverage(num_seeds, draws)
    return Measurement(
        f"{distinct} distinct resamples; the interval covers a normal mean in {100 * coverage:.0f}% of draws",
        draws,
        {"coverage": Estimated(coverage, *proportion_interval(round(coverage * draws), draws, 0.05)[:2])},
    )


def _corner(num_classes: int, clip_at: float) -> Tensor:
    """Logits ``[1, C]``: label 0 at the lower clip, all others at the upper one."""
    logits = torch.full((1, num_classes), clip_at, dtype=torch.float64)
    logits[:, 0] = -clip_at
    return logits


def _steepest(num_classes: int, generator: torch.Generator) -> float:
    loss = ClippedCrossEntropy(CLIP_AT)
    z = CLIP_AT / 2 * torch.randn(PAIRS, num_classes, generator=generator, dtype=torch.float64)
    z_new = CLIP_AT / 2 * torch.randn(PAIRS, num_classes, generator=generator, dtype=torch.float64)
    wrong = torch.zeros(2, num_classes, dtype=torch.float64)
    wrong[:, 1] = torch.tensor([CLIP_AT - 0.01, CLIP_AT])
    wrong[:, 0] = -wrong[:, 1]
    z, z_new = torch.cat([z, wrong[:1]]), torch.cat([z_new, wrong[1:]])
    return float((loss.worst_label_change(z, z_new) / (loss.clip(z) - loss.clip(z_new)).norm(dim=1)).max())


def _bootstrap_coverage(num_seeds: int, draws: int) -> float:
    values = np.random.default_rng(0).standard_normal((draws, num_seeds))
    resamples = np.array(list(itertools.combinations_with_replacement(range(num_seeds), num_seeds)))
    counts = np.stack([(resamples == seed).sum(axis=1) for seed in range(num_seeds)])
    ways = [math.factorial(num_seeds) // math.prod(map(math.factorial, map(int, column))) for column in counts.T]
    means = np.repeat(values @ counts / num_seeds, ways, axis=1)
    low, high = np.quantile(means, (0.025, 0.975), axis=1)
    return float(((low <= 0) & (high >= 0)).mean())
