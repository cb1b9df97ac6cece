"""The same Sinkhorn divergence by geomloss and by POT, to check `sinkhorn_divergence` against.

Both solve for the cost ``|x - y|^2`` and the regularisation epsilon of the paper. geomloss works with
``|x - y|^2 / 2`` and ``epsilon = blur^2``, so blur is ``sqrt(epsilon / 2)`` and its value counts twice.
"""

from __future__ import annotations

import math

import ot
import torch
from torch import Tensor

from trace.checks import check_positive, check_samples


def geomloss_divergence(x: Tensor, y: Tensor, *, epsilon: float = 0.1, scaling: float = 0.9) -> float:
    """Debiased divergence by geomloss (epsilon scaling). ``scaling=0.5``, its default, is off by up to a third."""
    from geomloss import SamplesLoss

    check_samples(x, y)
    check_positive(epsilon, "epsilon")
    loss = SamplesLoss("sinkhorn", p=2, blur=math.sqrt(epsilon / 2), scaling=scaling, backend="tensorized")
    with torch.no_grad():
        return 2 * float(loss(x, y))


def pot_divergence(x: Tensor, y: Tensor, *, epsilon: float = 0.1, num_iters: int = 1000, tol: float = 1e-4) -> float:
    """Debiased divergence from three POT solves in the dual form, entropy included."""
    check_samples(x, y)
    check_positive(epsilon, "epsilon")

    def transport(p: Tensor, q: Tensor) -> float:
        cost = ot.dist(p, q, metric="sqeuclidean")
        result = ot.solve(cost, reg=epsilon, reg_type="KL", max_iter=num_iters, tol=tol, grad="detach")
        return float(result.value)

    return transport(x, y) - (transport(x, x) + transport(y, y)) / 2
