"""Table `trust`, from the stored record alone."""

from ..engine.records import Record
from .table import Table, table

NOT_COUNTED = "-"
COUNTS = {
    "tried": "tried",
    "held": "held",
    "code": "code executed",
    "accepts": "wrong accepts",
    "lost": "records lost",
    "doubled": "doubled",
    "wrong": "silently wrong",
    "tracebacks": "tracebacks",
}


@table("trust", "trust")
def trust(records: list[Record]) -> Table:
    """Every kind of attack and fault, how often it was tried, and how often nothing wrong came of it."""
    rows = [row for record in records for row in record["metrics"]["rows"]]
    cells = [[row["what"], *(f"{row[key]:,}" if key in row else NOT_COUNTED for key in COUNTS)] for row in rows]
    total = [f"{sum(row.get(key, 0) for row in rows):,}" for key in COUNTS]
    return Table(
        "Attacks and faults of `make trust`: how often each was tried, and how often what is promised held. The other "
        f"columns count what must not happen; {NOT_COUNTED}: what cannot happen there, or is part of what held.",
        ["attack or fault", *COUNTS.values()],
        [*cells, ["all", *total]],
    )
