"""Exact 1-Wasserstein distance between two samples (``def:w1``)."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from ..checks import check_samples
from .draws import TransportEstimate, over_draws, positive_weights

_PLANAR = 3
"""Up to this dimension a point has so many equally good partners that the simplex is the faster solver."""
_EXPONENT_RANGE = 60.0
"""Costs are spread over this many epsilon of the entropic plan: the most that float32 holds with some room."""
_FIRST_SWEEPS, _SWEEPS = 6, 48
_TOL = 0.02
_MAX_PARTNERS = 20.0


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
    """Exact 1-Wasserstein distance with Euclidean cost (``def:w1``).

    Samples ``x [n, d]``, ``y [m, d]``; the value is in units of x. Solved on the CPU in float64 with an n x m cost
    matrix, by POT's network simplex with at most ``num_iters`` pivots, or as an assignment where sizes and weights are
    equal and `entropic_potentials` promise that it is the faster; beyond ``max_samples`` the mean over subsamples is
    returned (biased upwards, see its spread). In one dimension any number is sorted whole.

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
            cost = ot.dist(x_np, y_np, metric="euclidean")
            uniform = len(a) == len(b) and bool((a == a[0]).all() and (b == b[0]).all())
            potentials = entropic_potentials(cost) if uniform and x.shape[1] > _PLANAR else None
            if potentials is not None:
                value = assignment_cost(cost, *potentials)
            else:
                value, log = ot.emd2(a_np, b_np, cost, numItermax=num_iters, log=True)
                converged = log["warning"] is None
        error = 0.0 if converged else math.inf
        return TransportEstimate(float(value), "euclidean", converged, 0, 0.0, error, sample_sizes=(len(x), len(y)))

    if x.shape[1] == 1 or max(len(x), len(y)) <= max_samples:
        return distance(x, x_weights, y, y_weights)
    return over_draws(distance, x, x_weights, y, y_weights, subsample, num_draws, generator)


def assignment_cost(cost: NDArray[np.float64], f: NDArray[np.float64], g: NDArray[np.float64]) -> float:
    """``min over permutations s of mean_i C_{i s(i)}`` for costs ``[n, n]``, which are overwritten.

    Potentials ``[n]`` taken off rows and columns change every permutation's cost alike. Good ones leave little to
    search for: shortest augmenting paths (scipy) are then 2 to 10 times as fast.

    >>> assignment_cost(np.array([[1.0, 2.0], [1.0, 5.0]]), np.zeros(2), np.zeros(2))
    1.5
    """
    from scipy.optimize import linear_sum_assignment

    cost -= f[:, None]
    cost -= g
    rows, columns = linear_sum_assignment(cost)
    return float((cost[rows, columns] + f[rows] + g[columns]).mean())


def entropic_potentials(cost: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Potentials f, g ``[n]`` of the entropic plan between uniform weights, by Sinkhorn sweeps in float32.

    None where the plan sends a point's mass to many partners, ``mean_i 1 / sum_j P_ij^2 > 20`` with rows summing to 1:
    dense or tightly clustered points, whose potentials do not tell whom to assign and for which the simplex is faster.
    """
    K = torch.from_numpy(cost).float()
    lowest, highest = float(K.min()), float(K.max())
    epsilon = (highest - lowest) / _EXPONENT_RANGE
    if epsilon == 0:
        return None
    K.sub_(lowest).div_(-epsilon).exp_()
    u, v = torch.zeros(len(K)), torch.ones(len(K))
    for sweep in range(_SWEEPS):
        row_sums = K @ v
        if float((u * row_sums - 1).abs().mean()) <= _TOL:
            break
        if sweep == _FIRST_SWEEPS:
            plan = K * v / row_sums[:, None]
            if float((1 / plan.square_().sum(dim=1)).mean()) > _MAX_PARTNERS:
                return None
        u = 1 / row_sums
        v = 1 / (K.T @ u)
    return (u.double().log() * epsilon).numpy(), (v.double().log() * epsilon).numpy()
