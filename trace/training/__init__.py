"""Stacks of small models and how they are trained, and the anchor penalty for any training loop."""

from .anchor_penalty import AnchorPenalty
from .fit import fit, fit_logistic
from .stack import Stack

__all__ = ["AnchorPenalty", "Stack", "fit", "fit_logistic"]
