"""Training stacks of models: Adam for perceptrons, Newton's method for logistic regression.

Members do not see each other: each has its own data, step size, weight decay and order of samples, and the result is
that of training it alone.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy, softplus

from ..checks import check_count
from .stack import Stack

Progress = Callable[[int, Tensor], None]
"""Called after each epoch with its number and the members' mean training losses ``[k]``."""

_BETAS = (0.9, 0.999)
_EPS = 1e-8


def fit(
    stack: Stack,
    x: Tensor,
    y: Tensor,
    *,
    lr: Tensor,
    weight_decay: Tensor,
    epochs: int,
    batch_size: int,
    generators: Sequence[Generator],
    progress: Progress | None = None,
) -> Stack:
    """Train every member with Adam on cross-entropy, in place.

    Args:
        x, y: ``[k, n, d]`` and ``[k, n]``, the members' samples.
        lr, weight_decay: ``[k]``; decay is Adam's, an L2 gradient on weights and biases.
        generators: one per member; each epoch visits the samples in an order drawn from it.

    Raises:
        ValueError: for a loss that is no longer finite, naming the members.
    """
    k, n = y.shape
    check_count(epochs, "epochs")
    check_count(batch_size, "batch_size")
    if not len(stack) == len(lr) == len(weight_decay) == len(generators) == len(x) == k:
        raise ValueError(f"a stack of {len(stack)} needs as many samples, step sizes, decays and generators")
    parameters: list[Tensor] = list(stack.parameters())
    step, decay = lr[:, None, None].to(x.dtype), weight_decay[:, None, None].to(x.dtype)
    optimiser = _Adam(parameters, step, decay)
    rows = torch.arange(k)[:, None]
    for epoch in range(epochs):
        order = torch.stack([torch.randperm(n, generator=generator) for generator in generators])
        x_epoch, y_epoch = x[rows, order], y[rows, order]
        total = torch.zeros(k, dtype=x.dtype)
        for start in range(0, n, batch_size):
            batch = slice(start, start + batch_size)
            losses = _losses(stack(x_epoch[:, batch]), y_epoch[:, batch])
            optimiser.update(torch.autograd.grad(losses.sum(), parameters))
            total += losses.detach() * y_epoch[:, batch].shape[1] / n
        if not total.isfinite().all():
            lost = (~total.isfinite()).nonzero().flatten().tolist()
            raise ValueError(f"the loss of members {lost} is not finite after epoch {epoch + 1}: lower their step size")
        if progress is not None:
            progress(epoch, total)
    return stack


def _losses(logits: Tensor, y: Tensor) -> Tensor:
    """Mean cross-entropy of every member, ``[k]``."""
    k, n, num_classes = logits.shape
    return cross_entropy(logits.reshape(k * n, num_classes), y.reshape(k * n), reduction="none").view(k, n).mean(dim=1)


class _Adam:
    """Adam with a step size and a decay per member, ``[k, 1, 1]``; torch's own takes one for all."""

    def __init__(self, parameters: list[Tensor], step: Tensor, decay: Tensor) -> None:
        self.parameters, self.step, self.decay, self.count = parameters, step, decay, 0
        self.means = [torch.zeros_like(p) for p in parameters]
        self.squares = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor]) -> None:
        self.count += 1
        scale, root = 1 - _BETAS[0] ** self.count, (1 - _BETAS[1] ** self.count) ** 0.5
        for p, gradient, mean, square in zip(self.parameters, gradients, self.means, self.squares, strict=True):
            g = gradient + self.decay * p
            mean.lerp_(g, 1 - _BETAS[0])
            square.mul_(_BETAS[1]).addcmul_(g, g, value=1 - _BETAS[1])
            p -= self.step / scale * mean / (square.sqrt() / root + _EPS)


class LogisticFit(NamedTuple):
    """Logistic regressions fitted to convergence."""

    weights: Tensor
    """``[k, d]``."""
    intercepts: Tensor
    """``[k]``."""
    gradient_norm: float
    """The largest of the members, at the solution."""
    num_iters: int

    def stack(self) -> Stack:
        """Models with logits ``(-f / 2, f / 2)``, so that their difference is the score ``f``."""
        w, b = self.weights[:, :, None], self.intercepts[:, None, None]
        return Stack([torch.cat([-w / 2, w / 2], dim=2)], [torch.cat([-b / 2, b / 2], dim=2)])


def fit_logistic(x: Tensor, y: Tensor, *, weight_decay: Tensor, max_iters: int = 100) -> LogisticFit:
    """Minimise ``mean log(1 + e^{-s f(x)}) + (decay / 2) |w|^2``, ``s = 2y - 1``, by damped Newton steps in float64.

    Args:
        x, y: ``[k, n, d]`` and ``[k, n]`` with labels 0 and 1.
        weight_decay: ``[k]``, positive; the intercept is free.

    Returns:
        Weights in the dtype of ``x``.

    Raises:
        ValueError: where a member does not converge, as for a decay of 0 on separable classes.
    """
    k, n, d = x.shape
    z = torch.cat([x.double(), torch.ones(k, n, 1, dtype=torch.float64)], dim=2)
    sign = (2 * y - 1).double()
    ridge = weight_decay.double()[:, None] * torch.cat([torch.ones(d), torch.zeros(1)]).double()
    w = torch.zeros(k, d + 1, dtype=torch.float64)

    def objective(w: Tensor) -> Tensor:
        return softplus(-sign * torch.einsum("knd,kd->kn", z, w)).mean(dim=1) + (ridge * w.square()).sum(dim=1) / 2

    value = objective(w)
    gradient_norm = float("inf")
    for iteration in range(1, max_iters + 1):
        p = torch.sigmoid(-sign * torch.einsum("knd,kd->kn", z, w))
        gradient = -torch.einsum("knd,kn->kd", z, sign * p) / n + ridge * w
        gradient_norm = float(gradient.norm(dim=1).max())
        if gradient_norm < 1e-9:
            solution = w.to(x.dtype)
            return LogisticFit(solution[:, :d], solution[:, d], gradient_norm, iteration - 1)
        hessian = torch.einsum("knd,kn,kne->kde", z, p * (1 - p), z) / n + torch.diag_embed(ridge + 1e-12)
        direction = torch.linalg.solve(hessian, gradient)
        size = torch.ones(k, 1, dtype=torch.float64)
        for _ in range(30):
            candidate = objective(w - size * direction)
            worse = candidate > value + 1e-12
            if not worse.any():
                break
            size[worse] /= 2
        w, value = w - size * direction, candidate
    raise ValueError(
        f"logistic regression did not converge in {max_iters} steps (gradient {gradient_norm:.1e}): raise weight_decay"
    )
