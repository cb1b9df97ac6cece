"""Upload W&B runs that were written offline.

python -m experiments sync         # needs `wandb login` once; what is uploaded is not sent again
"""

import argparse
import subprocess
import sys
from pathlib import Path

from ..engine.errors import UserError
from ..engine.store import RUNS, RunDirectory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")


def main(arguments: argparse.Namespace) -> None:
    waiting, running = unsynced(arguments.runs)
    failed = [folder for folder in waiting if not upload(folder)]
    later = f", {len(running)} still running and left for later" if running else ""
    print(f"{len(waiting) - len(failed)} uploaded, {len(failed)} failed{later}")
    if failed:
        raise UserError("log in with `wandb login` (or set WANDB_API_KEY), then call sync again")


def unsynced(runs: Path) -> tuple[list[Path], list[Path]]:
    """Offline folders that W&B has not marked as uploaded: of finished attempts, and of runs in progress.

    Only the last attempt of a run counts, which holds the curves of those it went on from.
    """
    attempts = sorted(runs.glob("*/*/wandb/offline-run-*"))
    last = {folder.parents[1]: folder for folder in attempts}
    waiting = {home: folder for home, folder in last.items() if not any(folder.glob("*.synced"))}
    running = [folder for home, folder in waiting.items() if RunDirectory(home).holder()]
    return [folder for folder in waiting.values() if folder not in running], running


def upload(folder: Path) -> bool:
    """W&B's own command; it marks the folder, and the run's id keeps a second upload from making a second run."""
    return subprocess.run([sys.executable, "-m", "wandb", "sync", str(folder)], check=False).returncode == 0
