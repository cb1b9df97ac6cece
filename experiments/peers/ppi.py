"""PPI++ by its authors' package ppi-python: run in the environment of peers, by `experiments.peers.ask`.

Told ``y`` and ``guess`` ``[paths, rows]``, ``unlabelled`` ``[N]``, numbers of labels ``n`` ``[looks]`` and ``alpha``,
it answers ``weight`` (the lambda that `ppi_mean_ci` itself used), ``estimate``, ``lower`` and ``upper``, each
``[paths, looks]``, with null for what is no number. Told ``limits`` too, it answers ``labels`` and ``accepted``
``[limits, paths]`` instead: where intervals at growing n first lie on one side of a limit, null where none does.

Of version 0.2.3: where `ppi_mean_ci` tunes lambda itself it forgets ``alternative`` and is always two-sided, so each
side's error is half of ``alpha``.
"""

import json
import math
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np


class PeerInterval(NamedTuple):
    weight: float
    estimate: float
    lower: float
    upper: float


def main(path: str) -> None:
    with np.load(path) as told:
        arrays = {name: told[name] for name in told.files}
    limits = arrays.pop("limits", None)
    print(json.dumps(intervals(**arrays) if limits is None else decisions(limits, **arrays), allow_nan=False))


def intervals(y: Any, guess: Any, unlabelled: Any, n: Any, alpha: Any) -> dict[str, Any]:
    found = [list(_looks(*path, unlabelled, n, float(alpha))) for path in zip(y, guess, strict=True)]
    return {
        name: [[_number(getattr(look, name)) for look in looks] for looks in found] for name in PeerInterval._fields
    }


def decisions(limits: Any, y: Any, guess: Any, unlabelled: Any, n: Any, alpha: Any) -> dict[str, Any]:
    """Intervals do not depend on the limit: a path is looked at until all limits are decided."""
    labels: list[list[int | None]] = [[None] * len(y) for _ in limits]
    accepted = [[False] * len(y) for _ in limits]
    for path, (own, said) in enumerate(zip(y, guess, strict=True)):
        open_ = dict(enumerate(limits.tolist()))
        for count, look in zip(n.tolist(), _looks(own, said, unlabelled, n, float(alpha)), strict=False):
            for at, limit in list(open_.items()):
                if look.upper <= limit or look.lower > limit:
                    labels[at][path], accepted[at][path] = count, look.upper <= limit
                    del open_[at]
            if not open_:
                break
    return {"labels": labels, "accepted": accepted}


def _looks(y: Any, guess: Any, unlabelled: Any, n: Any, alpha: float) -> Iterator[PeerInterval]:
    """Of one path, after each number of labels."""
    from ppi_py import ppi, ppi_mean_ci, ppi_mean_pointestimate

    tune, weights = ppi._calc_lam_glm, []

    def listened(*arguments: Any, **options: Any) -> Any:
        weights.append(tune(*arguments, **options))
        return weights[-1]

    ppi._calc_lam_glm = listened
    try:
        for count in n.tolist():
            told = y[:count], guess[:count], unlabelled
            weights.clear()
            lower, upper = ppi_mean_ci(*told, alpha=alpha)
            (weight,) = weights
            yield PeerInterval(float(weight), ppi_mean_pointestimate(*told).item(), lower.item(), upper.item())
    finally:
        ppi._calc_lam_glm = tune


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    main(sys.argv[1])
