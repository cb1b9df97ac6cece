"""Gradients under all labels at once, and how far the Jacobians of two models lie apart, from rows that were seen.

The gradient of the loss in x is ``J^T g_y`` with J the Jacobian of the outputs and ``g_y`` the gradient of the loss in
the outputs. So one Jacobian, a backward pass an output, has the gradients under all labels; the largest of them is a
lower bound on the Lipschitz constant that the corollary conditions on. Of two models the Jacobians give the constant of
``f~ - f``, again from below.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..hardware import doubled
from ..losses import Loss, centred_change
from .gradient_quantile import Model, NoGradientError, evaluation_mode, outputs_at, quantile
from .kernels import thinned, tiles

FEWEST_PASSES = 2048
"""Rows times outputs that are always affordable; beyond, there are no more of them than rows."""
_ENTRIES = 20_000_000
"""Most entries of the Jacobians that are held at once."""


class LargestGradient(NamedTuple):
    """``max_{i, y} |grad_x ell(f(x_i), y)|`` over rows and all labels."""

    value: float
    num_samples: int
    """Rows that were looked at."""


class JacobianChange(NamedTuple):
    """``max_i |J~(x_i) - J(x_i)|`` in the operator norm: the largest slope of ``f~ - f`` that was seen."""

    value: float
    quantile: float
    """The q-quantile over rows."""
    q: float
    num_samples: int


def slopes(
    models: Sequence[Model],
    x: Tensor,
    loss: Loss,
    *,
    num_outputs: int,
    q: float = 0.99,
    centred: bool = False,
    at: Sequence[nn.Module] | None = None,
    batch_size: int = 1024,
    names: Sequence[str] = ("model", "new_model"),
) -> tuple[list[LargestGradient | str], JacobianChange | None]:
    """The largest gradient of every model under all labels; of two, how far their Jacobians lie apart.

    It takes a backward pass for every row and output. Where that were more than one for every row and more than
    `FEWEST_PASSES`, rows at even strides are looked at, and ``num_samples`` says how many.

    Args:
        models: one or two, from ``x [n, ...]`` to outputs ``[n, C]``; ``num_outputs`` is C.
        loss: its labels are the classes, or the ends of its range; a sentence stands for the gradient without either.
        q: level of the quantile of Jacobian changes.
        centred: compare the Jacobians of outputs less their mean, all that cross-entropy sees of log-probabilities.
        at: a submodule of every model, to take gradients in its output; Jacobians are then not compared.

    Raises:
        NoGradientError: for a model without gradients.
    """
    rows = thinned(x, max(1, max(len(x), FEWEST_PASSES) // num_outputs))
    size = max(1, min(batch_size, _ENTRIES // (num_outputs * rows[0].numel())))
    largest: list[list[float]] = [[] for _ in models]
    changes = []
    with torch.enable_grad(), evaluation_mode(*models):
        for batch in tiles(len(rows), size):
            found = []
            for i, model in enumerate(models):
                outputs, jacobian = _jacobian(model, rows[batch], at[i] if at else None, names[i])
                largest[i].append(_largest(outputs, jacobian, loss))
                found.append(jacobian)
            if len(found) == 2 and at is None:
                change = centred_change(found[1] - found[0]) if centred else found[1] - found[0]
                changes.append(torch.linalg.eigvalsh(change @ change.mT)[:, -1].clamp(min=0).sqrt())
    gradients = [_summary(values, len(rows), loss) for values in largest]
    if not changes:
        return gradients, None
    apart = torch.cat(changes)
    return gradients, JacobianChange(float(apart.max()), quantile(apart, q), q, len(rows))


def _jacobian(model: Model, x: Tensor, at: nn.Module | None, name: str) -> tuple[Tensor, Tensor]:
    """Outputs ``[n, C]`` and their Jacobian ``[n, C, d]`` in float64."""
    where, outputs = outputs_at(model, x, at, name)
    if not outputs.requires_grad:
        raise NoGradientError(f"{name} has no gradient in its inputs: use a differentiable model")
    rows = [
        torch.autograd.grad(outputs[:, c].sum(), where, retain_graph=True, allow_unused=True)[0]
        for c in range(outputs.shape[1])
    ]
    flat = [doubled((torch.zeros_like(where) if row is None else row).flatten(start_dim=1)) for row in rows]
    return outputs.detach(), torch.stack(flat, dim=1)


def _largest(outputs: Tensor, jacobian: Tensor, loss: Loss) -> float:
    """Over rows and labels, by ``|J^T g|^2 = g^T (J J^T) g``."""
    gram = jacobian @ jacobian.mT
    most = 0.0
    for target in loss.extreme_targets(outputs.shape[1]):
        leaf = outputs.clone().requires_grad_()
        labels = torch.full(
            (len(leaf),), target, device=leaf.device, dtype=torch.long if loss.classification else leaf.dtype
        )
        losses = loss(leaf, labels)
        if not losses.requires_grad:
            raise NoGradientError(f"{type(loss).__name__} has no gradient: use a differentiable loss")
        (g,) = torch.autograd.grad(losses.sum(), leaf)
        most = max(most, float(torch.einsum("nc,ncd,nd->n", doubled(g), gram, doubled(g)).max()))
    return math.sqrt(max(0.0, most))


def _summary(values: list[float], num_samples: int, loss: Loss) -> LargestGradient | str:
    if not loss.extreme_targets(2):
        return f"the targets of {type(loss).__name__} have no limit, so its gradients have no largest"
    return LargestGradient(max(values), num_samples)
