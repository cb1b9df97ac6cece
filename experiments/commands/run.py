"""Run what is missing of an experiment's grid.

    python -m experiments run EXPERIMENT [config=VARIANT] [key=value ...] [--launcher NAME] [--dry-run] [--rehearse]

`seed=0,1` sweeps. A finished run is never computed again; a relaunch computes what is missing or failed, and Ctrl-C
loses the current runs. Data, worlds and keys are checked before anything is launched. `--rehearse` on a node of the
cluster does two minutes of every stage at its real size, and says what the grid would take there.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any, NamedTuple

from ..engine.config import Run, expand, experiment_module
from ..engine.errors import UserError
from ..engine.interrupt import terminable
from ..engine.launchers import LaunchPlan, launchers
from ..engine.progress import progress_bar
from ..engine.records import RECORDS, Record, read_records
from ..engine.rehearsal import report
from ..engine.run import Outcome
from ..engine.store import RUNS, RunDirectory, finished_records, unwritable
from ..engine.wandb import split_mode

REHEARSAL_SECONDS = 120.0
"""That a stage of a rehearsal may last."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", metavar="EXPERIMENT", help="a name from `list`, or the dotted path of a module")
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="key=value",
        help="config=VARIANT, keys (several values sweep), wandb=auto|offline|off",
    )
    parser.add_argument("--launcher", choices=launchers(), default="inline", help="default: %(default)s")
    parser.add_argument("--slice", default="0/1", metavar="I/N", help="every N-th run from the I-th")
    parser.add_argument("--runs", type=Path, default=RUNS, help="the run store (default: results/runs)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="compute finished runs again; their records are kept as record.previousN.json",
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs, their states and costs, run nothing")
    parser.add_argument(
        "--rehearse",
        nargs="?",
        type=float,
        const=REHEARSAL_SECONDS,
        metavar="SECONDS",
        help="do so much of every stage here (%(const)s s), say hours, memory and disk of the grid, store nothing",
    )
    for name, launcher in launchers().items():
        launcher.add_arguments(parser.add_argument_group(f"with --launcher {name}"))


def main(arguments: argparse.Namespace) -> None:
    settings, wandb = split_mode(arguments.settings)
    launcher, options = _launcher(arguments)
    grid = _slice(expand(arguments.experiment, settings), arguments.slice)
    todo = [run for run in grid if arguments.force or RunDirectory.of(run, arguments.runs).state() != "done"]
    plan = launcher.plan(todo, runs=arguments.runs, **options)
    if arguments.dry_run:
        print("\n".join(_preview(grid, todo, plan, arguments.runs)))
        return
    check(todo)
    if arguments.rehearse is not None:
        rehearse(todo, plan, arguments.rehearse)
        return
    print(f"{arguments.experiment}: {len(grid)} runs, {len(grid) - len(todo)} done before", file=sys.stderr)
    if not todo:
        print("nothing to do", file=sys.stderr)
        return
    with terminable():
        try:
            for run in todo if arguments.force else ():
                RunDirectory.of(run, arguments.runs).set_aside()
            with closing(launcher.launch(todo, runs=arguments.runs, wandb=wandb, **options)) as outcomes:
                counts = Counter(progress_bar(outcomes, len(todo), arguments.experiment))
        except KeyboardInterrupt:
            raise SystemExit("interrupted: what is finished is kept, the same command goes on with the rest") from None
        except OSError as error:
            raise unwritable(error) from error
    _report(todo, counts, arguments.runs)


def rehearse(todo: list[Run], plan: LaunchPlan, seconds: float) -> None:
    """Print what the runs would take on this machine, a stage at a time.

    Raises:
        UserError: for an experiment without ``rehearsal(configs)``, or where there is nothing to do.
    """
    if not todo:
        raise UserError("there is nothing left to rehearse: all runs are done")
    rehearsal = getattr(experiment_module(todo[0].experiment), "rehearsal", None)
    if rehearsal is None:
        raise UserError(f"{todo[0].experiment} has no rehearsal: --dry-run says what its records cost")
    at_once = max(1, min(plan.at_once, len(todo)))
    for line in report(rehearsal([run.config for run in todo]), seconds=seconds, num_runs=len(todo), at_once=at_once):
        print(line, flush=True)


def check(todo: list[Run]) -> None:
    """Ask the experiment's own ``check(config)``, if it has one, which refuses data that are not there and the like."""
    for run in todo:
        try:
            getattr(experiment_module(run.experiment), "check", lambda _: None)(run.config)
        except ValueError as error:
            raise UserError(f"{run.experiment} cannot run: {error}") from error


def _launcher(arguments: argparse.Namespace) -> tuple[ModuleType, dict[str, Any]]:
    """The chosen launcher with the options that are its own; those of another are refused."""
    options: dict[str, dict[str, Any]] = {}
    for name, launcher in launchers().items():
        parser = argparse.ArgumentParser()
        launcher.add_arguments(parser)
        defaults = vars(parser.parse_args([]))
        options[name] = {key: getattr(arguments, key) for key in defaults}
        given = [key for key, value in options[name].items() if value != defaults[key]]
        if given and name != arguments.launcher:
            raise UserError(f"--{given[0]} is for --launcher {name}: add that, or leave --{given[0]} out")
    return launchers()[arguments.launcher], options[arguments.launcher]


def _slice(grid: list[Run], text: str) -> list[Run]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and int(index) < int(count)):
        raise UserError(f"--slice must be I/N with I below N, got {text!r}")
    return grid[int(index) :: int(count)]


