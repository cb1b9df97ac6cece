"""Table `promises`, from stored records alone."""

from scipy.stats import binomtest

from ..analysis.cells import MISSING
from ..engine.records import Record
from .table import Table, table

KINDS = {
    "share": "share of changed predictions",
    "mean": "mean of clipped losses",
    "difference": "labelled change of the error",
    "quantile": "quantile of gradients",
}
METHODS = {"sequence": "for every n (the gate)", "fixed": "for one n"}
SIGNIFICANCE = 0.01


@table("promises", "promises")
def promises(records: list[Record]) -> Table:
    """How often the gate's advice, followed to the end, leads to a wrong decision, beside what is promised."""
    found = {(r["config"]["kind"], r["config"]["method"], r["config"]["side"]): r for r in records}
    rows = [
        [title, method, *_cells(found.get((kind, key, "above"))), *_cells(found.get((kind, key, "below")))]
        for kind, title in KINDS.items()
        for key, method in METHODS.items()
    ]
    config = records[0]["config"]
    return Table(
        f"Following the gate's advice: {config['start']} rows, then as many as it asks for, up to {config['looks']} "
        f"looks, at a value just beyond the limit. Wrong decisions of {config['paths']} paths, beside the promised "
        f"share of {config['delta'] / 2:g}; broken: more than that by a one-sided binomial test at {SIGNIFICANCE:g}.",
        ["score", "interval", *_header("false accepts"), *_header("false rejects")],
        rows,
    )


def _header(wrong: str) -> list[str]:
    return [wrong, "promise", "undecided", "median rows"]


def _cells(record: Record | None) -> list[str]:
    if record is None:
        return [MISSING] * len(_header(""))
    m = record["metrics"]
    broken = binomtest(m["wrong"], m["paths"], m["nominal"], alternative="greater").pvalue < SIGNIFICANCE
    undecided = f"{m['undecided'] / m['paths']:.0%}"
    return [f"{m['wrong'] / m['paths']:.2%}", "broken" if broken else "kept", undecided, f"{m['median_rows']:,.0f}"]
