"""Anchor-aware training (``sec:conclusion``): a penalty on the anchor terms, added to the loss of any training loop.

Beside the update's own objective it holds the new model to the old one on unlabelled inputs of the anchor,

    min_f~  E_target ell(f~(x), y) + weight E_anchor penalty(f(x), f~(x)),

with the terms of `trace.estimators.anchor` as penalties. At ``f~ = f``, where a fine-tuning starts, each of them is 0
and so is the gradient that torch takes there. Logits beyond the clip of the loss get no gradient.
"""

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from ..checks import check_count, check_inputs, check_paired
from ..estimators.gradient_quantile import Model
from ..features import extract
from ..losses import ClippedCrossEntropy, Loss, ZeroOne

Kind = Literal["worst_label", "lipschitz", "plug_in"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_CROSS_ENTROPY = ClippedCrossEntropy()


def worst_label_penalty(outputs: Tensor, new_outputs: Tensor, loss: Loss = _CROSS_ENTROPY) -> Tensor:
    """``mean_i max_y |ell(f~(x_i), y) - ell(f(x_i), y)|``, at least ``|Delta R|`` on these inputs, whatever the labels.

    Args:
        outputs, new_outputs: ``[n, C]``, both models on the same anchor inputs; gradients flow to the second.

    Raises:
        ValueError: for a loss without a worst label or without a gradient, or outputs that do not belong together.

    >>> z = torch.tensor([[2.0, 0.0]])
    >>> new = torch.tensor([[0.0, 0.0]], requires_grad=True)
    >>> worst_label_penalty(z, new).backward()  # label 1's loss moved most: a step undoes it
    >>> new.grad
    tensor([[-0.5000,  0.5000]])
    """
    _check_gradient(loss)
    return loss.worst_label_change(outputs, new_outputs).mean()


def lipschitz_penalty(outputs: Tensor, new_outputs: Tensor, loss: Loss = _CROSS_ENTROPY) -> Tensor:
    """``L_ell mean_i |f~(x_i) - f(x_i)|`` between clipped outputs, by `Loss.change_norms`: at least the worst label's.

    Args and Raises as in `worst_label_penalty`; a loss without a finite Lipschitz constant is refused.

    >>> lipschitz_penalty(torch.zeros(1, 2), torch.tensor([[3.0, 1.0]]))
    tensor(2.0000)
    """
    _check_gradient(loss)
    check_paired(outputs, new_outputs)
    if not math.isfinite(loss.lipschitz):
        raise ValueError(f"{type(loss).__name__} has no finite Lipschitz constant in the outputs: give it a limit")
    return loss.lipschitz * loss.change_norms(outputs, new_outputs).mean()


def plug_in_penalty(outputs: Tensor, new_outputs: Tensor, loss: Loss = _CROSS_ENTROPY) -> Tensor:
    """``mean_i E_{y ~ Q(.|x_i)} [ell(f~(x_i), y) - ell(f(x_i), y)]``: the risk change if Q's predictions were true.

    An estimate and no bound. For cross-entropy it is ``mean KL(Q | Q~)``, distillation on the anchor, and for
    regression ``mean ell(f~, f)``: it is never negative, so that its positive part is all of it.

    >>> float(plug_in_penalty(torch.zeros(1, 2), torch.zeros(1, 2)))
    0.0
    """
    _check_gradient(loss)
    return loss.expected_change(outputs, new_outputs).mean()


PENALTIES: dict[Kind, Callable[[Tensor, Tensor, Loss], Tensor]] = {
    "worst_label": worst_label_penalty,
    "lipschitz": lipschitz_penalty,
    "plug_in": plug_in_penalty,
}
"""The value of each is that of the same field of `trace.estimators.anchor.anchor_terms`."""


class AnchorPenalty:
    """``weight * penalty(f, f~)`` on anchor inputs, to be added to a training loss.

    The old model is run once, here, in eval mode; it is not kept, so the model that is trained may be that very module.

    >>> from torch import nn
    >>> g = torch.Generator().manual_seed(0)
    >>> old, new = nn.Linear(2, 3), nn.Linear(2, 3)
    >>> _ = new.load_state_dict(old.state_dict())
    >>> anchor, x, y = torch.randn(50, 2, generator=g), torch.randn(8, 2, generator=g), torch.arange(8) % 3
    >>> penalty = AnchorPenalty(old, anchor, kind="plug_in", weight=2.0, batch_size=16, generator=g)
    >>> penalty(new).item()
    0.0
    >>> optimiser = torch.optim.SGD(new.parameters(), 0.1)
    >>> for _ in range(3):
    ...     loss = nn.functional.cross_entropy(new(x), y) + penalty(new)
    ...     optimiser.zero_grad()
    ...     loss.backward()
    ...     optimiser.step()
    >>> penalty(new).item() > 0
    True
    """

    def __init__(
        self,
        old_model: Model,
        anchor_inputs: Tensor,
        *,
        kind: Kind = "plug_in",
        weight: float = 1.0,
        loss: Loss = _CROSS_ENTROPY,
        batch_size: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        """
        Args:
            anchor_inputs: ``[n, ...]``, without labels, on the models' device.
            kind: ``worst_label``, ``lipschitz`` or ``plug_in``.
            weight: at least 0; the attribute may be changed between steps.
            batch_size: inputs of each call, drawn anew without replacement; None takes all of them.
            generator: decides the batches; needed where there are any.

        Raises:
            ValueError: for an unknown kind, a negative weight, a missing generator, invalid inputs or outputs.
        """
        if kind not in PENALTIES:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if not (math.isfinite(weight) and weight >= 0):
            raise ValueError(f"weight must be finite and at least 0, got {weight}: 0 leaves the training as it was")
        if batch_size is not None:
            check_count(batch_size, "batch_size")
            if generator is None:
                raise ValueError(f"batch_size={batch_size} needs a generator: pass torch.Generator().manual_seed(0)")
        self.inputs = check_inputs(anchor_inputs, "anchor_inputs")
        self.kind, self.weight, self.loss = kind, weight, loss
        self.batch_size, self.generator = batch_size, generator
        self.outputs = extract(old_model, self.inputs, name="old_model")
        PENALTIES[kind](self.outputs, self.outputs, loss)  # refuses a loss that the kind cannot take

    def __call__(self, new_model: Model) -> Tensor:
        """A scalar with gradients to ``new_model``, which is run in the mode it is in."""
        rows = self._batch()
        return self.weight * PENALTIES[self.kind](self.outputs[rows], new_model(self.inputs[rows]), self.loss)

    def _batch(self) -> slice | Tensor:
        if self.batch_size is None or self.generator is None or self.batch_size >= len(self.inputs):
            return slice(None)
        order = torch.randperm(len(self.inputs), generator=self.generator, device=self.generator.device)
        return order[: self.batch_size].to(self.inputs.device)


def _check_gradient(loss: Loss) -> None:
    if isinstance(loss, ZeroOne):
        raise ValueError("ZeroOne has no gradient to train with: penalise ClippedCrossEntropy instead")
