"""A Diagnostic beside the other numbers of a training run: one call for Weights & Biases, one for MLflow.

Both add to the run that is active, and open one of their own where none is.
"""

import math
from dataclasses import asdict
from typing import Any

from .diagnostic import Diagnostic
from .io.errors import require
from .report.text import to_markdown


def metrics(diagnostic: Diagnostic, *, prefix: str = "trace") -> dict[str, float]:
    """The finite ones of `Diagnostic.columns` under names such as ``trace/bound_ot`` and ``trace/anchor_plug_in``."""
    return {f"{prefix}/{name}": value for name, value in diagnostic.columns().items() if math.isfinite(value)}


def log_wandb(diagnostic: Diagnostic, run: Any = None, *, prefix: str = "trace", step: int | None = None) -> None:
    """Metrics, settings and reasons into a W&B run: the given one, the active one, or a new one of its own.

    Args:
        prefix: of all names; one per anchor keeps several apart.
        step: of the metrics, as in ``run.log``.
    """
    wandb = require("wandb", purpose="log_wandb")
    given = run or wandb.run
    active = given or wandb.init(project="trace")
    active.config.update({prefix: asdict(diagnostic.settings)}, allow_val_change=True)
    active.log(metrics(diagnostic, prefix=prefix), step=step)
    for name, why in diagnostic.reasons.items():
        active.summary[f"{prefix}/reasons/{name}"] = why
    if not given:
        active.finish()


def log_mlflow(diagnostic: Diagnostic, *, prefix: str = "trace", step: int | None = None) -> None:
    """Metrics, settings as parameters, and the report as ``PREFIX/diagnostic.md``, into MLflow's active or a new run.

    Args as in `log_wandb`.
    """
    mlflow = require("mlflow", purpose="log_mlflow")
    if opened := mlflow.active_run() is None:
        mlflow.start_run()
    try:
        mlflow.log_params({f"{prefix}/{name}": value for name, value in asdict(diagnostic.settings).items()})
        mlflow.log_metrics(metrics(diagnostic, prefix=prefix), step=step)
        mlflow.log_text(to_markdown(diagnostic), f"{prefix}/diagnostic.md")
    finally:
        if opened:
            mlflow.end_run()
