"""What the paper says about one cause at a time (`app:synth-details`), judged by the records of `isolation`."""

from __future__ import annotations

import functools

from pandas import DataFrame

from ..analysis.cells import interval
from ..analysis.isolation import isolation_frame, leak
from ..analysis.summary import rank_correlation
from ..engine.records import Record
from .ledger import STABLE, Finding, claim, grade, needs


def _worlds(records: list[Record], vary: str) -> dict[str, DataFrame]:
    frame = isolation_frame(records)
    return dict(iter(frame[frame["vary"] == vary].groupby("world", sort=False)))


@claim("app:synth-details", "Fixed shift: a larger model change goes with a larger |Delta R|", published="correlate")
@needs("isolation", functools.partial(_worlds, vary="lr"), "runs that vary the step size")
def model_change_is_isolated(parts: dict[str, DataFrame]) -> Finding:
    found = {world: rank_correlation(part, "output_distance") for world, part in parts.items()}
    holds = [f.lower > 0 for f in found.values()]
    return Finding(
        measured="; ".join(f"{world} rho {interval(f, '{:.2f}')}" for world, f in found.items()),
        runs=sum(map(len, parts.values())),
        verdict=grade(all(holds), any(holds)),
        why="Five epochs at step sizes from 1e-4 to 1e-2.",
    )


@claim("app:synth-details", "Fixed shift: the data-shift term stays constant", published="constant")
@needs("isolation", functools.partial(_worlds, vary="lr"), "runs that vary the step size")
def shift_stays_put(parts: dict[str, DataFrame]) -> Finding:
    distance = max(leak(part, "distance") for part in parts.values())
    penalty = max(leak(part, "emp_shift_ot") for part in parts.values())
    still, leaks = distance < 1 + STABLE, penalty > 1 + STABLE
    return Finding(
        measured=f"distance x{distance:.2f}, penalty x{penalty:.2f} from the smallest to the largest mean",
        runs=sum(map(len, parts.values())),
        verdict="not reproduced" if not still else "partly" if leaks else "reproduced",
        why="The samples are the same at every step size; the penalty also holds Q~'s gradient quantile.",
    )


@claim(
    "app:synth-details", "Fixed training: the diagnostic tracks the rise of the risk with the shift", published="tracks"
)
@needs("isolation", functools.partial(_worlds, vary="severity"), "runs that vary the severity")
def shift_is_isolated(parts: dict[str, DataFrame]) -> Finding:
    found = {world: rank_correlation(part, "bound_ot") for world, part in parts.items()}
    leaks = {world: leak(part, "output_distance") for world, part in parts.items()}
    holds = [f.lower > 0.5 for f in found.values()]
    moved = "; ".join(f"{world} x{value:.1f}" for world, value in leaks.items())
    return Finding(
        measured="; ".join(f"{world} rho {interval(f, '{:.2f}')}" for world, f in found.items()),
        runs=sum(map(len, parts.values())),
        verdict=grade(all(holds), any(holds)),
        why=f"With the training fixed, the output distance still moved by {moved}.",
    )
