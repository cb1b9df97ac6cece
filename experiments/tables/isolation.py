"""The table `isolation`: one cause at a time, from records."""

from pandas import DataFrame

from ..analysis.cells import interval, interval_kind, spread
from ..analysis.isolation import isolation_frame, leak
from ..analysis.summary import rank_correlation
from ..engine.records import Record
from .table import Table, table

ISOLATED = {
    "output_distance": "output distance",
    "distance": "OT distance",
    "gap_target": "gap of Q~",
    "sensitivity_target": "L_x of Q~",
    "emp_shift_ot": "EmpShift OT",
    "bound_ot": "B OT",
    "abs_risk_change": "|Delta R|",
}
"""Columns of the isolation table."""


@table("isolation", "isolation")
def isolation(records: list[Record]) -> Table:
    """Every setting's terms; below each block, how far each column moved and how well it ranks |Delta R|."""
    frame = isolation_frame(records)
    rows = []
    for (world, vary), part in frame.groupby(["world", "vary"]):
        for value, at in part.groupby("knob", sort=False):
            rows.append([world, vary, f"{value:g}", *(spread(at[name]) for name in ISOLATED)])
        rows.append([world, vary, "largest / smallest", *(f"{leak(part, name):.3g}" for name in ISOLATED)])
        rows.append([world, vary, "rho with |Delta R|", *(_rho_cell(part, name) for name in ISOLATED)])
    return Table(
        caption=(
            "One cause at a time: mean (standard deviation) over seeds. With 'lr' the shift is fixed and the step "
            "size of the fine-tuning moves, with 'severity' the training is fixed, with 'n' both are and the target "
            "sample grows, so that overfitting falls. 'largest / smallest' compares "
            f"means: 1 stays put. rho is Spearman's over all pairs of a block with a {interval_kind(frame)}."
        ),
        header=["world", "vary", "value", *ISOLATED.values()],
        rows=rows,
    )


def _rho_cell(part: DataFrame, name: str) -> str:
    if name == "abs_risk_change":
        return ""
    return interval(rank_correlation(part, name), "{:.2f}")
