"""Anchor-aware training (`sec:conclusion`): fine-tune with a penalty on the anchor terms, against simpler ways.

    python -m experiments data emoji                             # once, the images of the second study
    python -m experiments run anchoring --launcher local         # both studies, two cores: about 2 minutes

One run is a study and a seed with every method at all its strengths. `moons_warp` is the synthetic world whose labels
travel, at severity 1; `images` the deployment gate's head on cached features, real to sketch. Makes the table and the
figure `anchoring`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor, nn

from trace import Sample
from trace.estimators.anchor import anchor_terms
from trace.estimators.output_distance import output_distance
from trace.features import extract
from trace.losses import Loss, ZeroOne
from trace.worlds import world

from .anchoring_training import WEIGHTED, Case, Parts, Recipe, updates
from .cells import ModelSpec, draw_source, draw_target, fit_sources, labels
from .errors import UserError
from .execute import Context
from .pairs import LOSS, Row, columns
from .seeds import seeded
from .vision.batches import Rows
from .vision.study import Domain, Study, VisionConfig

ERROR = ZeroOne()
WEIGHTS = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]
SHARES = [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9]


def _strengths() -> dict[str, list[float]]:
    trivial = {
        "early_stop": SHARES,
        "interpolation": SHARES,
        "small_steps": [0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85],
    }
    return {**dict.fromkeys(WEIGHTED, WEIGHTS), **trivial}


@dataclass(frozen=True)
class Config(VisionConfig):
    study: str = "moons_warp"
    """moons_warp, whose keys are severity, n, test_size and model; or images, with all others."""
    severity: float = 1.0
    n: int = 2000
    test_size: int = 20_000
    model: ModelSpec = field(default_factory=lambda: ModelSpec(weight_decays=[1e-4]))
    """How Q is trained on moons_warp."""
    target: str = "sketch"
    recipes: dict[str, Recipe] = field(
        default_factory=lambda: {"moons_warp": Recipe(), "images": Recipe("sgd", 0.01, 20, 32, 0.0)}
    )
    """How each study fine-tunes; on images it is `plain-2` of the gate's controls."""
    strengths: dict[str, list[float]] = field(default_factory=_strengths)
    """Weights of the penalties, of rehearsal and of distillation; shares of the trivial ways of moving less."""


def run(config: Config, context: Context) -> dict[str, Any]:
    cases = {"moons_warp": _moons, "images": _images}
    if config.study not in cases:
        raise UserError(f"study must be one of {', '.join(cases)}, got {config.study!r}")
    case = cases[config.study](config)
    found = updates(
        case,
        config.strengths,
        order=lambda: seeded("anchoring order", config.seed),
        batches=lambda: seeded("anchoring batches", config.seed),
    )
    methods: list[str] = []
    rows: list[Row] = []
    old = _Seen.by(case.old, case)
    for number, update in enumerate(found):
        methods.append(update.method)
        rows.append({"strength": update.strength, **_measured(case, old, _Seen.by(update.model, case))})
        context.log(number, risk_change=rows[-1]["risk_change"])
    return {"columns": columns(rows), "methods": methods}


def _moons(config: Config) -> Case:
    made = world("moons_warp", severity=config.severity)
    source, target = (draw(made, config.n, config.seed) for draw in (draw_source, draw_target))
    old = fit_sources(config.model, {config.seed: source}).stack.member(0).requires_grad_(False)
    tests = (
        made.source(config.test_size, generator=seeded("test")),
        made.target(config.test_size, generator=seeded("target test")),
    )
    return Case(old, Parts(*source, tests[0]), Parts(*target, tests[1]), config.recipes["moons_warp"])


def _images(config: Config) -> Case:
    study = Study.of(config)
    source, target = study.domain(config.source), study.domain(config.target)
    old = study.source_model(source).to(config.device)
    return Case(old, _parts(source, config.device), _parts(target, config.device), config.recipes["images"])


def _parts(domain: Domain[Rows], device: str) -> Parts:
    return Parts(*(Sample(rows.x.float().to(device), rows.y.to(device)) for rows in domain))


class _Seen(NamedTuple):
    """A model's logits on everything that is measured."""

    anchor: Tensor
    anchor_held_out: Tensor
    target: Tensor
    target_val: Tensor
    target_test: Tensor

    @classmethod
    def by(cls, model: nn.Module, case: Case) -> _Seen:
        parts = (case.source.test, case.source.val, *case.target)
        return cls(*(extract(model, part.x) for part in parts))


def _measured(case: Case, old: _Seen, new: _Seen) -> Row:
    """The change on the anchor's test sample, the target's errors, and the terms on held-out anchor inputs."""
    y = labels(case.source.test)
    terms = anchor_terms(old.anchor_held_out, new.anchor_held_out, LOSS)
    return {
        "risk_change": _mean(LOSS, new.anchor, y) - _mean(LOSS, old.anchor, y),
        "error_change": _mean(ERROR, new.anchor, y) - _mean(ERROR, old.anchor, y),
        "anchor_error_before": _mean(ERROR, old.anchor, y),
        "target_error_before": _mean(ERROR, old.target_test, labels(case.target.test)),
        "target_error": _mean(ERROR, new.target_test, labels(case.target.test)),
        "target_val_error": _mean(ERROR, new.target_val, labels(case.target.val)),
        "output_distance": output_distance(old.target, new.target).value,
        "anchor_worst_label": terms.worst_label.value,
        "anchor_upper": terms.worst_label.bernstein.upper,
        "anchor_lipschitz": terms.lipschitz.value,
        "anchor_disagreement": terms.disagreement.value,
        "anchor_plug_in": terms.plug_in.value,
    }


def _mean(loss: Loss, logits: Tensor, y: Tensor) -> float:
    return float(loss(logits, y).double().mean())


if __name__ == "__main__":
    from experiments.entry import main

    main("anchoring")
