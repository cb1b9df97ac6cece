"""Upload W&B runs that were written offline.

python -m experiments sync         # needs `wandb login` once; what is uploaded is not sent again
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from .store import RUNS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")


def main(arguments: argparse.Namespace) -> None:
    waiting = unsynced(arguments.runs)
    failed = [folder for folder in waiting if not upload(folder)]
    print(f"{len(waiting) - len(failed)} uploaded, {len(failed)} failed")
    if failed:
        raise SystemExit("log in with `wandb login` (or set WANDB_API_KEY), then call sync again")


def unsynced(runs: Path) -> list[Path]:
    """Offline run folders that W&B has not marked as uploaded."""
    folders = sorted(runs.glob("*/*/wandb/offline-run-*"))
    return [folder for folder in folders if not any(folder.glob("*.synced"))]


def upload(folder: Path) -> bool:
    """W&B's own command; it marks the folder, and the run's id keeps a second upload from making a second run."""
    done = subprocess.run([sys.executable, "-m", "wandb", "sync", str(folder)], check=False)
    return done.returncode == 0
