"""Tables and figures as a W&B artifact.

    python -m experiments publish        # results/tables and results/figures, with the commit they belong to

Offline without a login, like every run; `sync` sends it later.
"""

import argparse
from pathlib import Path
from typing import Literal

from ..engine.errors import UserError
from ..engine.records import ROOT, provenance
from ..engine.store import RUNS

FOLDERS = ("tables", "figures")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder with tables/ and figures/")
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")


def main(arguments: argparse.Namespace) -> None:
    import wandb

    present = [folder for name in FOLDERS if (folder := arguments.results / name).is_dir()]
    if not present:
        raise UserError(f"{arguments.results} holds no tables or figures: run `python -m experiments tables` first")
    artifact = wandb.Artifact("results", type="results", metadata=provenance())
    for folder in present:
        artifact.add_dir(str(folder), name=folder.name)
    home = arguments.runs / ".publish" / (provenance()["git_commit"] or "no-commit")[:12]
    home.mkdir(parents=True, exist_ok=True)
    mode: Literal["online", "offline"] = "online" if wandb.login(prompt=False) else "offline"
    settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
    with wandb.init(
        project="trace",
        group="publish",
        id=f"results-{home.name}",
        dir=str(home),
        mode=mode,
        resume="allow",
        settings=settings,
    ) as run:
        run.log_artifact(artifact)
    print(f"{len(artifact.manifest.entries)} files as artifact 'results' ({mode})")
