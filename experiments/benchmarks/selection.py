"""Benchmark cases of choosing what to label, and of the distances, at the size of DomainNet's real and painting.

    python -m experiments benchmark --case "full size"

The value is the objective, or the distance.
"""

from functools import partial

import torch
from torch import Generator

from trace import Settings
from trace.estimators import mmd, sinkhorn_divergence
from trace.estimators.kernels import thinned
from trace.selection import mmdmin, w1min

from . import BenchmarkCase, Contender, Target, unit_samples

ROWS = Settings().mmd_samples
MEMORY = 8e9
"""Bytes that each of them may need beyond its inputs."""


def cases(size: dict[str, int]) -> list[BenchmarkCase]:
    """One batch of all labels, and both distances between all of the source and all of the pool."""
    n, m, d, count = (size[name] for name in ("n_source", "n_pool", "d_features", "count_selected"))
    measured: dict[str, tuple[str, Contender]] = {
        "mmdmin": (f", choose {count}", lambda x, y: mmdmin(x, y, count).objective),
        "w1min": (f", choose {count}", lambda x, y: w1min(x, y, count, generator=_generator()).objective),
        "Sinkhorn": (", 5 draws of 10000", lambda x, y: sinkhorn_divergence(x, y, generator=_generator()).value),
        "MMD": (f", {ROWS} of either", lambda x, y: mmd(thinned(x, ROWS), thinned(y, ROWS)).squared),
    }
    return [
        BenchmarkCase(
            f"full size, {name}",
            f"{n} x {m} x {d}{what}",
            partial(unit_samples, n, m, d),
            {"ours": function},
            (Target("ours", "bytes", at_most=MEMORY),),
            once=True,
        )
        for name, (what, function) in measured.items()
    ]


def _generator() -> Generator:
    return torch.Generator().manual_seed(0)
