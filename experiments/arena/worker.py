"""The other process: ``python -m experiments.arena.worker SCORE.py CASES.npz`` prints a number for every case.

It gets a file without labels of the anchor, so that no score can read them.
"""

import json
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .cases import ArenaCase

FAILED = 4
"""Exit code where the score itself failed; its reason is the last line of stderr."""


def main(script: Path, cases: Path) -> None:
    """Call ``score(case)`` of the script on every case of the file."""
    try:
        score = runpy.run_path(str(script))["score"]
    except KeyError:
        _fail(f"{script} defines no function score(case): write one that returns a number, higher for more harm")
    except BaseException as error:
        _fail(f"{script} cannot be run: {_place(error, script)}")
    values = []
    with np.load(cases, allow_pickle=False) as stored:
        for number in range(int(stored["count"])):
            values.append(_value(score, _case(stored, number), script))
    print(json.dumps(values))


def _case(stored: Any, number: int) -> ArenaCase:
    fields = [name for name in ArenaCase.__dataclass_fields__ if name != "scalars"]
    scalars = dict(zip(stored["scalar_names"].tolist(), stored[f"{number}_scalars"].tolist(), strict=True))
    return ArenaCase(**{name: stored[f"{number}_{name}"] for name in fields}, scalars=scalars)


def _value(score: Any, case: ArenaCase, script: Path) -> float:
    try:
        found = float(score(case))
    except BaseException as error:
        _fail(f"score(case) of {script} failed: {_place(error, script)}")
    if not np.isfinite(found):
        _fail(f"score(case) of {script} is {found}: it must be a finite number for every case")
    return found


def _place(error: BaseException, script: Path) -> str:
    """The error and the line of the script that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(script)]
    return f"{type(error).__name__}: {error}" + (f" (line {lines[-1]})" if lines else "")


def _fail(reason: str) -> NoReturn:
    print(" ".join(reason.split()), file=sys.stderr)
    raise SystemExit(FAILED)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
