"""Updates of a model of tables: trained on from Q, from new weights, or by scikit-learn; well, or on spoiled data."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import Generator, Tensor, nn

from trace.adapters import from_sklearn

from ..engine.config import added
from ..engine.errors import UserError
from ..vision.batches import Rows
from ..vision.classifier import Classifier
from ..vision.finetune import TrainSpec, train
from ..vision.resume import Keeper
from ..vision.samples import share

HIDDEN = 32
"""Units of every perceptron."""


@dataclass(frozen=True)
class TableSpec(TrainSpec):
    """How an update is made; what is added to `TrainSpec` belongs to tables."""

    learner: str = added("")
    """Trained on from Q if empty; ``new``: Q's kind of model from new weights; ``logistic`` and ``perceptron``:
    scikit-learn's."""
    noise: float = added(0.0)
    """Share of the target's labels that are drawn at random instead."""
    lost: list[str] = field(default_factory=list, metadata={"added": []})
    """Attributes that training saw as zeros, such as SCHL; at the test they are there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.learner not in ("", "new", *LEARNERS):
            raise UserError(f"learner {self.learner!r} is unknown: take one of new, {', '.join(LEARNERS)}, or none")
        if not 0 <= self.noise <= 1:
            raise UserError(f"noise is {self.noise}: it must be between 0 and 1")

    @property
    def of_tables(self) -> bool:
        """Whether it asks for what only tables have."""
        return bool(self.learner or self.noise or self.lost)


def _logistic(spec: TableSpec, seed: int) -> Any:
    return LogisticRegression(max_iter=1000)


def _perceptron(spec: TableSpec, seed: int) -> Any:
    return MLPClassifier(
        (HIDDEN,),
        activation="tanh",
        alpha=spec.weight_decay,
        batch_size=spec.batch_size,
        learning_rate_init=spec.lr,
        max_iter=spec.epochs,
        random_state=seed,
    )


LEARNERS: Mapping[str, Callable[[TableSpec, int], Any]] = {"logistic": _logistic, "perceptron": _perceptron}
"""scikit-learn's estimators that have gradients: the perceptron by Adam with the spec's steps, the other converged."""


def updated(
    spec: TableSpec,
    q: Classifier,
    new: Callable[[], Classifier],
    target: Rows,
    *,
    source: Rows,
    columns: Sequence[str],
    generator: Generator,
    checkpoint: Keeper | None = None,
) -> nn.Module:
    """The update of Q on the target's rows that a spec describes; ``new`` makes a model of Q's kind."""
    data = spoiled(target, spec, columns, generator)
    if spec.learner not in LEARNERS:
        start = new() if spec.learner == "new" else q
        return train(spec, start, data, source=source, generator=generator, checkpoint=checkpoint).model
    own = data if spec.label_fraction == 1 else data.select(share(data.y, spec.label_fraction, generator))
    estimator = LEARNERS[spec.learner](spec, int(torch.randint(2**31, (), generator=generator)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # as many epochs as the spec has
        return from_sklearn(estimator.fit(own.x.double().numpy(), own.y.numpy())).requires_grad_(False)


def spoiled(rows: Rows, spec: TableSpec, columns: Sequence[str], generator: Generator) -> Rows:
    """Rows as the training sees them: with labels drawn at random, and zeros in what was lost."""
    x, y = rows.x, rows.y
    if spec.noise > 0:
        drawn = torch.rand(len(y), generator=generator) < spec.noise
        y = torch.where(drawn, torch.randint(int(y.max()) + 1, (len(y),), generator=generator), y)
    for name in spec.lost:
        kept = torch.tensor([column.split("=")[0] != name for column in columns])
        if bool(kept.all()):
            known = dict.fromkeys(column.split("=")[0] for column in columns)
            raise UserError(f"there is no attribute {name!r} to lose: take some of {', '.join(known)}")
        x = x * kept
    return replace(rows, kept=x, y=y)


def perceptron(dim: int, num_classes: int, *, scale: float, generator: Generator) -> Classifier:
    """One hidden layer of tanh below a head of zeros; ``scale`` is that of the inputs, as in `new_classifier`."""
    bound = dim**-0.5
    hidden, head = nn.Linear(dim, HIDDEN), nn.Linear(HIDDEN, num_classes)
    with torch.no_grad():
        hidden.weight.copy_(scale * bound * _uniform(hidden.weight, generator))
        hidden.bias.copy_(bound * _uniform(hidden.bias, generator))
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
    return Classifier("head", nn.Sequential(hidden, nn.Tanh()), head, torch.tensor(1.0)).eval()


def _uniform(like: Tensor, generator: Generator) -> Tensor:
    """In ``[-1, 1)``."""
    return 2 * torch.rand(like.shape, generator=generator) - 1
