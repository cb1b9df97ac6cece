"""A Diagnostic beside the other numbers of a training run: one call for Weights & Biases, one for MLflow.

Both add to the run that is active, and open one of their own where none is.
"""

import importlib
import math
from typing import Any

from .diagnostic import Diagnostic
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
    wandb = _library("wandb", "wandb")
    given = run or wandb.run
    active = given or wandb.init(project="trace")
    active.config.update({prefix: _settings(diagnostic)}, allow_val_change=True)
    active.log(metrics(diagnostic, prefix=prefix), step=step)
    for name, why in diagnostic.reasons.items():
        active.summary[f"{prefix}/reasons/{name}"] = why
    if not given:
        active.finish()


def log_mlflow(diagnostic: Diagnostic, *, prefix: str = "trace", step: int | None = None) -> None:
    """Metrics, settings as parameters, and the report as ``PREFIX/diagnostic.md``, into MLflow's active or a new run.

    Args as in `log_wandb`.
    """
    mlflow = _library("mlflow", "mlflow-skinny")
    if opened := mlflow.active_run() is None:
        mlflow.start_run()
    try:
        mlflow.log_params({f"{prefix}/{name}": value for name, value in _settings(diagnostic).items()})
        mlflow.log_metrics(metrics(diagnostic, prefix=prefix), step=step)
        mlflow.log_text(to_markdown(diagnostic), f"{prefix}/diagnostic.md")
    finally:
        if opened:
            mlflow.end_run()


def _settings(diagnostic: Diagnostic) -> dict[str, Any]:
    return dict(diagnostic.as_dict()["settings"])


def _library(package: str, distribution: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ValueError(f"{package} is not installed: pip install {distribution}") from error
