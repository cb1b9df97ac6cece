"""Exact 1-Wasserstein distance between two samples (``def:w1``)."""

import math

from torch import Generator, Tensor

from ..checks import check_samples
from .draws import TransportEstimate, over_draws, positive_weights


def wasserstein1(
    x: Tensor,
    y: Tensor,
    *,
    x_weights: Tensor | None = None,
    y_weights: Tensor | None = None,
    num_iters: int = 10_000_000,
    max_samples: int = 10_000,
    subsample: int = 5_000,
    num_draws: int = 5,
    generator: Generator | None = None,
) -> TransportEstimate:
    """Exact 1-Wasserstein distance with Euclidean cost (``def:w1``), by POT; sorted quantiles in one dimension.

    Samples ``x [n, d]``, ``y [m, d]``; the value is in units of x. Solved on the CPU in float64 with an n x m cost
    matrix; beyond ``max_samples`` the mean over subsamples is returned (biased upwards, see its spread). In one
    dimension any number is sorted whole.

    >>> import torch
    >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    >>> wasserstein1(x, x + torch.tensor([0.0, 2.0])).value
    2.0
    """
    import ot  # seconds to import, and the default distance does not need it

    check_samples(x, y)

    def distance(x: Tensor, a: Tensor | None, y: Tensor, b: Tensor | None) -> TransportEstimate:
        x_kept, a = positive_weights(x, a, "x_weights")
        y_kept, b = positive_weights(y, b, "y_weights")
        x_np, a_np, y_np, b_np = (t.detach().cpu().double().numpy() for t in (x_kept, a, y_kept, b))
        converged = True
        if x.shape[1] == 1:
            value = float(ot.wasserstein_1d(x_np[:, 0], y_np[:, 0], a_np, b_np, p=1))
        else:
            value, log = ot.emd2(a_np, b_np, ot.dist(x_np, y_np, metric="euclidean"), numItermax=num_iters, log=True)
            converged = log["warning"] is None
        error = 0.0 if converged else math.inf
        return TransportEstimate(float(value), "euclidean", converged, 0, 0.0, error, sample_sizes=(len(x), len(y)))

    if x.shape[1] == 1 or max(len(x), len(y)) <= max_samples:
        return distance(x, x_weights, y, y_weights)
    return over_draws(distance, x, x_weights, y, y_weights, subsample, num_draws, generator)