def _preview(grid: list[Run], todo: list[Run], plan: LaunchPlan, runs: Path) -> Iterator[str]:
    """What would be submitted, one line a run with what tells it from the others, and what it all costs."""
    if plan.script:
        yield plan.script
    points = [dict(_leaves(run.values)) for run in grid]
    keys = dict.fromkeys(key for point in points for key in point)
    differing = [key for key in keys if len({point.get(key) for point in points}) > 1]
    for run, point in zip(grid, points, strict=True):
        state = RunDirectory.of(run, runs).state()
        yield " ".join([run.run_id, f"{state:7}", *(f"{key}={point[key]}" for key in differing if key in point)])
    if not todo:
        yield "nothing to do"
        return
    try:
        check(todo)
    except UserError as error:
        yield f"not ready: {error}"
    cost = expected_cost(todo, runs=runs)
    costs = "hours and disk unknown: no record of this experiment and profile is stored"
    if cost is not None:
        hours, at_once = cost.seconds / 3600, min(plan.at_once, len(todo))
        costs = (
            f"{hours:.2f} hours, {hours / at_once:.2f} with {at_once} at a time; {cost.bytes / 1e6:.1f} MB of records"
        )
    yield f"{len(todo)} runs to do in {plan.tasks} tasks; {costs}"


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every value inside mappings as a short text, by its dotted key."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        elif isinstance(value, list) and not any(isinstance(entry, dict) for entry in value):
            yield prefix + key, ",".join(map(str, value[:3])) + (f",... ({len(value)})" if len(value) > 3 else "")
        elif not isinstance(value, list):
            yield prefix + key, str(value)


def _report(todo: list[Run], counts: Counter[Outcome], runs: Path) -> None:
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())), file=sys.stderr)
    for directory in (RunDirectory.of(run, runs) for run in todo if counts["failed"]):
        if directory.state() == "failed":
            print(f"failed {directory.reason()}", file=sys.stderr)
    if counts["running elsewhere"]:
        print(
            f"{counts['running elsewhere']} of these runs are being computed by another launcher: `status` follows "
            "them, and the same command later computes what it may leave",
            file=sys.stderr,
        )
    if counts["failed"] or counts["missing"]:
        raise SystemExit(1)


class Cost(NamedTuple):
    """Of some runs together."""

    seconds: float
    """One after the other."""
    bytes: float
    """Of their records."""


def expected_cost(todo: list[Run], *, runs: Path, records: Path = RECORDS) -> Cost | None:
    """A run that has a record costs what it did, any other run the mean of its profile; None without any record."""
    profiles = {run.values.get("profile", "") for run in todo}
    known = {
        record["run_id"]: Cost(record["seconds"], len(json.dumps(record)))
        for experiment in {run.experiment for run in todo}
        for record in _stored(experiment, runs, records)
        if record["profile"] in profiles
    }
    if not known:
        return None
    mean = Cost(*map(fmean, zip(*known.values(), strict=True)))
    return Cost(*map(sum, zip(*(known.get(run.run_id, mean) for run in todo), strict=True)))


def _stored(experiment: str, runs: Path, records: Path) -> Iterator[Record]:
    path = records / f"{experiment}.jsonl"
    yield from read_records(path) if path.exists() else []
    yield from finished_records(runs / experiment)
