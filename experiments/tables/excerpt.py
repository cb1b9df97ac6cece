"""The published rows of the controlled experiments beside ours."""

from __future__ import annotations

from ..analysis.cells import MISSING, spread
from ..analysis.frame import Frame, size, synthetic_frame, where
from ..analysis.paper import EXCERPT, ExcerptRow
from ..analysis.synthetic import excerpt_part, excerpt_terms
from ..engine.records import Record
from .table import Table, table


@table("combined-excerpt", "synthetic")
def combined_excerpt(records: list[Record]) -> Table:
    """The published rows, and ours in both readings of the columns that the paper leaves open."""
    frame = where(synthetic_frame(records), shared_draw=True)
    rows = []
    for published in EXCERPT:
        rows.append(_published(published))
        for model, name in (("logistic", "ours, logistic"), ("mlp", "ours, MLP")):
            if published.world != "blobs_shift" and model == "logistic":
                continue
            part = excerpt_part(frame, published, model)
            rows.append(_ours(published, part, name, squared=False))
            rows.append(_ours(published, part, f"{name}, squared, 1/n", squared=True))
    caption = (
        "The paper's rows beside ours: mean (standard deviation) over seeds at the smallest weight decay. Plain: "
        "model change is L_ell times the mean output distance, gradients are those of single losses. 'squared, 1/n': "
        "mean squared distance, shift terms over n, which fits the printed sizes. B is the sum without remainders."
    )
    header = ["world", "shift", "n", "row", "|Delta R|", "B OT", "B MMD", "EmpShift OT", "EmpShift MMD", "ModelChange",
              "G_Q / G_Q~"]  # fmt: skip
    return Table(caption, header, rows)


def _published(row: ExcerptRow) -> list[str]:
    return [row.world, f"{row.severity:g}", str(row.n), "paper", f"{row.risk_change:.4f}", f"{row.bound_ot:.2f}",
            f"{row.bound_mmd:.2f}", f"{row.emp_shift_ot:.4f}", f"{row.emp_shift_mmd:.4f}", f"{row.model_change:.4f}",
            f"{row.gap_source:.4f} / {row.gap_target:.4f}"]  # fmt: skip


def _ours(row: ExcerptRow, part: Frame, name: str, *, squared: bool) -> list[str]:
    head = [row.world, f"{row.severity:g}", str(row.n), name]
    if not size(part):
        return head + [MISSING] * 7
    terms = excerpt_terms(part, squared=squared)
    cells = [spread(terms[column]) for column in
             ("risk_change", "bound_ot", "bound_mmd", "emp_shift_ot", "emp_shift_mmd", "model_change")]  # fmt: skip
    return [*head, *cells, f"{part['gap_source'].mean():.4f} / {part['gap_target'].mean():.4f}"]
