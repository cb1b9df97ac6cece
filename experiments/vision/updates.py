"""An update beside Q: both as heads on what each of them sees, and what is known of their samples before measuring."""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple

from torch import Tensor

from trace import Sample
from trace.evidence import Update, View
from trace.losses import Loss

from ..engine.run import Context
from .batches import Data
from .classifier import Classifier, Depth, at_depth, beside, features_of, heads
from .sensitivity import image_sensitivity, on_images
from .study import Domain, Study

Views = Callable[[Update], dict[str, View]]
"""Of an update as the library takes it: views of its samples, by their name in `trace.diagnose`."""


class Models(NamedTuple, Generic[Data]):
    """Q at the depth of an update, both domains there, and what Q's head sees of them."""

    q: Classifier
    source: Domain[Data]
    target: Domain[Data]
    stop: Data
    """Target rows that end a training early."""
    source_view: Domain[Tensor]
    target_view: Domain[Tensor]


def models_at(study: Study, depth: Depth, q: Classifier, target: str, context: Context) -> Models[Any]:
    """What an update of some depth starts from."""
    source = study.config.source
    (of_source, _), (of_target, stop) = study.at(depth, source), study.at(depth, target)
    lifted = at_depth(q, depth, study.backbone).to(study.config.device).requires_grad_(False)
    source_view = study.view(lifted, source, of_source, context)
    return Models(lifted, of_source, of_target, stop, source_view, study.view(lifted, target, of_target, context))


class SideBySide(NamedTuple):
    """Q and an update as functions of the same inputs, with the samples that they are measured on."""

    q: Classifier
    update: Classifier
    source: Sample
    target: Sample
    held_out: dict[str, Sample]
    """``source_val``, ``source_test``, ``target_val``, ``target_test``."""


def side_by_side(models: Models[Data], update: Classifier, *, device: str) -> SideBySide:
    """Run the update below its head once on all rows."""
    _, source, target, _, source_view, target_view = models

    def both(rows: Data, seen: Tensor) -> Sample:
        return beside(seen, features_of(update, rows, device=device), rows.y)

    held_out = {
        "source_val": both(source.val, source_view.val),
        "source_test": both(source.test, source_view.test),
        "target_val": both(target.val, target_view.val),
        "target_test": both(target.test, target_view.test),
    }
    old, new = heads(models.q, update)
    own = Sample(source_view.train, source.train.y.to(device))
    return SideBySide(old, new, own, both(target.train, target_view.train), held_out)


def known_views(
    study: Study, target: str, q: Classifier, update: Classifier, held_out: dict[str, Sample], loss: Loss, settings: Any
) -> Views:
    """What the inputs of heads lack: h of held-out target rows where Q is no head on h, and gradients in images."""
    c = study.config

    def views(pair: Update) -> dict[str, View]:
        h = None if c.source_depth == "head" else study.domain(target).val.x.float().to(c.device)
        found = {
            "source_val": View(held_out["source_val"], pair),
            "target_val": View(held_out["target_val"], pair, features=h),
        }
        if c.gradient_in == "input":
            for which, (name, model, domain) in enumerate(
                (("source_val", q, c.source), ("target_val", update, target))
            ):
                pictures, network = study.pictures(domain).val, on_images(model, study.backbone).to(c.device)
                found[name].with_gradients(
                    which, *image_sensitivity(network, pictures, loss, settings, device=c.device)
                )
        return found

    return views
