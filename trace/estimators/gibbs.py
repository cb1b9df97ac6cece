"""The Gibbs kernel of two weighted clouds under squared Euclidean cost, by blocks that are kept or made anew."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

_BLOCK_BYTES = 64 * 2**20
_BLOCK_ROWS = 1024
_EXPONENT_ROOM = {torch.float32: 80.0, torch.float64: 690.0}
"""``exp`` of anything below minus this is (nearly) lost."""


class Clouds:
    """Two centred clouds with positive weights; makes ``Z = log(a b^T) + (f + g - C) / eps`` by row blocks.

    Vectors (weights, potentials) are float64 throughout, matrices have the dtype of the samples.
    """

    def __init__(self, x: Tensor, a: Tensor, y: Tensor, b: Tensor, epsilon: float, memory_budget: int) -> None:
        self.symmetric = x is y and a is b
        centre_x, centre_y = a.to(x.dtype) @ x, b.to(y.dtype) @ y
        self.x = x - centre_x
        self.y = self.x if self.symmetric else y - centre_y
        self.gap = gap = (centre_x - centre_y).double()
        rounding = (a.to(x.dtype) @ self.x - b.to(y.dtype) @ self.y).double()
        self.centring = float(gap @ (gap + 2 * rounding))
        self.a, self.b, self.epsilon = a, b, epsilon
        self.x_sq = torch.linalg.vector_norm(self.x, dim=1).double().square()
        self.y_sq = self.x_sq if self.symmetric else torch.linalg.vector_norm(self.y, dim=1).double().square()
        row_bytes = len(y) * x.element_size()
        self.memory_budget = memory_budget
        self.block_rows = max(1, min(_BLOCK_ROWS, min(_BLOCK_BYTES, memory_budget) // row_bytes))

    def uncentred(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Potentials of the clouds before centring: ``f + 2 <x, gap>``, ``g - 2 <y, gap>``, up to constants."""
        if self.symmetric:
            return f, g
        slope = 2 * self.gap.to(self.x.dtype)
        return f + (self.x @ slope).double(), g - (self.y @ slope).double()

    def max_exponent(self) -> float:
        """An upper bound on ``C / eps``, from the norms alone."""
        return float((self.x_sq.max().sqrt() + self.y_sq.max().sqrt()).square()) / self.epsilon

    def resolved(self) -> bool:
        """Whether rounding moves exponents by less than 0.01, and potentials (of size eps) by little against C."""
        rounding = torch.finfo(self.x.dtype).eps
        return 1e4 * rounding <= self.max_exponent() <= 0.01 / rounding

    def plain_kernel_in_range(self) -> bool:
        """Whether no entry of ``a b^T exp(-C / eps)`` underflows."""
        log_weights = float(self.a.min().log() + self.b.min().log())
        return self.max_exponent() - log_weights <= _EXPONENT_ROOM[self.x.dtype]

    def row_slices(self) -> Iterator[slice]:
        for start in range(0, len(self.x), self.block_rows):
            yield slice(start, min(start + self.block_rows, len(self.x)))

    def bias(self, f: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """p, q with ``Z_ij = p_i + q_j + (2 / eps) <x_i, y_j>``."""
        p = (f - self.x_sq) / self.epsilon + self.a.log()
        q = (g - self.y_sq) / self.epsilon + self.b.log()
        return p.to(self.x.dtype), q.to(self.x.dtype)

    def exponent(self, p: Tensor, q: Tensor, rows: slice, columns: slice = slice(None)) -> Tensor:
        Z = torch.addmm(q[columns], self.x[rows], self.y[columns].T, alpha=2.0 / self.epsilon)
        return Z.add_(p[rows, None])


class GibbsKernel:
    """``K = exp(Z)`` for potentials f, g by row blocks: as many as fit the budget are kept, the others made on demand.

    Of a symmetric kernel only the part from the diagonal block to the right exists.
    """

    def __init__(self, clouds: Clouds, f: Tensor, g: Tensor) -> None:
        self.clouds = clouds
        self.p, self.q = clouds.bias(f, g)
        self._held: list[Tensor] = []
        room = clouds.memory_budget
        for rows in clouds.row_slices():
            room -= (rows.stop - rows.start) * (len(clouds.y) - self._right(rows).start) * clouds.x.element_size()
            if room < 0:
                break
            self._held.append(self._block(rows))

    def _right(self, rows: slice) -> slice:
        return slice(rows.start if self.clouds.symmetric else 0, len(self.clouds.y))

    def _block(self, rows: slice) -> Tensor:
        return self.clouds.exponent(self.p, self.q, rows, self._right(rows)).exp_()

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Rows, and the entries of K in them."""
        for number, rows in enumerate(self.clouds.row_slices()):
            yield rows, self._held[number] if number < len(self._held) else self._block(rows)

    def row_sums(self, v: Tensor) -> Tensor:
        """``K v``, ``[n]``."""
        sums = v.new_zeros(len(self.clouds.x))
        for rows, K in self.blocks():
            sums[rows] += product(K, v[self._right(rows)])
            if self.clouds.symmetric:
                sums[rows.stop :] += product(K[:, rows.stop - rows.start :].T, v[rows])
        return sums


def product(K: Tensor, v: Tensor) -> Tensor:
    """``K v`` in the dtype of K, returned in float64."""
    return (K @ v.to(K.dtype)).double()


def resolved_clouds(x: Tensor, a: Tensor, y: Tensor, b: Tensor, epsilon: float, memory_budget: int) -> Clouds:
    """The clouds in their own dtype if it resolves ``C / eps`` and ``eps``, else in float64, else an error."""
    clouds = Clouds(x, a, y, b, epsilon, memory_budget)
    if clouds.resolved():
        return clouds
    if x.dtype != torch.float64:
        x64 = x.double()
        y64 = x64 if clouds.symmetric else y.double()
        clouds = Clouds(x64, a, y64, b, epsilon, memory_budget)
    if not clouds.max_exponent() <= 0.01 / torch.finfo(torch.float64).eps:
        raise ValueError(
            f"squared distances reach {clouds.max_exponent():.0e} epsilon, more than float64 resolves: "
            "rescale the samples, drop outliers or raise epsilon (on the command line --set epsilon=...)"
        )
    return clouds
