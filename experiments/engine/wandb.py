"""Weights & Biases beside the record, never instead of it: a failure there warns and costs nothing.

One W&B run per run (id = run id, group = experiment) with the resolved config, per-step curves and the metrics as
summary. Online when an API key is known, otherwise offline; never a prompt.
"""

import json
import sys
from pathlib import Path
from typing import Any, Literal

from .config import Run
from .errors import UserError
from .store import RunDirectory

Mode = Literal["auto", "offline", "off"]
MODES: tuple[Mode, ...] = ("auto", "offline", "off")
INIT_SECONDS = 30


def split_mode(settings: list[str]) -> tuple[list[str], Mode]:
    """``wandb=MODE`` decides about logging, not about the result, so it is no part of a config."""
    chosen = [setting.removeprefix("wandb=") for setting in settings if setting.startswith("wandb=")] or ["auto"]
    for mode in MODES:
        if chosen[-1] == mode:
            return [setting for setting in settings if not setting.startswith("wandb=")], mode
    raise UserError(f"wandb must be one of {', '.join(MODES)}, got {chosen[-1]!r}")


class Tracker:
    """Per-step values into the run's ``curves.jsonl``, and to W&B where that works."""

    def __init__(self, run: Run, directory: RunDirectory, mode: Mode) -> None:
        self.curves = directory.path / "curves.jsonl"
        if not directory.checkpoint_path.exists():  # a run that goes on keeps its curves
            self.start_again()
        self.wandb_run: Any = None
        if mode != "off":
            self._try("starting", lambda: self._start(run, directory.path, mode))

    def start_again(self) -> None:
        """Forget the curves of an earlier attempt."""
        self.curves.unlink(missing_ok=True)

    def log(self, step: int, values: dict[str, float]) -> None:
        with open(self.curves, "a", encoding="utf-8") as curves:
            curves.write(json.dumps({"step": step, **values}) + "\n")
        if self.wandb_run is not None:
            self._try("logging", lambda: self.wandb_run.log(values, step=step))

    def finish(self, metrics: dict[str, Any] | None) -> None:
        """Close the W&B run with its metrics, or as failed where there are none, so that its files are complete."""
        if self.wandb_run is not None:
            self._try("finishing", lambda: self._finish(metrics))

    def _start(self, run: Run, folder: Path, mode: Mode) -> None:
        import wandb

        def begin(chosen: Literal["online", "offline"]) -> Any:
            return wandb.init(
                project="trace",
                group=run.experiment,
                id=run.run_id,
                name=run.run_id,
                config=run.values,
                dir=str(folder),
                mode=chosen,
                resume="allow",
                reinit="create_new",
                settings=wandb.Settings(
                    silent=True, console="off", disable_git=True, disable_code=True, init_timeout=INIT_SECONDS
                ),
            )

        try:
            self.wandb_run = begin("online") if mode == "auto" and wandb.login(prompt=False) else None
        except Exception as error:
            print(f"warning: W&B cannot be reached ({error}): logged offline, `sync` sends it later", file=sys.stderr)
        self.wandb_run = self.wandb_run or begin("offline")
        self._repeat_earlier_curves()

    def _repeat_earlier_curves(self) -> None:
        """A run that goes on logs again what W&B has not seen under this attempt: the last attempt is complete."""
        if self.curves.exists():
            for line in self.curves.read_text(encoding="utf-8").splitlines():
                values = json.loads(line)
                if (step := values.pop("step")) >= self.wandb_run.step:
                    self.wandb_run.log(values, step=step)

    def _finish(self, metrics: dict[str, Any] | None) -> None:
        self.wandb_run.summary.update(metrics or {})
        self.wandb_run.finish(exit_code=int(metrics is None))

    def _try(self, what: str, action: Any) -> None:
        try:
            action()
        except Exception as error:
            self.wandb_run = None
            print(f"warning: W&B failed while {what} ({error}); the run goes on without it", file=sys.stderr)
