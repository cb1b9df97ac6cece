"""Everything at CPU scale, from data to ledger, into build/reproduce, then a comparison with the committed records.

    python -m experiments reproduce               # interrupt it and call again: it goes on
    python -m experiments reproduce --dry-run     # the commands and the minutes they take on two cores

`make reproduce` does the set-up first. Nothing that git tracks is rewritten: `adopt` makes these results the committed
ones. Finished runs are not computed again, so a second call only rewrites tables, figures and ledger.
"""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..engine.interrupt import ending, terminable
from ..engine.records import ROOT

REPRODUCED = ROOT / "build" / "reproduce"
BAR = 30
PRIOR = 5.0
"""Minutes at the expected pace that an estimate starts from, so that a short first step does not decide it."""

PLACES = {
    "run": "--runs {folder}/runs",
    "collect": "--runs {folder}/runs --records {folder}/records",
    "tables": "--records {folder}/records --output {folder}/tables",
    "figures": "--records {folder}/records --output {folder}/figures",
    "claims": "--records {folder}/records --output {folder}",
    "compare": "--runs {folder}/runs",
}
"""Where each command reads and writes, so that all of it stands in one folder."""


class Step(NamedTuple):
    """A command of `python -m experiments` and the minutes it takes on two cores."""

    command: str
    minutes: float

    def arguments(self, folder: Path) -> list[str]:
        places = PLACES.get(self.command.split()[0], "").format(folder=shlex.quote(str(folder)))
        return [sys.executable, "-m", "experiments", *shlex.split(self.command), *shlex.split(places)]


STEPS = (
    Step("run ridge --launcher local", 0.5),
    Step("run isolation --launcher local", 0.8),
    Step("run promises --launcher local", 2.0),
    Step("run synthetic --launcher local", 8.5),
    Step("data emoji", 1.0),
    Step("run embedding --launcher local", 0.7),
    Step("run active --launcher local", 1.7),
    Step("run gate --launcher local", 5.5),
    Step("run gate config=controls --launcher local", 1.0),
    Step("run anchoring --launcher local", 2.2),
    Step("run labels --launcher local", 1.0),
    Step("data acs", 0.3),
    Step("run labels config=acs --launcher local", 1.0),
    Step("collect", 0.1),
    Step("tables", 0.7),
    Step("figures", 0.5),
    Step("claims", 0.3),
    Step("compare", 0.1),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, default=REPRODUCED, help="where to (default: build/reproduce)")
    parser.add_argument(
        "--dry-run", action="store_true", help="list the commands and their minutes (default: run them)"
    )


def main(arguments: argparse.Namespace) -> None:
    if arguments.dry_run:
        lines = [f"{step.minutes:5.1f} min  python -m experiments {step.command}" for step in STEPS]
        print("\n".join([*lines, f"{sum(step.minutes for step in STEPS):5.1f} min  in all, on two cores"]))
        return
    with terminable():
        try:
            for line in reproduce(STEPS, arguments.output.resolve()):
                print(line, file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            raise SystemExit("interrupted: what is finished is kept, the same command goes on with the rest") from None


def reproduce(steps: Sequence[Step], folder: Path = REPRODUCED) -> Iterator[str]:
    """Run the steps in their order; before each, a line with a bar and the time left.

    Raises:
        SystemExit: where a step fails or is killed, with its log and the command that goes on.
    """
    started = time.monotonic()
    spent: list[float] = []
    for number, step in enumerate(steps):
        yield f"{_bar(steps, number)} {minutes_left(steps, spent):.0f} min left: {step.command}"
        before = time.monotonic()
        log = folder / "logs" / f"{number + 1:02d}-{step.command.split()[0]}.log"
        if code := _logged(step.arguments(folder), log):
            place = "" if folder == REPRODUCED else f" --output {shlex.quote(str(folder))}"
            raise SystemExit(
                f"step {number + 1} of {len(steps)}, `python -m experiments {step.command}`, {ending(code)} (log: "
                f"{log}): `python -m experiments reproduce{place}` goes on with it, finished runs are kept"
            )
        spent.append((time.monotonic() - before) / 60)
    yield f"{_bar(steps, len(steps))} done in {(time.monotonic() - started) / 60:.0f} min: everything is in {folder}"


def _logged(command: list[str], log: Path) -> int:
    """The exit code of a program whose output goes to the terminal and to a file; an interruption ends it first."""
    log.parent.mkdir(parents=True, exist_ok=True)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with open(log, "wb") as kept, subprocess.Popen(command, cwd=ROOT, **streams) as process:
        assert process.stdout is not None
        try:
            while part := process.stdout.read1():  # type: ignore[attr-defined]
                kept.write(part)
                sys.stdout.write(part.decode(errors="replace"))
                sys.stdout.flush()
        except BaseException:
            process.terminate()
            raise
    return process.returncode


def minutes_left(steps: Sequence[Step], spent: Sequence[float]) -> float:
    """What the coming steps take, at the pace of the finished ones that were not just skipped over."""
    pairs = zip(spent, steps, strict=False)
    worked = [(minutes, step.minutes) for minutes, step in pairs if minutes > step.minutes / 3]
    pace = (PRIOR + sum(m for m, _ in worked)) / (PRIOR + sum(e for _, e in worked))
    return pace * sum(step.minutes for step in steps[len(spent) :])


def _bar(steps: Sequence[Step], number: int) -> str:
    share = sum(step.minutes for step in steps[:number]) / sum(step.minutes for step in steps)
    filled = round(BAR * share)
    return f"[{'#' * filled}{'.' * (BAR - filled)}] {share:4.0%}"
