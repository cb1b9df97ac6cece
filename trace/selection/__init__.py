"""Which rows of a pool to label next: a batch that lies close to the source (``app:domainnet-active``).

The paper writes ``B_t = argmin over |B| = b of Distance(h(S_src), h(B))``, recomputed in each round. That is a search
over subsets; `mmdmin` is its greedy solution, `w1min` greedy with refinement, and `random` the baseline of both.
Rows are returned as indices into the pool, and ``chosen`` holds those of earlier rounds, which are not taken again.
"""

from .mmdmin import KernelMeans, kernel_means, mmdmin
from .pool import Selection
from .random import random
from .w1min import w1min

__all__ = ["KernelMeans", "Selection", "kernel_means", "mmdmin", "random", "w1min"]
