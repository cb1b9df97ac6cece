"""One quantity of the paper per file, each a pure function of tensors."""

from .anchor import anchor_terms
from .certified import certified_lipschitz
from .gradient_quantile import gradient_norms, gradient_quantile
from .mmd import mmd
from .output_distance import output_distance
from .rkhs_norm import rkhs_norm
from .sinkhorn import self_transport, sinkhorn_divergence, sinkhorn_floor
from .validation_gap import validation_gap
from .wasserstein1 import wasserstein1

__all__ = [
    "anchor_terms",
    "certified_lipschitz",
    "gradient_norms",
    "gradient_quantile",
    "mmd",
    "output_distance",
    "rkhs_norm",
    "self_transport",
    "sinkhorn_divergence",
    "sinkhorn_floor",
    "validation_gap",
    "wasserstein1",
]
