"""What is measured for the claims about one cause at a time (`app:synth-details`), from the records of `isolation`."""

from __future__ import annotations

from pandas import DataFrame

from ..analysis.cells import interval
from ..analysis.isolation import isolation_frame, leak
from ..analysis.summary import rank_correlation
from ..engine.records import Record
from .ledger import Measurement, measure, present

KNOBS = {"lr": "step size", "severity": "severity", "n": "sample size"}


def worlds(records: list[Record], vary: str) -> dict[str, DataFrame]:
    """The pairs of which one cause was turned, by world."""
    frame = isolation_frame(records)
    parts = dict(iter(frame[frame["vary"] == vary].groupby("world", sort=False)))
    return present(parts, f"runs that vary the {KNOBS[vary]}")


@measure()
def isolated_rank(records: list[Record], vary: str, score: str, target: str = "abs_risk_change") -> Measurement:
    """Spearman's rho of a column with another, in every world."""
    parts = worlds(records, vary)
    found = {world: rank_correlation(part, score, target) for world, part in parts.items()}
    moved = "; ".join(f"{world} x{leak(part, 'output_distance'):.1f}" for world, part in parts.items())
    return Measurement(
        "; ".join(f"{world} rho {interval(f, '{:.2f}')}" for world, f in found.items()),
        sum(map(len, parts.values())),
        {"rho": found},
        f"Meanwhile the mean output distance moved by {moved}.",
    )


@measure()
def isolated_leak(records: list[Record], vary: str) -> Measurement:
    """How far the distance and the shift term move while the shift is fixed: largest over smallest mean."""
    parts = worlds(records, vary)
    moved = {name: max(leak(part, name) for part in parts.values()) for name in ("distance", "emp_shift_ot")}
    return Measurement(
        f"distance x{moved['distance']:.2f}, shift term x{moved['emp_shift_ot']:.2f}, largest over smallest mean",
        sum(map(len, parts.values())),
        {"distance": moved["distance"], "shift term": moved["emp_shift_ot"]},
    )
