"""Table `labels`: what a decision costs by each way to label, and how often it is wrong, from stored records alone."""

import math

from pandas import DataFrame

from ..analysis.cells import MISSING
from ..analysis.labels import METHODS, SIGNIFICANCE, cost_ratios, kept, labels_frame, typical
from ..engine.records import Record
from .table import Table, table

SHOWN = (0.1, 0.05, 0.02, 0.01)
"""Margins whose cost is printed; wrong decisions at the smallest of all."""


@table("labels", "labels")
def labels(records: list[Record]) -> Table:
    """One line for each data set, loss and way to label."""
    frame, config = labels_frame(records), records[0]["config"]
    least, candidates = float(frame["margin"].min()), frame.groupby("data")["candidate"].nunique().max()
    rows = [
        [data, loss, title, *_cells(part[part["method"] == method], least)]
        for (data, loss), part in frame.groupby(["data", "loss"], sort=False)
        for method, title in METHODS.items()
    ]
    caption = (
        "Labels until an update is decided, with a look after every label, by the distance of the limit from the true "
        f"change: the median of {config['paths']} paths and in parentheses the 90th percentile, each of the typical "
        f"candidate of {candidates}, on both sides of the limit; -: more than half of the paths are "
        f"undecided after {config['horizon']} rows. Wrong decisions at a distance of {least:g}, of all candidates' "
        f"paths, beside the promised {config['delta'] / 2:g}; broken: more than that at some distance, by a one-sided "
        f"binomial test at {SIGNIFICANCE:g}. The best single bet has the median alone. {ratios(frame)}"
    )
    costs = [f"labels at {margin:g}" for margin in SHOWN]
    return Table(
        caption,
        ["data", "loss", "way to label", *costs, "false accepts", "promise", "false rejects", "promise"],
        rows,
    )


def ratios(frame: DataFrame) -> str:
    """How ours compare with betting on uniform rows, and with the best bet, in a sentence."""
    said = []
    for loss, part in frame.groupby("loss", sort=False):
        for own in ("file", "population"):
            found = cost_ratios(part, own, "betting")
            said.append(
                f"{loss}, {METHODS[own]}: {found['ratio'].median():.1f} times fewer labels than betting on uniform "
                f"rows (from {found['ratio'].min():.1f} to {found['ratio'].max():.1f} over {len(found)} limits)"
            )
    hindsight = 1 / cost_ratios(frame[frame["loss"] == "zero-one"], "population", "best_bet")["ratio"]
    said.append(f"zero-one, the best single bet in hindsight: {hindsight.median():.2f} times its labels (median)")
    return f"{'; '.join(said)}."


def _cells(part: DataFrame, least: float) -> list[str]:
    if part.empty:
        return [MISSING] * (len(SHOWN) + 4)
    costs = [_cost(part[part["margin"] == margin]) for margin in SHOWN]
    wrong = []
    for side in ("accept", "reject"):
        own = part[part["side"] == side]
        nearest = own[own["margin"] == least]
        wrong += [f"{nearest['wrong'].sum()} of {nearest['paths'].sum()}", "kept" if kept(own) else "broken"]
    return [*costs, *wrong]


def _cost(part: DataFrame) -> str:
    if part.empty:
        return MISSING
    median, most = typical(part, "median"), typical(part, "most")
    if math.isinf(median):
        return "-"
    return f"{median:,.0f} ({most:,.0f})" if math.isfinite(most) else f"{median:,.0f} (-)"
