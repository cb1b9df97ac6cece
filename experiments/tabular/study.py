"""Two domains of a table as rows, and Q trained on the first.

Inputs are rows of unit length, as the features of images are: distances and gradients are lengths in one space, and h
is the identity. Groups, such as households, are never parted: 50, 15 and 35% of them are train, val and test, the same
for every seed; a seed takes its own share of train and val, and all of test.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import ModuleType

import torch
from torch import Generator, Tensor
from torch.nn.functional import normalize

from ..engine.errors import UserError
from ..engine.run import Context
from ..engine.seeds import seeded
from ..engine.shared import tensor_digest
from ..vision.backbone import weights_digest
from ..vision.batches import Rows
from ..vision.classifier import Classifier, mean_length, new_classifier
from ..vision.finetune import TrainSpec, train
from ..vision.resume import Keeper
from ..vision.samples import share
from ..vision.study import Domain, VisionConfig
from .table import TableDomain, table
from .updates import perceptron

CUTS = (0.50, 0.65)
"""Train ends at the first share of the groups, val at the second."""

KINDS = ("logistic", "perceptron")
"""Of Q: the values of ``arch`` for a table."""


@dataclass(frozen=True)
class TableStudy:
    """A table, and the keys of a case study."""

    config: VisionConfig
    table: ModuleType

    @classmethod
    def of(cls, config: VisionConfig) -> "TableStudy":
        if config.arch not in KINDS:
            raise UserError(f"arch is {config.arch!r}: Q of a table is one of {', '.join(KINDS)}")
        return cls(config, table(config.data))

    def domain(self, name: str) -> Domain[Rows]:
        """This seed's samples of a domain."""
        everything, c = self.table.domain(name), self.config
        train_rows, val_rows, test_rows = parted(everything, generator=seeded("table", c.data, name))
        own = seeded("table rows", name, c.seed)

        def some(rows: Tensor) -> Tensor:
            return rows if c.train_share == 1 else rows[share(everything.y[rows], c.train_share, own)]

        parts = (some(train_rows), some(val_rows), test_rows)
        return Domain(*(Rows(normalize(everything.x[rows]), everything.y[rows]) for rows in parts))

    def new_model(self, generator: Generator) -> Callable[[], Classifier]:
        """Makes models of Q's kind, before any training."""
        scale, dim, classes = self._scale(), len(self.table.COLUMNS), len(self.table.CLASSES)
        if self.config.arch == "logistic":
            return lambda: new_classifier(dim, classes, scale=scale)
        return lambda: perceptron(dim, classes, scale=scale, generator=generator)

    def source_model(self, source: Domain[Rows], context: Context, checkpoint: Keeper | None = None) -> Classifier:
        """Q, trained once for all runs of the store; ``checkpoint`` keeps its epochs."""
        c, rows = self.config, source.train
        spec = TrainSpec(lr=c.source_lr, epochs=c.source_epochs)
        q = self.new_model(seeded("source start", c.seed))()
        key = {"rows": tensor_digest(rows.x, rows.y), "start": weights_digest(q), "spec": asdict(spec), "seed": c.seed}

        def weights() -> dict[str, Tensor]:
            made = train(spec, q, rows, generator=seeded("source model", c.seed), checkpoint=checkpoint)
            return made.model.state_dict()

        q.load_state_dict(context.shared("source-model", key, weights))
        return q.requires_grad_(False)

    def _scale(self) -> float:
        """Mean length of the source's rows before they are made units: steps then mean what they do on the table."""
        return mean_length(self.table.domain(self.config.source).x)


def parted(domain: TableDomain, *, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Row numbers of train, val and test, in ascending order; whole groups, in random order, up to each cut."""
    numbers, of_row = domain.groups.unique(return_inverse=True)
    place = torch.randperm(len(numbers), generator=generator)[of_row]
    first, second = (round(cut * len(numbers)) for cut in CUTS)
    in_val = (place >= first) & (place < second)
    return (place < first).nonzero()[:, 0], in_val.nonzero()[:, 0], (place >= second).nonzero()[:, 0]
