"""Everything at CPU scale, from data to ledger, then a comparison with the committed records.

    python -m experiments reproduce      # about 24 minutes on two cores; interrupt it and call again: it goes on

`make reproduce` does the set-up first. Finished runs are kept in results/runs and not computed again, so a second call
only rewrites tables, figures and ledger.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..engine.records import ROOT

BAR = 30
PRIOR = 5.0
"""Minutes at the expected pace that an estimate starts from, so that a short first stage does not decide it."""


class Stage(NamedTuple):
    """A command of `python -m experiments` and the minutes it takes on two cores."""

    command: str
    minutes: float

    @property
    def arguments(self) -> list[str]:
        return [sys.executable, "-m", "experiments", *shlex.split(self.command)]


STAGES = (
    Stage("run ridge --launcher local", 0.5),
    Stage("run isolation --launcher local", 0.8),
    Stage("run synthetic --launcher local", 8.5),
    Stage("data emoji", 1.0),
    Stage("run embedding --launcher local", 0.7),
    Stage("run active --launcher local", 1.7),
    Stage("run gate --launcher local", 5.5),
    Stage("run gate config=controls --launcher local", 1.0),
    Stage("run anchoring --launcher local", 2.2),
    Stage("compare", 0.1),
    Stage("collect", 0.1),
    Stage("tables", 0.7),
    Stage("figures", 0.5),
    Stage("claims", 0.3),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="list the commands and their minutes (default: run them)"
    )


def main(arguments: argparse.Namespace) -> None:
    if arguments.dry_run:
        print("\n".join(f"{stage.minutes:5.1f} min  python -m experiments {stage.command}" for stage in STAGES))
        return
    try:
        for line in reproduce(STAGES):
            print(line, file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        raise SystemExit("interrupted: what is finished is kept, `make reproduce` goes on with the rest") from None


def reproduce(stages: Sequence[Stage]) -> Iterator[str]:
    """Run the stages in their order; before each, a line with a bar and the time left.

    Raises:
        SystemExit: where a stage fails, with its command.
    """
    started = time.monotonic()
    spent: list[float] = []
    for number, stage in enumerate(stages):
        yield f"{_bar(stages, number)} {minutes_left(stages, spent):.0f} min left: {stage.command}"
        before = time.monotonic()
        done = subprocess.run(stage.arguments, cwd=ROOT, check=False)
        if done.returncode:
            raise SystemExit(
                f"`python -m experiments {stage.command}` failed (exit code {done.returncode}): mend what it names and "
                "call again, finished runs are kept"
            )
        spent.append((time.monotonic() - before) / 60)
    yield f"{_bar(stages, len(stages))} done in {(time.monotonic() - started) / 60:.0f} min"


def minutes_left(stages: Sequence[Stage], spent: Sequence[float]) -> float:
    """What the coming stages take, at the pace of the finished ones that were not just skipped over."""
    worked = [(minutes, stage.minutes) for minutes, stage in zip(spent, stages, strict=False)
              if minutes > stage.minutes / 3]  # fmt: skip
    pace = (PRIOR + sum(m for m, _ in worked)) / (PRIOR + sum(e for _, e in worked))
    return pace * sum(stage.minutes for stage in stages[len(spent) :])


def _bar(stages: Sequence[Stage], number: int) -> str:
    share = sum(stage.minutes for stage in stages[:number]) / sum(stage.minutes for stage in stages)
    filled = round(BAR * share)
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {share:4.0%}"
